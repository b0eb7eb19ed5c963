"""Kernels of our own for GPU ranks, and their CUDA sources."""
