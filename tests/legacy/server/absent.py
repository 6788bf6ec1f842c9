"""A plugin for pytest, under which there is no `antiphon.legacy`: ``pytest -p absent``."""

import sys


class Absent:
    """Finds that the older era is not there."""

    def find_spec(self, name, path=None, target=None):
        if name == "antiphon.legacy" or name.startswith("antiphon.legacy."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
