"""Reports of a run: each renders a ``Summary`` as text, for a person or for a program."""

from importlib import import_module
from typing import Final

from antiphon.testing.suite.outcome import Summary

FORMATS: Final = {"terminal": "terminal", "json": "data", "junit": "junit", "github": "github", "html": "html"}
"""What a report is called, and the file that renders it."""


def render(form: str, summary: Summary) -> str:
    """A report in one of ``FORMATS``, with what it does unless told otherwise."""
    if form not in FORMATS:
        raise ValueError(f"There is no report {form!r}; there are {', '.join(FORMATS)}.")
    # Only the terminal needs rich, and only the page its style sheet.
    text: str = import_module(f"{__name__}.{FORMATS[form]}").render(summary)
    return text
