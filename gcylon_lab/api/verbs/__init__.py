"""The verbs of `Table`, one module for each kind; `Table` is all of them together."""
