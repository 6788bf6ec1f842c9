"""Suites: tests of a server, written in YAML.

>>> from antiphon.testing.suite import load, run  # doctest: +SKIP
>>> summary = await run(load("notes.mcp.yaml"))   # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.suite.document import Problem, SuiteBroken
    from antiphon.testing.suite.format import schema
    from antiphon.testing.suite.loading import find_suites, load, load_all, loads
    from antiphon.testing.suite.model import Case, Check, Outcome, Place, Selection, Suite, Summary, Target
    from antiphon.testing.suite.runner import Running, Settings, run
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
    "Suite",
    "SuiteBroken",
    "Summary",
    "Target",
    "Turn",
    "find_suites",
    "load",
    "load_all",
    "loads",
    "run",
    "schema",
    "starting_suite",
]

# As in `antiphon.testing`: a name is loaded when it is first used. The parts of this package use each other.
_HOMES = ("model", "document", "format", "loading", "runner", "starter")


def __getattr__(name: str) -> object:
    for home in _HOMES if name in __all__ else ():
        module = import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            value = globals()[name] = getattr(module, name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
