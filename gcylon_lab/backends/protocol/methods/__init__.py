"""What expressions have beside operators: methods of texts, fields of times, rows before each row."""
