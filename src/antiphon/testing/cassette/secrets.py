"""Find the secrets of a conversation: fields and headers by name, and every text that repeats their values."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from antiphon.testing.cassette.placeholders import (
    Part,
    Place,
    Ref,
    inside,
    mapped,
    parts_of,
    places_of,
    split,
    texts_in,
    value_at,
    written,
)
from antiphon.testing.json_paths import JsonPath, read_path
from antiphon.types import JsonObject

HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
FIELDS: Final = (
    *("password", "passwd", "passphrase", "secret", "token", "authorization", "apiKey", "api_key", "api-key"),
    *("clientSecret", "client_secret", "secretKey", "secret_key", "privateKey", "private_key"),
    *("accessToken", "access_token", "refreshToken", "refresh_token", "sessionToken", "session_token"),
    *("authToken", "auth_token", "bearerToken", "bearer_token", "idToken", "id_token"),
)
"""Fields whose values are secrets wherever they are; the case does not matter."""
LEAST: Final = 4
"""Characters that a value must have to be looked for in other places as well."""
LONG: Final = 8
"""Characters from which on it is looked for whatever it is: shorter texts are equal by chance."""
_DEPTH: Final = 2
"""How often a secret may have been written as a JSON string: a result as JSON text, and that within another one."""
_SCHEMAS: Final = frozenset({"inputSchema", "outputSchema", "requestedSchema"})
"""Fields that only describe passwords."""
_WORDS: Final = frozenset(
    {"jsonrpc", "method", "type", "role", "mode", "action", "resultType", "mimeType", "protocolVersion", "level"}
    | {"cacheScope", "name", "uri", "uriTemplate", "supportedVersions", "required", "format", "$schema", "$ref"}
)
"""Fields that say which message it is, what it is about, and of what kind; not what it says."""


def is_protocols(place: Place) -> bool:
    """Return whether the protocol defines what a field says, or names things by it."""
    for step, below in pairwise(place):
        if step in {"structuredContent", "data"} or (step in {"arguments", "content"} and isinstance(below, str)):
            return False  # the user's own, whatever it is called
    return next((step for step in reversed(place) if isinstance(step, str)), None) in _WORDS


# --- fields by name or path ---------------------------------------------------------------------------------------

_QUESTIONS: Final = frozenset({("result", "inputRequests"), ("params", "inputResponses")})
"""Objects whose keys are the names of questions, not of fields."""
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},]|[^\s\[\]{},:"]+', re.DOTALL)


class FieldSelector:
    """Selects values by a path such as ``$.result.structuredContent.id``, or by the name of their field."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._paths: list[JsonPath] = []
        for text in texts:
            if text.startswith("$"):
                self._paths.append(read_path(text))
            elif text:
                self._names.add(text.lower())
            else:
                raise ValueError("a field's name, or a path that begins with $, cannot be empty")

    def __contains__(self, name: object) -> bool:
        """Return whether fields of this name are selected."""
        return isinstance(name, str) and name.lower() in self._names

    def find(self, message: JsonObject, key: str | None = None) -> dict[Place, Any]:
        """Return the scalars that are selected, and those within objects and lists that are.

        ``key`` is that of the question which the message answers.
        """
        answers: list[Place] = [("result",)] if key in self and "result" in message else []
        fields = [place for path in self._paths for place in places_of(path, message)]
        for place, _ in inside(message) if self._names else ():
            if place and place[-1] in self:
                (answers if place[:-1] in _QUESTIONS else fields).append(place)
        contents = [(*root, "content") for root in answers if _is_filled_in(value_at(message, root))]
        return {
            place: value
            for root in (*contents, *fields)
            for place, value in inside(value_at(message, root), root)
            if not isinstance(value, dict | list)
        }

    def find_in_text(self, text: str) -> Iterator[tuple[str, Any, int, int]]:
        """Yield the scalars of a JSON text that are selected by name: name, value, and where it is, without quotes."""
        if not text.lstrip().startswith(("{", "[")) or _parsed(text) is None:
            return
        steps: list[str | int | None] = []
        for token in _TOKEN.finditer(text):
            match token[0][0]:
                case "{":
                    steps.append(None)
                case "[":
                    steps.append(0)
                case "}" | "]":
                    steps.pop()
                case ",":
                    last = steps[-1]
                    steps[-1] = last + 1 if isinstance(last, int) else None
                case _ if steps[-1] is None:
                    steps[-1] = str(json.loads(token[0]))
                case first:
                    for name in [step for step in steps if isinstance(step, str) and step in self][-1:]:
                        quote = int(first == '"')
                        yield name, json.loads(token[0]), token.start() + quote, token.end() - quote


def _is_filled_in(answer: Any) -> bool:
    return isinstance(answer, dict) and "action" in answer and "content" in answer


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# --- secrets ------------------------------------------------------------------------------------------------------


class Redaction:
    """The secrets of a conversation, with one name for each value."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        named = list(named)
        self._selected = FieldSelector([*FIELDS, *named])
        self._headers = HEADERS | {name.lower() for name in named}
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._values: dict[str, Ref] = {}
        """What to look for in texts, in all its forms."""
        self._pattern: re.Pattern[str] | None = None

    def learn(self, message: JsonObject, headers: Mapping[str, str], key: str | None = None) -> None:
        """Remember the secrets of a message, to find them wherever else they are.

        ``key`` is that of the question which the message answers.
        """
        for place, value in self._found(message, key):
            self.learn_value(self._base(place, key), value)
        for text in texts_in(message):
            self.learn_text(text)
        for name, value in self.headers_in(headers).items():
            for base, part in header_secrets(name, value).items():
                self.learn_value(base, part)

    def learn_text(self, text: str, depth: int = _DEPTH) -> None:
        """Remember the secrets of a JSON text."""
        for name, value, _, _ in self._fields(text):
            self.learn_value(name, value)
        if depth and '\\"' in text:
            for inner in texts_in(_parsed(text)):
                self.learn_text(inner, depth - 1)

    def learn_value(self, base: str, value: object) -> None:
        """Remember a secret under a name."""
        text = str(value)
        ref = Ref("secret", self._named(_plain(base), text))
        if _is_findable(text):
            self.follow(forms(text), ref)

    def follow(self, texts: Iterable[str], ref: Ref) -> None:
        """Replace these from now on wherever they are, unless they stand for something else already."""
        self._values |= {text: ref for text in texts if text not in self._values}
        self._pattern = None

    def marks(self, message: JsonObject, key: str | None = None) -> dict[Place, Ref]:
        """Return where a message has secrets."""
        found = self._found(message, key)
        return {place: Ref("secret", self._named(self._base(place, key), str(value))) for place, value in found}

    def split(self, text: str, place: Place = ()) -> list[Part]:
        """Split a text at its secrets: the fields of JSON, and values that are followed."""
        parts: list[Part] = []
        at = 0
        for name, value, start, end in self._fields(text):
            parts += [text[at:start], Ref("secret", self._named(_plain(name), str(value)))]
            at = end
        if at < len(text) or not parts:
            parts.append(text[at:])
        if self._values and self._pattern is None:
            self._pattern = re.compile("|".join(map(_wherever, sorted(self._values, key=len, reverse=True))))

        def ref_of(found: str) -> Ref | None:
            # The protocol's own words are never secrets; a long secret within a URI is one.
            ref, is_part = self._values[found], place[-1:] == ("uri",) and len(found) >= LONG and found != text
            return None if ref.kind == "secret" and is_protocols(place) and not is_part else ref

        return parts if self._pattern is None else split(parts, self._pattern, ref_of)

    def masked(self, shown: Any, message: JsonObject, key: str | None = None) -> Any:
        """Return what is to be shown of a message without its secrets and those that are known."""
        self.learn(message, {}, key)
        marks = self.marks(message, key)

        def hidden(value: Any, place: Place) -> Any:
            if isinstance(value, str) and "${secret:" in value:
                return value  # it names a secret already
            if place in marks:
                return str(marks[place])
            if not isinstance(value, str):
                return value
            pieces = [[part] if isinstance(part, Ref) else self.split(part, place) for part in parts_of(value)]
            return written([part for piece in pieces for part in piece])

        return mapped(shown, hidden)

    def headers_in(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers that are secrets."""
        return {name.lower(): value for name, value in headers.items() if name.lower() in self._headers}

    def header_ref(self, name: str, value: str) -> Ref | None:
        """Return the placeholder of a header if it is a secret. One that mirrors an argument is that argument."""
        field = name.removeprefix("mcp-param-")
        if field != name and field in self._selected:
            return Ref("secret", self._named(_plain(field), value))
        return Ref("secret", name) if name in self._headers else None

    def _fields(self, text: str) -> Iterator[tuple[str, Any, int, int]]:
        return (field for field in self._selected.find_in_text(text) if _is_secret(field[1]))

    def _found(self, message: JsonObject, key: str | None) -> Iterator[tuple[Place, Any]]:
        for place, value in self._selected.find(message, key).items():
            is_name = is_protocols(place) and place[-1] != "uri"
            if _is_secret(value) and not is_name and _SCHEMAS.isdisjoint(place):
                yield place, value

    def _base(self, place: Place, key: str | None) -> str:
        """Return the name of a secret: that of its field, or of the question that it answers."""
        names = [step for step in place if isinstance(step, str)]
        if place[:2] == ("params", "inputResponses"):
            key = str(place[2])
        is_answer = key in self._selected and names[-1] not in self._selected
        return _plain(str(key) if is_answer else names[-1])

    def _named(self, base: str, text: str) -> str:
        """Return one name for one value: another value of the same field is ``password-2``."""
        if (base, text) not in self._names:
            number = self._counts[base] = self._counts.get(base, 0) + 1
            name = base if number == 1 else f"{base}-{number}"
            while name in self._names.values():
                name = f"{name}-2"
            self._names[base, text] = name
        return self._names[base, text]


def _wherever(text: str) -> str:
    """Return an expression that finds a text; a short one as a whole word only."""
    return re.escape(text) if len(text) >= LONG else rf"(?<!\w){re.escape(text)}(?!\w)"


def forms(text: str) -> list[str]:
    """Return a text as it is, and as it stands in JSON."""
    made = {text: None}
    for _ in range(_DEPTH):
        for each in list(made):
            made[json.dumps(each)[1:-1]] = made[json.dumps(each, ensure_ascii=False)[1:-1]] = None
    return list(made)


def header_secrets(name: str, value: str) -> dict[str, str]:
    """Return a header's value, and its parts that are secret by themselves: ``Bearer x``, ``a=x; b=y``."""
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


def _is_findable(secret: str) -> bool:
    """Return whether a secret can be told from a text that happens to say the same: a short word cannot."""
    is_word = secret.isalpha() and secret in {secret.lower(), secret.upper(), secret.capitalize()}
    return len(secret) >= LONG or (len(secret) >= LEAST and not is_word)


def _is_secret(value: object) -> bool:
    return (isinstance(value, str) and value != "") or type(value) in {int, float}


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name) or "value"
