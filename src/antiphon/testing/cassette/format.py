"""The format of a cassette: a recorded conversation as a value and as a file."""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from antiphon.errors import AntiphonError
from antiphon.testing.cassette.placeholders import (
    KINDS,
    MAX_DEPTH,
    WITHOUT_NUMBER,
    is_too_deep,
    params_of,
    refs_in,
)
from antiphon.types import JsonObject

VERSION: Final = 1
SCHEMA: Final = Path(__file__).with_name("schema.json")
"""The JSON Schema of the file, for editors and for other programs."""


class CassetteBroken(AntiphonError):
    """The file is no cassette, or cannot be read or written: says which, where and why."""


class Party(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A client: what every one of its requests repeats is written here, once."""

    meta: JsonObject = {}
    """The ``_meta`` that the protocol reserves: revision, name and capabilities of the client."""
    headers: dict[str, str] = {}


class CassetteTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One message of the client or of the server, without its ``jsonrpc``."""

    party: int | None = msgspec.field(name="as", default=None)
    """The number of the client that sent it, from 1."""
    client: JsonObject | None = None
    server: JsonObject | None = None
    headers: dict[str, str] = {}
    status: int | None = None
    """The HTTP status, where it was not 200."""

    @property
    def message(self) -> JsonObject:
        """The message, of whichever side it is."""
        return self.client or self.server or {}


class CassetteEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One exchange, all its rounds: a message of the client with what belongs to it.

    What the server sent on its own stands in the entry that the client had begun last.
    """

    turns: list[CassetteTurn]

    @property
    def title(self) -> str:
        """A few words to recognise the entry by."""
        return title_of(self.turns[0].message)


class Cassette(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A recorded conversation: ``Cassette.load(path)``, ``cassette.save(path)``."""

    version: int = msgspec.field(name="antiphon-cassette")
    revision: str | None = None
    """The older revision that a Client's link spoke; the messages are those of the newest one all the same."""
    clients: list[Party] = []
    entries: list[CassetteEntry]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Cassette":
        """Read a file; raise CassetteBroken with the place if it is no cassette."""
        try:
            data = Path(path).read_bytes()
        except OSError as fault:
            raise CassetteBroken(f"{os.fspath(path)}: cannot be read: {fault.strerror}") from None
        return cls.from_json(data, name=os.fspath(path))

    @classmethod
    def from_json(cls, data: str | bytes, *, name: str = "cassette") -> "Cassette":
        """Read the text of a file; ``name`` is what errors call it."""
        plain = _parsed(data, name)
        try:
            cassette = msgspec.convert(plain, cls)
        except msgspec.ValidationError as fault:
            raise CassetteBroken(f"{name}: {_placed(fault)}") from None
        _check(cassette, name)
        return cassette

    @property
    def is_old(self) -> bool:
        """Whether the server was of an older revision, which begins with ``initialize``."""
        openings = [entry for entry in self.entries if entry.turns[0].message.get("method") == "initialize"]
        return any("result" in turn.message for entry in openings for turn in entry.turns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file in one piece: a reader sees the old one or the new one."""
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = file.with_name(f".{file.name}.{os.getpid()}")
            draft.write_text(self.to_json(), encoding="utf-8", newline="\n")
            draft.replace(file)
        except OSError as fault:
            raise CassetteBroken(f"{file}: cannot be written: {fault.strerror}") from None

    def to_json(self) -> str:
        """Return the text of the file, indented. Messages keep the order of their fields on the wire.

        A server may show that order, for example where it repeats its arguments as JSON text.
        """
        return json.dumps(msgspec.to_builtins(self), indent=2, ensure_ascii=False) + "\n"


def title_of(message: JsonObject) -> str:
    """Return a few words to recognise a message by: ``tools/call deploy``."""
    params = params_of(message)
    target = params.get("name", params.get("uri"))
    method = str(message.get("method") or "an answer")
    return f"{method} {target}" if isinstance(target, str) else method


def _parsed(data: str | bytes, name: str) -> JsonObject:
    try:
        plain: Any = json.loads(data)
    except UnicodeDecodeError as fault:
        raise CassetteBroken(f"{name}: not UTF-8 at byte {fault.start}") from None
    except json.JSONDecodeError as fault:
        raise CassetteBroken(f"{name}:{fault.lineno}:{fault.colno}: not JSON: {fault.msg}") from None
    except RecursionError:
        raise CassetteBroken(f"{name}: nested too deep") from None
    if is_too_deep(plain, MAX_DEPTH + 10):
        raise CassetteBroken(f"{name}: nested too deep")
    version = plain.get("antiphon-cassette") if isinstance(plain, dict) else None
    if not isinstance(plain, dict) or type(version) is not int:
        raise CassetteBroken(f'{name}: not a cassette: it does not say "antiphon-cassette": {VERSION}')
    if version != VERSION:
        update = "update antiphon, or " if version > VERSION else ""
        raise CassetteBroken(
            f"{name}: a cassette of version {version}, and this program knows version {VERSION}: {update}record again"
        )
    return plain


def _placed(fault: msgspec.ValidationError) -> str:
    """Return msgspec's error with the place in front: ``entries[2].turns[0]: ...``."""
    told, _, place = str(fault).partition(" - at `$")
    return f"{place.removeprefix('.').removesuffix('`') or 'the cassette'}: {told}"


def _check(cassette: Cassette, name: str) -> None:
    """Check what types cannot say."""
    for number, party in enumerate(cassette.clients):
        problem = _unknown([party.meta, party.headers], cassette)
        if problem is not None:
            raise CassetteBroken(f"{name}: clients[{number}]: {problem}")
    for number, entry in enumerate(cassette.entries):
        if not entry.turns:
            raise CassetteBroken(f"{name}: entries[{number}].turns: an entry has at least one turn")
        for index, turn in enumerate(entry.turns):
            problem = _problem(turn, cassette)
            if index == 0 and turn.client is None:
                problem = problem or "an entry begins with a message of the client"
            if problem is not None:
                raise CassetteBroken(f"{name}: entries[{number}].turns[{index}]: {problem}")


def _problem(turn: CassetteTurn, cassette: Cassette) -> str | None:
    if turn.client is not None and turn.server is not None:
        return "a turn is either the client's or the server's"
    if turn.client is None and turn.server is None:
        return "a turn needs a message: client or server"
    if turn.party is not None and not 0 < turn.party <= len(cassette.clients):
        return f"as: there is no client {turn.party}"
    return _unknown([turn.message, turn.headers], cassette)


def _unknown(value: Any, cassette: Cassette) -> str | None:
    """Return what is wrong with the first placeholder that makes no sense."""
    for ref in refs_in(value):
        if ref.kind not in KINDS:
            return f"{ref} is no placeholder that is known; a text that says so is written ${{$}}{str(ref)[1:]}"
        if ref.kind not in WITHOUT_NUMBER and not re.fullmatch(r"[1-9]\d{0,8}", ref.name):
            return f"{ref} needs a number, as in ${{{ref.kind}:1}}"
        if ref.entry is not None and not 0 < ref.entry <= len(cassette.entries):
            return f"{ref}: there is no entry {ref.entry}"
    return None
