"""Widgets that change settings, show plans and compare runs."""
