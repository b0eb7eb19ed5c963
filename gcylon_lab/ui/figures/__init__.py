"""Figures from the ranks' snapshots. Pure."""
