"""Snapshots: results that were kept, to be compared with later ones."""

import os
import re
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.testing.json_paths import ABSENT, JsonPath, depths, read_path
from antiphon.types import JsonObject

FOLDER: Final = "__snapshots__"
IGNORED: Final = "(ignored)"
LONGEST: Final = 150
"""Characters of a label in the name of its file: some file systems allow no more than 255 bytes."""


class SnapshotsBroken(ValueError):
    """The file of snapshots cannot be read."""


class Snapshots:
    """The kept results of one suite, in one file of JSON. With ``update``, new results are kept instead of compared."""

    def __init__(self, file: Path, *, update: bool = False) -> None:
        self.file = file
        self.update = update
        self._kept: JsonObject | None = None
        self._changed: JsonObject = {}
        self._takers: dict[str, str] = {}

    @classmethod
    def beside(cls, suite: Path, *, update: bool = False) -> "Snapshots":
        """Return the snapshots that belong to a suite's file."""
        return cls(suite.parent / FOLDER / f"{suite.name}.json", update=update)

    def get(self, name: str) -> object:
        """Return what was kept under a name; ABSENT if nothing was."""
        return self._read().get(name, ABSENT)

    def put(self, name: str, value: object, *, by: str = "") -> str:
        """Keep a value. Return the name of another test that has kept a different value there, or an empty string."""
        differs = self._read().get(name, ABSENT) != value
        other = self._takers.setdefault(name, by)
        if other != by:
            return other if differs else ""
        if differs:
            self._read()[name] = self._changed[name] = value
        return ""

    def save(self) -> bool:
        """Write what has changed, beside what other processes have written; return whether anything had."""
        if not self._changed:
            return False
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with _alone_in(self.file.parent):
            self._kept = {**self._from_file(), **self._changed}
            text = msgspec.json.format(msgspec.json.encode(dict(sorted(self._kept.items()))), indent=2)
            made = self.file.with_name(f".{self.file.name}.new")
            made.write_bytes(text + b"\n")
            # Replaced at once: another process reads the old file or the new one, never a part.
            made.replace(self.file)
        self._changed = {}
        return True

    def _read(self) -> JsonObject:
        if self._kept is None:
            self._kept = self._from_file()
        return self._kept

    def _from_file(self) -> JsonObject:
        try:
            kept: JsonObject = msgspec.json.decode(self.file.read_bytes(), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise SnapshotsBroken(
                f"The snapshots in {self.file} cannot be read: {fault}."
                " Delete the file, and run with --update-snapshots"
            ) from None
        return kept


@contextmanager
def _alone_in(folder: Path) -> Generator[None]:
    """Hold a lock on the folder that other processes wait for."""
    if sys.platform == "win32":
        import msvcrt

        # A folder cannot be locked there, so a file stands for it.
        with (folder / ".lock").open("ab") as file:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        number = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            os.close(number)


def file_name(label: str) -> str:
    """Return the name of the file for a label; two labels never have the same."""
    simple = re.sub(r"[^\w.=-]+", "_", label)[:LONGEST]
    if simple == label:
        return f"{simple}.json"
    return f"{simple}-{blake2b(label.encode(), digest_size=3).hexdigest()}.json"


def without(value: Any, paths: list[JsonPath]) -> Any:
    """Return a copy of a value in which what the paths find is marked as ignored."""
    made = msgspec.json.decode(msgspec.json.encode(value))
    for path in paths:
        *way, (last, is_deep) = path.steps or [(None, False)]
        for holder in JsonPath(path.text, tuple(way), is_plural=True).find_all(made):
            for below in depths(holder) if is_deep else [holder]:
                _blank(below, last)
    return made


def _blank(holder: Any, step: object) -> None:
    keys: list[Any] = []
    if isinstance(holder, dict):
        keys = list(holder) if step is None else [step] if step in holder else []
    elif isinstance(holder, list):
        size = len(holder)
        keys = list(range(size)) if step is None else [step] if isinstance(step, int) and -size <= step < size else []
    for key in keys:
        holder[key] = IGNORED


# --- for pytest: one file of JSON for each ------------------------------------------------------------------------

_OUR_OWN: Final = frozenset({"turns", "meta"})
"""Fields that differ from run to run, or repeat others."""


class TestSnapshots:
    """The snapshots of one test: ``assert_snapshot(result)``."""

    def __init__(self, test_file: Path, test: str, *, update: bool = False) -> None:
        self._folder = test_file.parent / FOLDER / test_file.stem
        self._test = test
        self._update = update
        self._taken = 0
        self._made: dict[Path, str] = {}

    def __call__(self, value: object, name: str = "", *, ignore: Sequence[str] = ()) -> None:
        """Raise AssertionError unless a value equals what was kept. ``ignore`` are paths that may differ."""
        __tracebackhide__ = True
        self._taken += 1
        made = _text(without(plain(value), [read_path(path) for path in ignore]))
        file = self._file(name)
        before = self._made.setdefault(file, made)
        if before != made:
            raise AssertionError(
                f"This test has two snapshots called {_shown(file)}, and they differ: give each a name of its own.\n"
                + _difference(before, made)
            )
        if self._update:
            if not file.exists() or file.read_text(encoding="utf-8") != made:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(made, encoding="utf-8")
            return
        if not file.exists():
            raise AssertionError(
                f"There is no snapshot {_shown(file)} yet. Run with --update-snapshots to keep this:\n{made}"
            )
        kept = file.read_text(encoding="utf-8")
        if kept != made:
            raise AssertionError(
                f"This is not what {_shown(file)} has."
                " If it is right, run with --update-snapshots and look at the difference.\n" + _difference(kept, made)
            )

    def _file(self, name: str) -> Path:
        label = f"{self._test}-{name}" if name else self._test if self._taken == 1 else f"{self._test}-{self._taken}"
        return self._folder / file_name(label)


def plain(value: object) -> Any:
    """Return a value as JSON; of a result, what the server said and what it asked."""
    from antiphon.testing.client import PromptOutcome, ReadOutcome, ToolOutcome  # suites need no such client

    if isinstance(value, ToolOutcome | PromptOutcome | ReadOutcome):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _OUR_OWN}
        known: JsonObject = {name: field for name, field in fields.items() if field is not None}
        known["asked"] = [{"key": asked.key, "message": asked.message} for asked in value.asked]
        value = known
    return msgspec.to_builtins(value, str_keys=True)


def _text(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _difference(kept: str, made: str) -> str:
    return "\n".join(unified_diff(kept.splitlines(), made.splitlines(), "kept", "now", lineterm=""))


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)
