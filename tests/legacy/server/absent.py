"""A plugin for pytest, under which there is no `antiphon.legacy`: ``pytest -p absent``."""

import sys

sys.modules["antiphon.legacy"] = None
