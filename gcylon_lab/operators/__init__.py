"""The verbs on distributed tables, one package for each family."""
