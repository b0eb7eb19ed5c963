"""Benches of what a person sees, in a real browser."""
