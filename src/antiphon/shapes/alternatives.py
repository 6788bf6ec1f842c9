"""Unions that msgspec cannot tell apart: tried one by one, the best guess first."""

import threading
from dataclasses import dataclass
from typing import Any

from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.reader import Reader
from antiphon.shapes.values import is_object

__all__ = ["Alternative", "Alternatives"]


@dataclass(frozen=True, slots=True)
class Alternative:
    name: str
    type: Any
    keys: frozenset[str] | None
    reader: Reader

    def strangeness(self, value: object) -> tuple[int, int]:
        """How unlikely this one is meant: by the fields it does not know, then by how much text it would take."""
        unknown = len(value.keys() - self.keys) if is_object(value) and self.keys is not None else 0
        return unknown, {str: 1, bytes: 2, bytearray: 2}.get(self.type, 0)


class Patience(threading.local):
    """How often one reading has guessed wrong: nested unions would otherwise multiply their guesses."""

    readings = 0
    failures = 0


_patience = Patience()
_MOST_FAILURES = 10_000


class Alternatives:
    __slots__ = ("_alternatives",)

    def __init__(self, alternatives: list[Alternative]) -> None:
        self._alternatives = alternatives

    def read(self, value: object, lax: bool) -> object:
        if _patience.readings == 0:
            _patience.failures = 0
        _patience.readings += 1
        try:
            return self._read(value, lax)
        finally:
            _patience.readings -= 1

    def _read(self, value: object, lax: bool) -> object:
        likely = sorted(self._alternatives, key=lambda one: one.strangeness(value))
        problems: dict[str, Mismatch] = {}
        for leniency in (False, True) if lax else (False,):
            for one in likely:
                if _patience.failures > _MOST_FAILURES:
                    raise Mismatch("fits too many types in part and none as a whole")
                try:
                    return one.reader.read(value, leniency)
                except Mismatch as problem:
                    problems[one.name] = problem
                    _patience.failures += 1
        told = "; ".join(f"{name}: {str(problem)[:150]}" for name, problem in list(problems.items())[:5])
        raise Mismatch(f"fits none of {', '.join(one.name for one in self._alternatives)} ({told})")
