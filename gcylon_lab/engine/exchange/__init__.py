"""How rows travel between ranks: routes, rounds, and where received rows go."""
