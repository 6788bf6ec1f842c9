"""Snapshots for pytest: what a test got, one file of JSON for each, to be compared with the next time."""

from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.testing.client import PromptOutcome, ReadOutcome, ToolOutcome
from antiphon.testing.suite.path import read_path
from antiphon.testing.suite.snapshots import FOLDER, file_name, without
from antiphon.types import JsonObject

_OUR_OWN: Final = frozenset({"turns", "meta"})
"""What differs from run to run, or repeats what else is there."""


class Snapshots:
    """The snapshots of one test: ``assert_snapshot(result)``."""

    def __init__(self, test_file: Path, test: str, *, update: bool = False) -> None:
        self._folder = test_file.parent / FOLDER / test_file.stem
        self._test = test
        self._update = update
        self._taken = 0
        self._made: dict[Path, str] = {}

    def __call__(self, value: object, name: str = "", *, ignore: Sequence[str] = ()) -> None:
        """Fail unless a value is what was kept of it. ``ignore`` are paths that may differ: ``$.structured.id``."""
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
    """A value as JSON; of a result, what the server said and what it asked."""
    if isinstance(value, ToolOutcome | PromptOutcome | ReadOutcome):
        fields = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _OUR_OWN}
        known: JsonObject = {name: field for name, field in fields.items() if field is not msgspec.UNSET}
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
