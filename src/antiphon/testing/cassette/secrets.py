"""Secrets: which values never reach a file."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from antiphon.testing.cassette.volatile import Field, Place, Places, is_protocols, texts_in
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
    "secretKey",
    "secret_key",
    "accessToken",
    "access_token",
    "refreshToken",
    "refresh_token",
    "sessionToken",
    "session_token",
    "authToken",
    "auth_token",
    "bearerToken",
    "bearer_token",
    "idToken",
    "id_token",
    "privateKey",
    "private_key",
)
"""Fields whose values are secrets wherever they are; the case does not matter."""
LEAST: Final = 4
"""Letters that a secret has at least to be looked for in other texts as well."""
LONG: Final = 8
"""Letters from which on it is looked for whatever it is: shorter ones are there by chance."""
_DEPTH: Final = 2
"""How often a secret may have been written as a JSON string: a result as JSON text, and that within another one."""


class Redaction:
    """The secrets of a conversation: fields and headers by name, and whatever repeats their values."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        named = list(named)
        self._places = Places([*FIELDS, *named])
        self._headers = HEADERS | {name.lower() for name in named}
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._used: set[str] = set()
        self._values: dict[str, str] = {}

    def learn(self, message: JsonObject, headers: Mapping[str, str], key: str | None = None) -> None:
        """Remember the secrets of a message, so that they are found wherever else they are.

        ``key`` is that of the question which the message answers.
        """
        for place, value in self._found(message, key):
            self._remember(self._base(place, key), value)
        for text in texts_in(message):
            self.learn_text(text)
        for name, value in self.headers_in(headers).items():
            for base, part in header_secrets(name, value).items():
                self._remember(base, part)

    def learn_text(self, text: str, depth: int = _DEPTH) -> None:
        """Remember the secrets of a JSON text."""
        for field in self.fields(text):
            self._remember(field.name, field.value)
        if depth and '\\"' in text:
            for inner in _strings(text):
                self.learn_text(inner, depth - 1)

    def learn_value(self, name: str, value: object) -> None:
        self._remember(name, value)

    def places(self, message: JsonObject, key: str | None = None) -> Iterator[tuple[Place, str]]:
        """Where a message has secrets, and what they are called."""
        return ((place, self._named(self._base(place, key), str(value))) for place, value in self._found(message, key))

    def fields(self, text: str) -> Iterator[Field]:
        """Where a JSON text has secrets, and what they are called."""
        for field in self._places.find_in_text(text):
            if _is_secret(field.value):
                yield field._replace(name=self._named(_plain(field.name), str(field.value)))

    def headers_in(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The headers that are secrets."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._headers}

    def header(self, name: str, value: str) -> str:
        """A header's value as it may be written down."""
        return f"${{secret:{name.lower()}}}" if name.lower() in self._headers else value

    @property
    def values(self) -> dict[str, str]:
        """What is looked for in texts, in all its forms, with the names."""
        return self._values

    def _found(self, message: JsonObject, key: str | None) -> Iterator[tuple[Place, Any]]:
        for place, value in self._places.find(message, key):
            if _is_secret(value) and not _in_schema(place) and (place[-1] == "uri" or not is_protocols(place)):
                yield place, value

    def _base(self, place: Place, key: str | None) -> str:
        """A secret is called like its field, or like the question that it answers."""
        names = [step for step in place if isinstance(step, str)]
        if place[:2] == ("params", "inputResponses"):
            key = str(place[2])
        is_answer = key in self._places and names[-1] not in self._places
        return _plain(str(key) if is_answer else names[-1])

    def _named(self, base: str, text: str) -> str:
        """One name for one value: another value of the same field is ``password-2``."""
        if (base, text) not in self._names:
            number = self._counts[base] = self._counts.get(base, 0) + 1
            name = base if number == 1 else f"{base}-{number}"
            while name in self._used:
                name = f"{name}-2"
            self._used.add(name)
            self._names[base, text] = name
        return self._names[base, text]

    def _remember(self, base: str, value: object) -> None:
        text = str(value)
        name = self._named(_plain(base), text)
        if is_findable(text):
            for form in forms(text):
                self._values.setdefault(form, name)


def is_findable(secret: str) -> bool:
    """Whether a secret can be told from a text that happens to say the same: a short word cannot."""
    is_word = secret.isalpha() and secret in {secret.lower(), secret.upper(), secret.capitalize()}
    return len(secret) >= LONG or (len(secret) >= LEAST and not is_word)


def wherever(secret: str) -> str:
    """An expression that finds a secret; a short one as a whole word only."""
    return re.escape(secret) if len(secret) >= LONG else rf"(?<!\w){re.escape(secret)}(?!\w)"


def forms(text: str) -> list[str]:
    """A text as it is, and as it stands in JSON."""
    made = {text: None}
    for _ in range(_DEPTH):
        for each in list(made):
            made[json.dumps(each)[1:-1]] = made[json.dumps(each, ensure_ascii=False)[1:-1]] = None
    return list(made)


def header_secrets(name: str, value: str) -> dict[str, str]:
    """A header's value, and what of it is secret by itself: ``Bearer x``, ``a=x; b=y``."""
    made = {name.lower(): value}
    pieces = [piece for piece in re.split(r"[;,\s]+", value) if piece]
    if len(pieces) > 1 and "=" not in pieces[0].rstrip("="):
        pieces = pieces[1:]  # the scheme: Bearer, Basic
    for number, piece in enumerate(pieces, 1):
        known, sign, given = piece.partition("=")
        part = given.strip('"') if sign and given.strip("=") else piece
        suffix = _plain(known) if part is not piece else ("credentials" if number == 1 else f"credentials{number}")
        if part != value:
            made[f"{name.lower()}.{suffix}"] = part
    return made


def _strings(text: str) -> Iterator[str]:
    try:
        return texts_in(json.loads(text))
    except (ValueError, RecursionError):
        return iter(())


def _is_secret(value: object) -> bool:
    return (isinstance(value, str) and value != "") or type(value) in {int, float}


def _in_schema(place: Place) -> bool:
    """A schema says of a password that it is a string; that is no secret."""
    return not {"inputSchema", "outputSchema", "requestedSchema"}.isdisjoint(place)


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name) or "value"
