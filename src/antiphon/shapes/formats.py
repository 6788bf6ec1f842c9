"""The string formats the protocol's forms can ask for (client/elicitation, Requested Schema)."""

import datetime as dt
import re
from collections.abc import Callable
from typing import Literal, get_args
from urllib.parse import urlsplit

__all__ = ["FORMATS", "FormatName", "problem_with"]

FormatName = Literal["email", "uri", "date", "date-time"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u0080-\U0010ffff-]+"
_LABEL = r"[A-Za-z0-9\u0080-\U0010ffff](?:[A-Za-z0-9\u0080-\U0010ffff-]{0,61}[A-Za-z0-9\u0080-\U0010ffff])?"
# Plain texts, which `re` compiles when first used: the character classes cost 25 ms.
_EMAIL = rf"{_ATOM}(?:\.{_ATOM})*@{_LABEL}(?:\.{_LABEL})*"
_URI = r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})+"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE_TIME = r"[0-9-]{10}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"


def _is_email(text: str) -> bool:
    return len(text) <= 320 and re.fullmatch(_EMAIL, text) is not None


def _is_uri(text: str) -> bool:
    return re.fullmatch(_URI, text) is not None and bool(urlsplit(text).scheme)


def _is_date(text: str) -> bool:
    return re.fullmatch(_DATE, text) is not None and bool(dt.date.fromisoformat(text))


def _is_date_time(text: str) -> bool:
    return re.fullmatch(_DATE_TIME, text) is not None and bool(dt.datetime.fromisoformat(text.upper()))


_CHECKS: dict[FormatName, tuple[Callable[[str], bool], str]] = {
    "email": (_is_email, "an email address such as 'ada@example.com'"),
    "uri": (_is_uri, "an absolute URI such as 'https://example.com/page'"),
    "date": (_is_date, "a date such as '2026-07-28'"),
    "date-time": (_is_date_time, "a date-time with its offset such as '2026-07-28T09:30:00Z'"),
}


def problem_with(name: FormatName, text: str) -> str | None:
    """What is wrong with `text` as a value of this format, None when nothing is."""
    check, expected = _CHECKS[name]
    try:
        fits = check(text)
    except ValueError:  # the 30th of February, a bracket that never closes
        fits = False
    return None if fits else f"expected {expected}"
