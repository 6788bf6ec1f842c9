"""WWW-Authenticate, read and written by its grammar (RFC 9110, 11.2 to 11.6.1)."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf"({_WORD})[ \t]*=[ \t]*(?:({_WORD})|\"((?:[^\"\\]|\\.)*)\")[ \t]*(?=,|$)")
_SCHEME: Final = re.compile(rf"({_WORD})(?:[ \t]+|(?=,|$))")
_SINGLE: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*[ \t]*(?=,|$)")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_MOST: Final = 16 * 1024
"""Characters of a header that are read; the rest is ignored."""


class Challenge(NamedTuple):
    """One way to authenticate that a server offers: its scheme in lower case, and its parameters."""

    scheme: str
    parameters: Mapping[str, str]

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that the request needs; None if the challenge names none."""
        return scopes_in(self.parameters.get("scope"))

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")


def read_challenges(header: str) -> list[Challenge]:
    """Return the challenges of a header, joined from all its lines; what breaks the grammar ends the list."""
    found: list[Challenge] = []
    text, at = header[:_MOST], 0
    while (at := _end(_BETWEEN, text, at)) < len(text):
        scheme = _SCHEME.match(text, at)
        if scheme is None:
            break
        parameters: dict[str, str] = {}
        at = scheme.end()
        single = None if _PARAMETER.match(text, at) else _SINGLE.match(text, at)
        if single is not None:
            at = single.end()
        while (parameter := _PARAMETER.match(text, _end(_BETWEEN, text, at))) is not None:
            name, plain, quoted = parameter.groups()
            # The first of two equal names counts, so that nothing can be added behind.
            parameters.setdefault(name.lower(), plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
            at = parameter.end()
        found.append(Challenge(scheme[1].lower(), parameters))
    return found


def challenge_of(header: str | None, scheme: str | None = None) -> Challenge | None:
    """Return the challenge to follow: the one of this scheme, else the first of DPoP and Bearer; None if neither is."""
    known = [challenge for challenge in read_challenges(header or "") if challenge.scheme in {"bearer", "dpop"}]
    same = [challenge for challenge in known if scheme is not None and challenge.scheme == scheme.lower()]
    return next(iter([*same, *known]), None)


def write_challenge(scheme: str, parameters: Mapping[str, str]) -> str:
    """Return a challenge as a header's value; ValueError for a value that no header can carry."""
    made: list[str] = []
    for name, value in parameters.items():
        if not value.isprintable() or not value.isascii():
            raise ValueError(f"A challenge's {name} must be printable ASCII, got {value!r}")
        made.append('{}="{}"'.format(name, re.sub(r'(["\\])', r"\\\1", value)))
    return f"{scheme} {', '.join(made)}" if made else scheme


def scopes_in(text: str | None) -> tuple[str, ...] | None:
    """Return the scopes of a space-separated list, each once; None if there are none."""
    return None if text is None else tuple(dict.fromkeys(text.split())) or None


def union(*scopes: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return all scopes, each once, in the order of their first appearance; None if none are known."""
    known = [each for each in scopes if each is not None]
    return tuple(dict.fromkeys(scope for each in known for scope in each)) if known else None


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()
