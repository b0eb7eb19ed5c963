"""The engines' side of a cluster: one on each rank."""
