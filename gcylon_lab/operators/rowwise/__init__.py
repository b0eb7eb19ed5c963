"""Verbs that look at each row alone, or at some rows."""
