"""Watching: the same tests again, in a process of their own, whenever a file changes."""

import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

import click

_LOOKED_AT: Final = (".py", ".yaml", ".yml", ".json", ".toml", ".js", ".mjs", ".ts")
FIRST: Final = 200
"""Milliseconds until the first run."""
_LEFT_OUT: Final = frozenset({"__snapshots__", "__pycache__", "node_modules", ".git", ".venv"})


def watch_tests(places: list[Path], written: Iterable[Path] = ()) -> None:
    """Run the tests, and once more after each change, until somebody interrupts.

    What the tests have ``written`` themselves, such as their reports, is no change.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise click.UsageError("--watch needs a package: pip install 'antiphon[reload]'") from None
    again = [sys.executable, "-m", "antiphon", *(word for word in sys.argv[1:] if word != "--watch")]
    ours = tuple(place.resolve() for place in written)
    folders = {place if place.is_dir() else place.parent for place in [*places, Path()]}
    is_first = True
    try:
        # The first round comes of itself: what changes while the tests run is not missed then.
        for changes in watch(
            *folders,
            watch_filter=lambda _, path: is_of_interest(path, ours),
            rust_timeout=FIRST,
            yield_on_timeout=True,
            raise_interrupt=True,
        ):
            if changes:
                names = sorted({Path(path).name for _, path in changes})
                more = " and more" if len(names) > 3 else ""
                click.secho(f"\n{', '.join(names[:3])}{more} changed", bold=True, err=True)
            if changes or is_first:
                _run(again)
            is_first = False
    except KeyboardInterrupt:
        click.echo("No longer watching", err=True)


def is_of_interest(path: str, written: Collection[Path] = ()) -> bool:
    """Whether a change may be one of the server or its suites."""
    if not path.endswith(_LOOKED_AT) or _LEFT_OUT & set(Path(path).parts):
        return False
    return not any(Path(path).resolve().is_relative_to(place) for place in written)


def _run(command: list[str]) -> None:
    # A process of its own: what a server's module imports is then new as well.
    subprocess.run(command, check=False)  # noqa: S603 -- this program itself
    click.echo("Watching for changes; Ctrl+C ends it", err=True)
