"""The report for GitHub: annotations, which its runner puts beside the lines of a pull request."""

import os
from pathlib import Path
from typing import Final

from antiphon.testing.report.plain import line, visible
from antiphon.testing.report.telling import brief, tell_problems
from antiphon.testing.suite.outcome import Outcome, Place, Summary

_LONGEST: Final = 4_000
"""Letters of one annotation; GitHub cuts longer ones off without a word."""


def render(summary: Summary, *, root: Path | None = None) -> str:
    """A line for every test that did not pass. Paths are told from ``root``, the repository, which the runner names."""
    root = root or Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    return "".join(
        _annotation(outcome, root) + "\n" for outcome in summary.outcomes if outcome.status in {"failed", "broken"}
    )


def _annotation(outcome: Outcome, root: Path) -> str:
    place = _place(outcome)
    properties = {
        "file": _path(place.file, root),
        "line": str(place.line),
        "col": str(place.column),
        "title": f"{line(outcome.name)} {outcome.status}",
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::error {written}::{_data(_message(outcome))}"


def _place(outcome: Outcome) -> Place:
    """Where the first check stands that failed, or else the test."""
    return next((check.place for check in outcome.failures if check.place is not None), outcome.place)


def _path(file: Path, root: Path) -> str:
    whole = Path(os.path.abspath(file))  # noqa: PTH100 -- a link in the repository stays as the repository has it
    if whole.is_relative_to(root):
        file = whole.relative_to(root)
    return visible(str(file).replace(os.sep, "/"))


def _message(outcome: Outcome) -> str:
    told = "\n".join(map(str, tell_problems(outcome))) or brief(outcome)
    return told if len(told) <= _LONGEST else told[:_LONGEST] + "…"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
