"""Reports of a run: each renders a ``Summary`` as text, for a person or for a program."""

from importlib import import_module
from typing import Final

from antiphon.testing.outcome import Summary

FORMATS: Final = {
    "terminal": "terminal.render",
    "json": "files.render_json",
    "junit": "files.render_junit",
    "github": "files.render_github",
    "html": "html.render",
}
"""The module and function that render each report."""


def render(form: str, summary: Summary) -> str:
    """A report in one of ``FORMATS``, with what it does unless told otherwise."""
    if form not in FORMATS:
        raise ValueError(f"There is no report {form!r}; there are {', '.join(FORMATS)}.")
    # Only the terminal needs rich, and only the page its style sheet.
    module, function = FORMATS[form].split(".")
    text: str = getattr(import_module(f"{__name__}.{module}"), function)(summary)
    return text
