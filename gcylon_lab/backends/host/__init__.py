"""The backend of CPU ranks: numpy and Arrow columns."""
