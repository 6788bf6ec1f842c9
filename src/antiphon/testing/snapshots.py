"""Snapshots: results that were kept, to be compared with later ones."""

import os
import re
from collections.abc import Iterable, Sequence
from difflib import unified_diff
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.testing.json_paths import ABSENT, JsonPath, read_path
from antiphon.types import JsonObject

FOLDER: Final = "__snapshots__"
IGNORED: Final = "(ignored)"
LONGEST: Final = 150
"""Bytes of a label in the name of its file: some file systems allow no more than 255."""
_OUR_OWN: Final = frozenset({"turns", "meta"})
"""Fields of a result that differ from run to run, or repeat others."""


class SnapshotsBroken(ValueError):
    """The file of a snapshot cannot be read or written."""


class Snapshots:
    """The kept results of one suite, or of one file of tests: a folder with a file of JSON for each.

    With ``update``, results are kept instead of compared.
    """

    def __init__(self, folder: Path, *, update: bool = False) -> None:
        self.update = update
        self._folder = folder
        self._takers: dict[str, str] = {}

    @classmethod
    def beside(cls, tests: Path, *, update: bool = False) -> "Snapshots":
        """Return the snapshots that belong to a suite, or to a file of tests."""
        return cls(tests.parent / FOLDER / tests.name.removesuffix(".py"), update=update)

    def file(self, name: str) -> Path:
        """Return the file of a snapshot."""
        return self._folder / file_name(name)

    def get(self, name: str) -> object:
        """Return what was kept under a name; ABSENT if nothing was."""
        file = self.file(name)
        try:
            kept: object = msgspec.json.decode(file.read_bytes())
        except FileNotFoundError:
            return ABSENT
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise SnapshotsBroken(
                f"The snapshot {file} cannot be read: {fault}. Delete the file, and run with --update-snapshots"
            ) from None
        return kept

    def put(self, name: str, value: object, *, by: str = "") -> str:
        """Keep a value. Return the name of another test that has kept a different value there, or an empty string."""
        kept, text = self.get(name), _text(value)
        differs = kept is ABSENT or _text(kept) != text
        other = self._takers.setdefault(name, by)
        if other != by:
            return other if differs else ""
        if differs:
            self._write(self.file(name), text)
        return ""

    def _write(self, file: Path, text: str) -> None:
        made = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text, encoding="utf-8")
            # Replaced at once: another process reads the old file or the new one, never a part.
            made.replace(file)
        except OSError as fault:
            raise SnapshotsBroken(f"The snapshot {file} cannot be written: {fault.strerror or fault}") from None


def file_name(label: str) -> str:
    """Return the name of the file for a label; two labels never have the same, nor names that differ only in case."""
    simple = re.sub(r"[^\w.=-]+", "_", label).encode()[:LONGEST].decode(errors="ignore")
    if simple == label == label.lower():
        return f"{simple}.json"
    return f"{simple}-{blake2b(label.encode(), digest_size=3).hexdigest()}.json"


def without(value: Any, paths: Iterable[JsonPath]) -> Any:
    """Return a copy of a value in which what the paths find is marked as ignored."""
    made = msgspec.json.decode(msgspec.json.encode(value))
    for path in paths:
        made = path.replace(made, IGNORED)
    return made


class TestSnapshots:
    """The snapshots of one test for pytest: ``assert_snapshot(result)``."""

    def __init__(self, kept: Snapshots, test: str) -> None:
        self._kept = kept
        self._test = test
        self._taken = 0
        self._values: dict[str, object] = {}

    def __call__(self, value: object, name: str = "", *, ignore: Sequence[str] = ()) -> None:
        """Raise AssertionError unless a value equals what was kept. ``ignore`` are paths that may differ."""
        __tracebackhide__ = True
        self._taken += 1
        number = f"-{self._taken}" if self._taken > 1 else ""
        label = f"{self._test}-{name}" if name else f"{self._test}{number}"
        made = without(plain(value), map(read_path, ignore))
        file = _shown(self._kept.file(label))
        other = self._values.setdefault(label, made)
        if _text(other) != _text(made):
            why = f"This test has two snapshots called {file}, and they differ: give each a name of its own."
            raise AssertionError(f"{why}\n{_difference(other, made)}")
        if self._kept.update:
            self._kept.put(label, made)
        kept = self._kept.get(label)
        if kept is ABSENT:
            why = f"There is no snapshot {file} yet. Run with --update-snapshots to keep this:"
            raise AssertionError(f"{why}\n{_text(made)}")
        if _text(kept) != _text(made):
            why = (
                f"This is not what {file} has. If it is right, run with --update-snapshots and look at the difference."
            )
            raise AssertionError(f"{why}\n{_difference(kept, made)}")


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
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode() + "\n"


def _difference(kept: object, made: object) -> str:
    return "\n".join(unified_diff(_text(kept).splitlines(), _text(made).splitlines(), "kept", "now", lineterm=""))


def _shown(file: Path) -> str:
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)
