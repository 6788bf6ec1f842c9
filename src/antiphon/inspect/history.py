"""The history: calls of this run and of earlier ones, in a file that only the user can read, without secrets."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from antiphon.client.keeps import File
from antiphon.errors import AntiphonError
from antiphon.escaping import compact
from antiphon.testing.cassette.secrets import FIELDS
from antiphon.types import JsonObject

PAST: Final = "This call was made before antiphon inspect was started: make it again"
_MOST_CALLS: Final = 50
_MOST_CHARACTERS: Final = 8 * 1024 * 1024
_SECRETS: Final = frozenset(name.lower() for name in FIELDS)


class PastCall(msgspec.Struct, frozen=True):
    """A call that is over, as the page saw it."""

    summary: JsonObject
    call: JsonObject


class History:
    """The calls to one server. ``keep`` is where they are written; None: nowhere."""

    def __init__(self, keep: File | None, server: str) -> None:
        self._keep = keep
        self._server = server
        self.past: dict[str, PastCall] = {}
        """The calls of earlier runs, by id."""
        self._written: dict[str, str] = {}
        """All calls as they are written, by id, the oldest first."""

    async def recall(self) -> int:
        """Read the calls of earlier runs; return the number of the last one."""
        if self._keep is not None:
            with suppress(AntiphonError, msgspec.MsgspecError, KeyError, RecursionError):
                found = msgspec.json.decode(await self._keep.get(self._server) or "[]", type=list[PastCall])
                self.past = {past.summary["id"]: past for past in found[-_MOST_CALLS:]}
        self._written = {id_: compact(past) for id_, past in self.past.items()}
        numbers = (id_.removeprefix("c") for id_ in self.past)
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def add(self, call: PastCall) -> None:
        """Take a call that is over, in place of what was known of it; the oldest calls go, if they are too many."""
        if self._keep is None:
            return
        self._written[call.summary["id"]] = compact(_without_secrets(msgspec.to_builtins(call)))
        while len(self._written) > _MOST_CALLS or sum(map(len, self._written.values())) > _MOST_CHARACTERS:
            del self._written[next(iter(self._written))]

    def drop(self, id_: str) -> bool:
        """Forget a call; return whether it was of an earlier run."""
        self._written.pop(id_, None)
        return self.past.pop(id_, None) is not None

    async def save(self) -> None:
        if self._keep is not None:
            with suppress(AntiphonError, OSError):
                await self._keep.put(self._server, f"[{','.join(self._written.values())}]")


def is_secret(name: object) -> bool:
    """Return whether a field is named like one that holds a secret."""
    return str(name).lower() in _SECRETS


def _without_secrets(value: Any, name: str = "") -> Any:
    """Return what may be written down: no token, and no value of a field that is named like a secret."""
    if name == "token" and isinstance(value, dict) and "max_bytes" in value:
        return {**_without_secrets(value), "text": ""}
    if name == "can" and isinstance(value, dict):
        return dict.fromkeys(value, PAST) | {"fork": dict.fromkeys(value.get("fork", ()), PAST)}
    if isinstance(value, str) and is_secret(name):
        return "[blanked]"
    if isinstance(value, dict):
        return {key: _without_secrets(item, key) for key, item in value.items()}
    return [_without_secrets(item, name) for item in value] if isinstance(value, list) else value
