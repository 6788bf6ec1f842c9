"""Unions that msgspec cannot tell apart: tried one by one, the best guess first."""

import threading
from typing import Any

import msgspec

from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.reader import Reader
from antiphon.shapes.values import is_object

__all__ = ["Alternative", "Alternatives"]


class Alternative(msgspec.Struct, frozen=True):
    name: str
    type: Any
    keys: frozenset[str] | None
    reader: Reader

    def strangeness(self, value: object) -> tuple[int, int]:
        """How unlikely this one is meant: by the fields it does not know, then by how much text it would take."""
        unknown = len(value.keys() - self.keys) if is_object(value) and self.keys is not None else 0
        return unknown, {str: 1, bytes: 2, bytearray: 2}.get(self.type, 0)


class Memory(threading.local):
    """What one reading has found out already: nested unions would otherwise multiply their guesses.

    A value is kept with its verdict, so that no other value can come to have its id meanwhile.
    """

    failures: dict[tuple[int, int, bool], tuple[object, Mismatch]] | None = None


_memory = Memory()


class Alternatives:
    __slots__ = ("_alternatives",)

    def __init__(self, alternatives: list[Alternative]) -> None:
        self._alternatives = alternatives

    def read(self, value: object, lax: bool) -> object:
        if _memory.failures is not None:
            return self._recalled(_memory.failures, value, lax)
        _memory.failures = {}
        try:
            return self._read(value, lax)
        finally:
            _memory.failures = None

    def _recalled(
        self, failures: dict[tuple[int, int, bool], tuple[object, Mismatch]], value: object, lax: bool
    ) -> object:
        key = (id(self), id(value), lax)
        if key in failures:
            raise failures[key][1]
        try:
            return self._read(value, lax)
        except Mismatch as problem:
            failures[key] = (value, problem)
            raise

    def _read(self, value: object, lax: bool) -> object:
        likely = sorted(self._alternatives, key=lambda one: one.strangeness(value))
        problems: dict[str, Mismatch] = {}
        for leniency in (False, True) if lax else (False,):
            for one in likely:
                try:
                    return one.reader.read(value, leniency)
                except Mismatch as problem:
                    problems[one.name] = problem
        told = "; ".join(f"{name}: {str(problem)[:150]}" for name, problem in list(problems.items())[:5])
        raise Mismatch(f"fits none of {', '.join(one.name for one in self._alternatives)} ({told})")
