"""Unions that msgspec cannot tell apart: tried one by one, the best guess first."""

from dataclasses import dataclass
from typing import Any

from antiphon.shapes.mismatch import Mismatch
from antiphon.shapes.reader import Reader

__all__ = ["Choice", "Member"]


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    type: Any
    keys: frozenset[str] | None
    reader: Reader

    def strangeness(self, value: object) -> tuple[int, int]:
        """How unlikely the value is meant for this member: fields it does not know, then text that reads as anything."""
        unknown = len(value.keys() - self.keys) if isinstance(value, dict) and self.keys is not None else 0
        return unknown, {str: 1, bytes: 2, bytearray: 2}.get(self.type, 0)


class Choice:
    __slots__ = ("_members",)

    def __init__(self, members: list[Member]) -> None:
        self._members = members

    def read(self, value: object, lax: bool) -> object:  # noqa: FBT001
        likely = sorted(self._members, key=lambda member: member.strangeness(value))
        problems: dict[str, Mismatch] = {}
        for leniency in (False, True) if lax else (False,):
            for member in likely:
                try:
                    return member.reader.read(value, leniency)
                except Mismatch as problem:
                    problems[member.name] = problem
        told = "; ".join(f"{name}: {problem}" for name, problem in list(problems.items())[:5])
        raise Mismatch(f"fits none of {', '.join(member.name for member in self._members)} ({told})")
