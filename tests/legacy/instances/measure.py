"""How much is tried."""

CLIENTS = 200
"""At once, at several instances."""
SESSIONS = 10_000
"""Opened and abandoned."""
