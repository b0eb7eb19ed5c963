"""Moving bytes between ranks. Nothing here knows what a table is."""
