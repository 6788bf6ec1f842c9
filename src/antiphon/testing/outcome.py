"""Outcomes: what a run of suites found. The runner makes them, and reports show them."""

from pathlib import Path
from typing import Literal

import msgspec

from antiphon.types import JsonObject

Status = Literal["passed", "failed", "broken", "skipped"]
"""``failed``: an expectation was not met. ``broken``: the test could not be carried out."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a file; lines and columns count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a call: what was sent, and what came back. Of a token it has only the length."""

    method: str
    params: JsonObject
    """What was sent, without the answers."""
    answers: JsonObject = {}
    """The responses that went with it, by key: answers to what the turn before asked."""
    questions: JsonObject = {}
    """What the server asked back, by key, as requests."""
    result: JsonObject | None = None
    """The complete result, on the last turn."""
    error: JsonObject | None = None
    """The JSON-RPC error, on the last turn."""
    seconds: float = 0.0
    """How long the server took."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One expectation: ``text``, ``structured.$.id``, ``rounds`` ..."""

    name: str
    passed: bool
    problem: str = ""
    """In one sentence, if it failed."""
    expected: object = None
    actual: object = None
    place: Place | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One test, run once."""

    name: str
    suite: str
    place: Place
    status: Status
    era: str = ""
    """The revision that was spoken."""
    tags: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    turns: tuple[Turn, ...] = ()
    problem: str = ""
    """Why it is broken or skipped."""
    log: str = ""
    """The end of the server's stderr, if the test did not pass."""
    seconds: float = 0.0

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if not check.passed)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run."""

    outcomes: tuple[Outcome, ...]
    seconds: float
    started: float
    """Seconds since 1970."""
    unstarted: tuple[str, ...] = ()
    """The suites whose server did not start, each with the reason."""

    def count(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def passed(self) -> bool:
        return not any(outcome.status in {"failed", "broken"} for outcome in self.outcomes)
