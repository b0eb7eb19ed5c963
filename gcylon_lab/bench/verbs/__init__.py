"""Benches of single verbs on CPU ranks, ours beside others'."""
