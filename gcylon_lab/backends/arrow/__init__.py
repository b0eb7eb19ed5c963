"""Arrow and pandas values to columns and back."""
