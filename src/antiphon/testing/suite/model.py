"""Suites as plain data: the tests of one file as they were written, which of them are chosen, and what came of them.

``load`` reads a Suite, ``run`` makes a Summary of it, and reports show that.
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from antiphon.client.client import Auth
from antiphon.oauth.identity import Identity
from antiphon.testing.json_paths import JsonPath
from antiphon.testing.transcript import Turn
from antiphon.types import JsonObject

Era = Literal["auto", "modern", "legacy"]
Eras = Literal["auto", "modern", "legacy", "both"]
Status = Literal["passed", "failed", "broken", "skipped"]
"""``failed``: an expectation was not met. ``broken``: the test could not be carried out."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a file; lines and columns count from 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The server under test: a command to start, a URL, or an app in this process. One of these is set."""

    place: Place
    command: tuple[str, ...] = ()
    url: str = ""
    app: str = ""
    """``package.module:name``, or ``file.py`` with or without a name."""
    env: Mapping[str, str] = {}
    cwd: Path
    headers: Mapping[str, str] = {}
    auth: Auth | None = None
    """How the client signs in to a URL, without a person."""
    identity: Identity | None = None
    """Who calls an app."""
    era: Eras = "auto"
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

    path: JsonPath | None = None
    """Where it is in the result."""
    pattern: str = ""
    """If there is no path: what finds it in the text. The first group is kept, or all that was found."""
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
    variables: JsonObject = {}
    names: frozenset[str] = frozenset()
    """The variables that it has, or refers to."""
    serial: bool = False
    """Whether its tests keep their order when several jobs run."""

    def eras(self, instead: Literal["", "auto", "modern", "legacy", "both"] = "") -> list[Era]:
        """Return the eras to run it in: what ``instead`` says, or else its server."""
        era = instead or self.target.era
        return ["modern", "legacy"] if era == "both" else [era]


# --- which tests are run ------------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"\s*(?:(\(|\)|(?:and|or|not)(?![^\s()]))|\"([^\"]*)\"|'([^']*)'|([^\s()]+))")
_LOGIC: Final = (ast.Expression, ast.BoolOp, ast.UnaryOp, ast.Constant, ast.boolop, ast.Not)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """By words in the name, and by tag."""

    expression: str = ""
    """``deploy and not slow``: words that are looked for in names and tags, whatever their case."""
    tags: tuple[str, ...] = ()
    """Any of these."""

    def chosen(self, suite: Suite) -> list[int]:
        """Return the numbers of the tests, and of those that they need, in the order of the suite."""
        words = parse_expression(self.expression) if self.expression else None
        wanted = {number for number, case in enumerate(suite.cases) if self._wants(case, words)}
        waiting = list(wanted)
        while waiting:
            more = set(suite.cases[waiting.pop()].needs) - wanted
            wanted |= more
            waiting += more
        return sorted(wanted)

    def _wants(self, case: Case, words: ast.expr | None) -> bool:
        if self.tags and not set(self.tags) & set(case.tags):
            return False
        return words is None or _holds(words, "\n".join([case.name, *case.tags]).lower())


def parse_expression(text: str) -> ast.expr:
    """Read what ``-k`` takes: words, with Python's and, or, not and brackets. ValueError if it makes no sense."""
    pieces: list[str] = []
    words: list[str] = []
    # The last bracket only ends the last words: Python's grammar wants none after the expression.
    for logic, *word in [*_WORD.findall(text), (")", "")]:
        if not logic:
            words.append("".join(word))
            continue
        # Words in a row are one text.
        pieces += [repr(" ".join(words).lower())] if words else []
        pieces.append(logic)
        words = []
    try:
        read = ast.parse(" ".join(pieces[:-1]), mode="eval")
    except SyntaxError:
        read = None
    if read is None or not all(isinstance(node, _LOGIC) for node in ast.walk(read)):
        raise ValueError(f"{text!r} makes no sense: it has words with 'and', 'or' or 'not' between them, and brackets")
    return read.body


def _holds(node: ast.expr, name: str) -> bool:
    match node:
        case ast.BoolOp(op, values):
            return (all if isinstance(op, ast.And) else any)(_holds(value, name) for value in values)
        case ast.UnaryOp(_, operand):
            return not _holds(operand, name)
        case _:
            return ast.literal_eval(node) in name


# --- what came of them --------------------------------------------------------------------------------------------


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
        """The checks that failed."""
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
        """Return how many tests ended like this."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def passed(self) -> bool:
        """Whether no test failed or broke."""
        return not any(outcome.status in {"failed", "broken"} for outcome in self.outcomes)
