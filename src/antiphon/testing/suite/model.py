"""A Suite: the tests of one file, for one server, as they were written. ``load`` reads it, ``run`` runs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from antiphon.testing.json_paths import JsonPath
from antiphon.testing.outcome import Place
from antiphon.types import JsonObject

Era = Literal["auto", "modern", "legacy", "both"]


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The server under test: a command to start, a URL, or an app in this process."""

    place: Place
    command: tuple[str, ...] = ()
    url: str = ""
    app: str = ""
    """``package.module:name``, or ``file.py`` with or without a name."""
    env: Mapping[str, str] = {}
    cwd: Path
    headers: Mapping[str, str] = {}
    era: Era = "auto"
    startup: float = 10.0
    """Seconds until it must have answered once."""
    stray: Literal["fail", "ignore"] = "fail"
    """What to do when it prints to standard output what is no message."""

    @property
    def text(self) -> str:
        """What messages call it."""
        return self.url or self.app or " ".join(self.command)


class Responder(msgspec.Struct, frozen=True, kw_only=True):
    """Answers questions over HTTP: a question is posted as JSON, and the answer comes as JSON."""

    url: str
    headers: Mapping[str, str] = {}
    timeout: float = 10.0


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is expected: ``text``, ``structured``, ``rounds`` ..."""

    name: str
    value: object
    """As it was written, references to variables included."""
    place: Place
    places: Mapping[str, Place] = {}
    """Where the parts are, by path."""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """A value to keep under a name for the tests that follow."""

    source: Literal["result", "structured", "text"]
    path: JsonPath | None = None
    pattern: str = ""
    """For text: a regular expression, whose first group is kept, or all that it found."""
    place: Place


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One test."""

    name: str
    place: Place
    method: str
    params: JsonObject
    answers: JsonObject = {}
    needed_answers: tuple[str, ...] = ()
    """The names of those that must be used: what a suite says for all its tests need not be."""
    responder: Responder | None = None
    expect: tuple[Expectation, ...] = ()
    capture: Mapping[str, Capture] = {}
    tags: tuple[str, ...] = ()
    skip: str = ""
    """Why it is skipped; empty if it is not."""
    timeout: float = 60.0
    max_rounds: int = 10
    isolated: bool = False
    era: Literal["", "modern", "legacy"] = ""
    """The only era that it is for."""
    refers: bool = False
    """Whether it refers to variables."""
    needs: tuple[int, ...] = ()
    """The tests before it whose captured values it uses, by number."""

    @property
    def target(self) -> str:
        """The tool, prompt or resource that it calls; the method, where it calls none."""
        return str(self.params.get("name") or self.params.get("uri") or self.method)


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """What one file says."""

    file: Path
    name: str
    target: Target
    cases: tuple[Case, ...]
    setup: tuple[Case, ...] = ()
    """Calls to make before the tests, on every server that is started for them."""
    variables: JsonObject = {}
    names: frozenset[str] = frozenset()
    """The variables that it has, or refers to."""
    serial: bool = False
    """Whether its tests keep their order when several jobs run."""
