"""Columns, their schema, and the libraries that hold them. Nothing here knows about ranks or budgets."""
