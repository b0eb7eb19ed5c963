"""Handles: the notebook's references to tables on the ranks, and their verbs."""
