"""The budget of a rank, and where bytes go that are not under it. Nothing here knows what a table is."""
