"""Snapshots: results that were kept, one file of JSON beside each suite."""

from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.testing.suite.path import ABSENT, JsonPath
from antiphon.types import JsonObject

FOLDER: Final = "__snapshots__"
IGNORED: Final = "(ignored)"


class SnapshotsBroken(ValueError):
    """The file of snapshots cannot be read."""


class Snapshots:
    """The kept results of one suite. ``update`` keeps what comes instead of comparing with it."""

    def __init__(self, file: Path, *, update: bool = False) -> None:
        self.file = file
        self.update = update
        self._kept: JsonObject | None = None
        self._changed = False

    @classmethod
    def beside(cls, suite: Path, *, update: bool = False) -> "Snapshots":
        return cls(suite.parent / FOLDER / f"{suite.name}.json", update=update)

    def get(self, name: str) -> object:
        """What was kept under a name; ABSENT if nothing was."""
        return self._read().get(name, ABSENT)

    def put(self, name: str, value: object) -> None:
        if self._read().get(name, ABSENT) != value:
            self._read()[name] = value
            self._changed = True

    def save(self) -> bool:
        """Write what has changed; whether anything had."""
        if not self._changed:
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        text = msgspec.json.format(msgspec.json.encode(dict(sorted(self._read().items()))), indent=2)
        self.file.write_bytes(text + b"\n")
        self._changed = False
        return True

    def _read(self) -> JsonObject:
        if self._kept is None:
            try:
                self._kept = msgspec.json.decode(self.file.read_bytes(), type=dict[str, Any])
            except FileNotFoundError:
                self._kept = {}
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as fault:
                raise SnapshotsBroken(
                    f"The snapshots in {self.file} cannot be read: {fault}."
                    " Delete the file, and run with --update-snapshots"
                ) from None
        return self._kept


def without(value: Any, paths: list[JsonPath]) -> Any:
    """A copy of a value in which what the paths find is left out of the comparison."""
    made = msgspec.json.decode(msgspec.json.encode(value))
    for path in paths:
        *way, (last, is_deep) = path.steps or [(None, False)]
        for holder in _plural(JsonPath(path.text, tuple(way), is_plural=True).find(made)):
            for below in (
                _plural(JsonPath("", (((None, True)),), is_plural=True).find([holder])) if is_deep else [holder]
            ):
                _blank(below, last)
    return made


def _plural(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _blank(holder: Any, step: object) -> None:
    keys: list[Any] = []
    if isinstance(holder, dict):
        keys = list(holder) if step is None else [step] if step in holder else []
    elif isinstance(holder, list):
        size = len(holder)
        keys = list(range(size)) if step is None else [step] if isinstance(step, int) and -size <= step < size else []
    for key in keys:
        holder[key] = IGNORED
