"""What operators ask of a backend: columns, schemas, and the Protocols that each backend has the methods of."""
