"""The notebook's side of a cluster: what a person holds."""
