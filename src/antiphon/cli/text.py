"""Text from a server, as a terminal may show it: what would move the cursor or hide letters is written out."""

import unicodedata
from typing import Final

_KEPT: Final = frozenset("\n\t\u200d")
"""Lines, tabs, and what joins emoji."""


def visible(text: str) -> str:
    """The text with control and formatting characters written as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter if letter in _KEPT or unicodedata.category(letter) not in {"Cc", "Cf", "Cs"} else _escape(letter)
        for letter in text
    )


def line(text: str) -> str:
    """The text on one line."""
    return " ".join(visible(text).split())


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
