"""Suites: tests of a server, written in YAML.

>>> from antiphon.testing.suite import load, run  # doctest: +SKIP
>>> summary = await run(load("notes.mcp.yaml"))   # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.snapshots import Snapshots
    from antiphon.testing.suite.document import Problem, SuiteBroken
    from antiphon.testing.suite.format import schema
    from antiphon.testing.suite.loading import find_suites, load, load_all, loads
    from antiphon.testing.suite.model import Case, Check, Outcome, Place, Selection, Suite, Summary, Target
    from antiphon.testing.suite.runner import Running, Settings, run
    from antiphon.testing.suite.server import Unstarted
    from antiphon.testing.suite.starter import starting_suite
    from antiphon.testing.transcript import Turn

__all__ = [
    "Case",
    "Check",
    "Outcome",
    "Place",
    "Problem",
    "Running",
    "Selection",
    "Settings",
    "Snapshots",
    "Suite",
    "SuiteBroken",
    "Summary",
    "Target",
    "Turn",
    "Unstarted",
    "find_suites",
    "load",
    "load_all",
    "loads",
    "run",
    "schema",
    "starting_suite",
]

_HOMES = {
    "format": ("schema",),
    "server": ("Unstarted",),
    "loading": ("find_suites", "load", "load_all", "loads"),
    "antiphon.testing.transcript": ("Turn",),
    "document": ("Problem", "SuiteBroken"),
    "runner": ("Running", "Settings", "run"),
    "antiphon.testing.snapshots": ("Snapshots",),
    "starter": ("starting_suite",),
    "model": ("Case", "Check", "Outcome", "Place", "Selection", "Suite", "Summary", "Target"),
}
_HOME_OF = {
    name: module if "." in module else f"{__name__}.{module}" for module, names in _HOMES.items() for name in names
}


def __getattr__(name: str) -> object:
    # The parts of this package are used by what the runner is made of: nothing is loaded before it is wanted.
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
