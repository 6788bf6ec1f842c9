"""How much is tried: enough for every day, or all that is promised (`make instances`)."""

import os

FULL = os.environ.get("INSTANCES") == "full"
CLIENTS = 200 if FULL else 60
"""At once, at several instances."""
SESSIONS = 10_000 if FULL else 1_000
"""Opened and abandoned."""
