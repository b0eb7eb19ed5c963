"""Runs operators: plans, the frame of an operation, the exchange, and where rows are kept. It knows no verb."""
