"""Secrets: which values never reach a file."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from antiphon.testing.cassette.volatile import Place, Places
from antiphon.types import JsonObject

HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
FIELDS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "authorization",
    "apiKey",
    "api_key",
    "api-key",
    "clientSecret",
    "client_secret",
    "accessToken",
    "access_token",
    "refreshToken",
    "refresh_token",
    "idToken",
    "id_token",
    "privateKey",
    "private_key",
)
"""Fields whose values are secrets wherever they are; the case does not matter."""
LEAST: Final = 4
"""Letters that a secret has at least to be looked for in other texts as well."""
_WORDS: Final = frozenset(
    {"string", "number", "integer", "boolean", "object", "array", "null", "true", "false", "text", "form", "accept"}
)
"""Words of the protocol: whoever has one for a password has no secret."""


class Redaction:
    """The secrets of a conversation: fields and headers by name, and whatever repeats their values."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        named = list(named)
        self._places = Places([*FIELDS, *named])
        self._headers = HEADERS | {name.lower() for name in named}
        self._values: dict[str, str] = {}

    def learn(self, message: JsonObject, headers: Mapping[str, str]) -> None:
        """Remember the secrets of a message, so that they are found wherever else they are."""
        for place, value in self._found(message):
            self._remember(str(value), _name(place))
        for name, value in headers.items():
            if name.lower() in self._headers:
                for part in (value, *_pieces(value)):
                    self._remember(part, name.lower())

    def places(self, message: JsonObject) -> Iterator[tuple[Place, str]]:
        """Where a message has secrets, and what they are called."""
        return ((place, _name(place)) for place, _ in self._found(message))

    def header(self, name: str, value: str) -> str:
        """A header's value as it may be written down."""
        return f"${{secret:{name.lower()}}}" if name.lower() in self._headers else value

    @property
    def values(self) -> dict[str, str]:
        """Long secrets, with their names."""
        return self._values

    def _found(self, message: JsonObject) -> Iterator[tuple[Place, Any]]:
        for place, value in self._places.find(message):
            if ((isinstance(value, str) and value != "") or type(value) in {int, float}) and not _in_schema(place):
                yield place, value

    def _remember(self, value: str, name: str) -> None:
        if len(value) >= LEAST and value not in _WORDS:
            self._values.setdefault(value, name)


def _in_schema(place: Place) -> bool:
    """A schema says of a password that it is a string; that is no secret."""
    return not {"inputSchema", "outputSchema", "requestedSchema"}.isdisjoint(place)


def _name(place: Place) -> str:
    last = next((step for step in reversed(place) if isinstance(step, str)), "value")
    return re.sub(r"[^\w.-]", "_", last)


def _pieces(value: str) -> list[str]:
    """What a header's value is made of: ``Bearer x``, ``a=x; b=y``."""
    return [piece.partition("=")[2] or piece for piece in re.split(r"[;,\s]+", value) if piece]
