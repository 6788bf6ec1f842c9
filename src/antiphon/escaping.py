"""Make a server's text and data harmless: text that cannot steer a terminal, and data that is only JSON.

All that a report or a page shows passes through here. A token is shown by its length alone.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

_KEPT: Final = frozenset("\n\t\u200d")
"""Line ends, tabs, and the joiner of emoji."""
_ESCAPED: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_NOT_XML: Final = frozenset("\ufffe\uffff")
"""Not allowed in XML 1.0 (section 2.2)."""
_RUNNER_COMMAND: Final = re.compile(r"##(?=\[)")
"""GitHub's runner obeys ``##[command]`` wherever a line of the log holds it."""
_TOKEN: Final = "requestState"  # noqa: S105 -- the key, not a token
_LENGTH: Final = re.compile(r"<\d{1,9} characters>", re.ASCII)
"""What a transcript holds instead of a token."""
_DEEPEST: Final = 60


def visible(text: str) -> str:
    """Escape what moves a cursor, hides letters or commands a CI runner."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(letter if _is_harmless(letter) else _escape(letter) for letter in text)
    return _RUNNER_COMMAND.sub(r"#\\x23", text)


def visible_json(value: object, *, indent: int = 2) -> str:
    """Return a value as JSON that any parser reads, with escapes for what `visible` escapes; indent -1: on one line."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=indent).decode()
    if not text.isascii() or "\x7f" in text:
        text = "".join(letter if _is_harmless(letter) else _json_escape(letter) for letter in text)
    return _RUNNER_COMMAND.sub(r"#\\u0023", text)


def line(text: str) -> str:
    """Return the text on one line, harmless."""
    return " ".join(visible(text).split())


def shortened(text: str, *, letters: int, lines: int) -> str:
    """Return the text's beginning, and how much is left out."""
    kept = "\n".join(text[:letters].split("\n")[:lines])
    left_out = len(text) - len(kept)
    return f"{kept}…\n({left_out:,} more characters)" if left_out else kept


def plain(value: object) -> object:
    """Return the value as JSON can hold it: without tokens, lone surrogates, infinite numbers or endless depth."""
    return _plain(value, 0)


def compact(value: object) -> str:
    """Return JSON on one line, as people write it: ``{"env": "prod"}``."""
    return _dumped(value, indent=None)


def indented(value: object) -> str:
    """Return JSON over several lines."""
    return _dumped(value, indent=2)


def fitted(value: object, letters: int) -> str:
    """Return JSON on one line if it fits, else over several."""
    text = compact(value)
    return text if len(text) <= letters else indented(value)


def duration(seconds: float) -> str:
    """Return ``12 ms``, ``1.3 s`` or ``2 min 5 s``."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def moment(seconds: float) -> str:
    """Return a time in seconds since the epoch as ``2026-07-28 09:30 UTC``."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def counted(number: int, noun: str) -> str:
    """Return ``1 round`` or ``2 rounds``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_harmless(letter: str) -> bool:
    return letter in _KEPT or (unicodedata.category(letter) not in _ESCAPED and letter not in _NOT_XML)


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))


def _dumped(value: object, *, indent: int | None) -> str:
    # msgspec writes no number beyond 64 bits, and no spaces.
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
            return _encodable(value)
        case Mapping():
            return {_encodable(str(key)): _member(key, item, depth + 1) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item, depth + 1) for item in value]
        case msgspec.Struct():
            return _plain(msgspec.to_builtins(value, enc_hook=str), depth)
        case _:
            return _encodable(str(value))


def _member(key: object, value: object, depth: int) -> object:
    if key == _TOKEN and isinstance(value, str) and not _LENGTH.fullmatch(value):
        return f"<{len(value)} characters>"
    return _plain(value, depth)


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
