"""Where the rows of a rank are kept: chunks, parts, views, and what is evicted."""
