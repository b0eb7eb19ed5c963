"""Window functions: what a row has of other rows, in the order of the whole table or of its group."""
