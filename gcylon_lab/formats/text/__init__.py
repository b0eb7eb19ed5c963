"""Text files: csv and lines of JSON."""
