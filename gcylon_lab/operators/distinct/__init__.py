"""Distinct rows."""
