"""What came from a server, made harmless: text that cannot steer a terminal, and data that is only JSON.

Everything that a report shows passes through here. A token is shown by its length alone.
"""

import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Final

import msgspec

_KEPT: Final = frozenset("\n\t\u200d")
"""Lines, tabs, and what joins emoji."""
_WRITTEN_OUT: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NO_CHARACTERS: Final = frozenset("\ufffe\uffff")
"""Not allowed in XML 1.0 (section 2.2)."""
_RUNNER_COMMAND: Final = re.compile(r"##(?=\[)")
"""GitHub's runner obeys ``##[command]`` wherever a line of the log holds it."""
_TOKEN: Final = "requestState"  # noqa: S105 -- the key, not a token
_LENGTH: Final = re.compile(r"<\d{1,9} characters>", re.ASCII)
"""What a transcript holds instead of a token."""
_DEEPEST: Final = 60


def visible(text: str) -> str:
    """The text with everything that moves a cursor, hides letters or commands a CI runner written as escapes."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if _is_harmless(letter) else _escape(letter) for letter in text)
    return _RUNNER_COMMAND.sub(r"#\\x23", text)


def line(text: str) -> str:
    """The text on one line."""
    return " ".join(visible(text).split())


def shortened(text: str, *, letters: int, lines: int) -> str:
    """The text's beginning, and how much is left out."""
    kept = "\n".join(text[:letters].split("\n")[:lines])
    left_out = len(text) - len(kept)
    return f"{kept}…\n({left_out:,} more characters)" if left_out else kept


def plain(value: object) -> object:
    """The value as JSON can hold it: no token, no half a character, no number beyond, no depth without end."""
    return _plain(value, 0)


def compact(value: object) -> str:
    """JSON on one line, as people write it: ``{"env": "prod"}``."""
    return _written(value, indent=None)


def indented(value: object) -> str:
    """JSON over several lines."""
    return _written(value, indent=2)


def duration(seconds: float) -> str:
    """``12 ms``, ``1.3 s``, ``2 min 5 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def counted(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_harmless(letter: str) -> bool:
    if letter in _KEPT:
        return True
    return unicodedata.category(letter) not in _WRITTEN_OUT and letter not in _NO_CHARACTERS


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _written(value: object, *, indent: int | None) -> str:
    import json  # msgspec writes no number beyond 64 bits, and nothing with spaces

    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: object, depth: int) -> object:
    if depth > _DEEPEST:
        return "…"
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case str():
            return _whole(value)
        case Mapping():
            return {_whole(str(key)): _member(key, item, depth + 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, depth + 1) for item in value]
        case msgspec.Struct():
            return _plain(msgspec.to_builtins(value, enc_hook=str), depth)
        case _:
            return _whole(str(value))


def _member(key: object, value: object, depth: int) -> object:
    if key == _TOKEN and isinstance(value, str) and not _LENGTH.fullmatch(value):
        return f"<{len(value)} characters>"
    return _plain(value, depth)


def _whole(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
