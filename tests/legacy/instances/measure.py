"""How much is tried: enough for every day, or all that is promised (`make instances`)."""

import os

import pytest

FULL = os.environ.get("INSTANCES") == "full"
CLIENTS = 200
"""At once, at several instances."""
SESSIONS = 10_000 if FULL else 1_000
"""Opened and abandoned."""
at_length = pytest.mark.skipif(not FULL, reason="waits for seconds, so only `make instances` does")
