"""The version, where every layer may take it from."""

__version__ = "0.1.0"
