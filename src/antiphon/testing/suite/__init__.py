"""Suites: tests of a server, written in YAML.

>>> from antiphon.testing.suite import load, run  # doctest: +SKIP
>>> summary = await run(load("notes.mcp.yaml"))   # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.suite.format import schema
    from antiphon.testing.suite.instance import Unstarted
    from antiphon.testing.suite.loading import find_suites, load, load_all, loads
    from antiphon.testing.suite.outcome import Check, Outcome, Place, Summary, Turn
    from antiphon.testing.suite.problem import Problem, SuiteBroken
    from antiphon.testing.suite.runner import Running, Settings, run
    from antiphon.testing.suite.selection import Selection
    from antiphon.testing.suite.snapshots import Snapshots
    from antiphon.testing.suite.starter import starting_suite
    from antiphon.testing.suite.suite import Case, Suite, Target

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
    "instance": ("Unstarted",),
    "loading": ("find_suites", "load", "load_all", "loads"),
    "outcome": ("Check", "Outcome", "Place", "Summary", "Turn"),
    "problem": ("Problem", "SuiteBroken"),
    "runner": ("Running", "Settings", "run"),
    "selection": ("Selection",),
    "snapshots": ("Snapshots",),
    "starter": ("starting_suite",),
    "suite": ("Case", "Suite", "Target"),
}
_HOME_OF = {name: f"{__name__}.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    # The parts of this package are used by what the runner is made of: nothing is loaded before it is wanted.
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value
