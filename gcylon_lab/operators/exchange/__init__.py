"""Verbs that move rows between ranks as they are."""
