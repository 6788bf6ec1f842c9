"""What the tests of old servers need: the eye on what is left behind, and nothing remembered between them."""

import pytest

from antiphon import eras
from client.conftest import hostile, nothing_is_left, quick_collections

__all__ = ["hostile", "nothing_is_left", "quick_collections"]


@pytest.fixture(autouse=True)
def nothing_is_known():
    """Every server is met for the first time: ports are used again."""
    eras._found.clear()
