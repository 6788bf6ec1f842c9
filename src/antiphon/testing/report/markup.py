"""HTML from words that nobody vouches for."""

import html
from collections.abc import Mapping
from typing import Final

from antiphon.testing.report.plain import shortened, visible

_MOST_LETTERS: Final = 20_000
_MOST_LINES: Final = 400


def text_of(words: str) -> str:
    """Words as they may stand in an element or between the quotes of an attribute."""
    return html.escape(visible(shortened(words, letters=_MOST_LETTERS, lines=_MOST_LINES)), quote=True)


def element(tag: str, words: str, attributes: Mapping[str, str] | None = None) -> str:
    """An element that holds words, and no other element."""
    written = "".join(f' {name}="{text_of(value)}"' for name, value in (attributes or {}).items())
    return f"<{tag}{written}>{text_of(words)}</{tag}>"
