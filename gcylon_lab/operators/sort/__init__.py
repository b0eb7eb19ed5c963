"""Sort."""
