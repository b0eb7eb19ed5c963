"""The way from the notebook to the engines: requests in order, replies, interrupts."""
