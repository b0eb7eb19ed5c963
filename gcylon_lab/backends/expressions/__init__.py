"""How expressions over columns are checked, and brought to what libraries can compute."""
