"""Columns in device memory: their types, and their way there and back."""
