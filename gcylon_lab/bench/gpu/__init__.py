"""Benches on GPUs."""
