"""Reading and writing tables, and taking rows in."""
