"""Files: which rank reads what, and how rows become columns and columns become files."""
