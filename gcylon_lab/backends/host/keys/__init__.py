"""Keys on CPU ranks: hashed, grouped, compared and ordered."""
