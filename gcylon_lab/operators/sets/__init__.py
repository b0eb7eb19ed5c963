"""Tables as sets of rows, one after the other, and compared."""
