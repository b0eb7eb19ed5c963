"""Figures of whole columns that group-by has none of: correlations, and counts between edges."""
