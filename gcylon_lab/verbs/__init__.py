"""The verbs of `Table`, one room for each kind; `Table` is all of them together."""
