"""The panels of the figure, one module each. Pure."""
