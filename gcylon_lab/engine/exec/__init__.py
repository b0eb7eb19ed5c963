"""The frame of an operation: opening, agreement, work on the rank's own rows, closing."""
