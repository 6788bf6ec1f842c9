"""Reports of a run: each renders a ``Summary`` as text, for people or for programs."""

from importlib import import_module
from typing import Final

from antiphon.testing.suite.model import Summary

FORMATS: Final = {
    "terminal": "terminal.render",
    "json": "files.render_json",
    "junit": "files.render_junit",
    "github": "files.render_github",
    "html": "html.render",
}
"""The module and function of each report."""


def render(form: str, summary: Summary) -> str:
    """Return a report in one of ``FORMATS``, with its defaults; ValueError for another."""
    if form not in FORMATS:
        raise ValueError(f"There is no report {form!r}; there are {', '.join(FORMATS)}.")
    # Imported here, since only the terminal needs rich.
    module, function = FORMATS[form].split(".")
    text: str = getattr(import_module(f"{__name__}.{module}"), function)(summary)
    return text
