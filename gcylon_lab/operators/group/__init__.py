"""Group-by, and what is computed over a whole column."""
