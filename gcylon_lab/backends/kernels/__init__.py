"""Kernels of one's own: what a function, or a line of text, says of the scalars of one row, run on whole columns."""
