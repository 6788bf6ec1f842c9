"""Calls that wait for a person, as rows in any store.

A row is one value, sealed, and changes only by the store's ``add(replacing=)``: of all people and processes that answer
it, one wins. A store cannot list its keys, so the ids of open rows stand in an index of a few values, which drops rows
that are over.
"""

import asyncio
import os
import re
import secrets
import time
import zlib
from base64 import b32encode
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from antiphon.errors import (
    AlreadyAnswered,
    CannotAnswer,
    NotAllowed,
    TicketExpired,
    TicketUnknown,
    TicketWithdrawn,
)
from antiphon.rounds.responses import checked
from antiphon.rounds.token import Seal, SealBroken, StateTooLarge, generate_key, parse_keys
from antiphon.stores.memory import MemoryStore
from antiphon.stores.store import Store, StoreError, Wait, following
from antiphon.types import JsonObject

KEEP = 7 * 86400.0
"""Seconds for which a row is kept after its end: so long its result can be got, and a late answer is told why."""
LONGEST = 10 * 366 * 86400.0
MAX_BYTES = 4 * 1024 * 1024
MAX_TEXT = 1000
"""Letters of a name."""
_SHARDS, _PER_SHARD = 32, 512
"""Values of the index, and open rows in each."""
_AT_ONCE = 64
_GLANCE = 15.0
"""Seconds after which a waiting row is read again, in case a message was lost."""
_SPARE = 60.0
_ID = re.compile(r"[A-Za-z0-9_-]{8,64}\Z")

Status: TypeAlias = Literal["waiting", "answered", "done", "expired", "withdrawn"]


class GivenAnswer(msgspec.Struct, frozen=True):
    """Who answered a round, and when."""

    round: int
    by: str
    at: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person, or did."""

    id: str
    """The ticket."""
    method: str
    name: str
    """The tool, prompt or resource that is called."""
    questions: JsonObject
    """The wire's ``inputRequests``."""
    until: float
    """When the time to answer is over, in seconds since the epoch."""
    since: float
    arguments: JsonObject = {}
    server: str = ""
    round: int = 1
    on_behalf: str | None = None
    """For whom the call runs."""
    who: str | None = None
    """The person or group that may answer; None: all that the page lets in."""
    status: Status = "waiting"
    answers: JsonObject | None = None
    """The wire's ``inputResponses``, checked."""
    given: tuple[GivenAnswer, ...] = ()
    """Who answered which round."""
    warning: str | None = None
    """What a person should know before answering."""
    payload: bytes = b""
    """What the owner of the row needs to go on."""
    result: bytes | None = None
    """What came of the call, for its owner."""

    @property
    def answered_by(self) -> str | None:
        """Who answered last."""
        return self.given[-1].by if self.given else None

    def permits(self, by: str, groups: Collection[str] = ()) -> bool:
        """Whether this person may answer, by name or by group."""
        return self.who is None or self.who == by or self.who in groups


class Rows:
    """The rows of one inbox. All processes that share its store and its keys see the same rows."""

    def __init__(
        self,
        store: Store,
        *,
        keys: str | bytes | Sequence[str | bytes] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self._clock = clock
        self._seal = Seal(_ring(keys, store), ttl=KEEP, max_bytes=MAX_BYTES)

    @property
    def now(self) -> float:
        return self._clock()

    async def add(self, row: Row, ttl: float | None = None) -> bool:
        """Keep a new row; False if there is one of that id.

        ``ttl`` is how long it is kept in all; default: until its end, and a week.
        """
        if not _ID.match(row.id):
            raise ValueError(f"the id of a row is 8 to 64 letters, digits, '-' and '_', not {row.id[:80]!r}")
        if not self.now < row.until < self.now + LONGEST:
            raise ValueError(f"a row needs an end in the next ten years, in seconds since the epoch, not {row.until!r}")
        sealed, seconds = self._sealed(row, ttl)
        await self._index(row.id, row.until)
        return await self.store.add(_key(row.id), sealed, ttl=seconds)

    async def get(self, id_: str) -> Row:
        """Return the row; raise TicketUnknown if there is none."""
        return (await self._held(id_))[1]

    async def waiting(self) -> list[Row]:
        """Return all rows that wait for an answer, the oldest first."""
        shards = await asyncio.gather(*(self.store.get(_shard(number)) for number in range(_SHARDS)))
        ids = [id_ for shard in shards for id_, until in _entries(shard).items() if until > self.now]
        rows: list[Row] = []
        for start in range(0, len(ids), _AT_ONCE):
            found = await asyncio.gather(*map(self._found, ids[start : start + _AT_ONCE]))
            rows += [row for row in found if row is not None]
        for row in rows:
            if row.status in {"done", "withdrawn"}:
                await self._index(row.id, None)  # its process ended before it did
        return sorted((row for row in rows if row.status == "waiting"), key=lambda row: (row.since, row.id))

    async def answer(
        self, id_: str, round_: int, responses: JsonObject, by: str, *, groups: Collection[str] = ()
    ) -> Row:
        """Record the answers to a round. Of all that answer it, one gets the row back.

        Raises CannotAnswer for an answer that does not fit its question, which leaves the row as it is; NotAllowed;
        AlreadyAnswered, TicketExpired, TicketWithdrawn or TicketUnknown for a row that takes no answer.
        """
        by = _short(by)
        while True:
            kept, row = await self._held(id_)
            if not row.permits(by, groups):
                raise NotAllowed(id_, str(row.who))
            _check_open(row, round_)
            answered = replace(
                row,
                status="answered",
                answers=checked_all(row.questions, responses),
                given=(*row.given, GivenAnswer(round_, by, self.now)),
            )
            if await self._swap(kept, answered):
                return answered

    async def replace(self, row: Row, *, after: int) -> bool:
        """Put the next round's questions in the place of an answered round; False if that is no longer there."""
        kept, held = await self._held(row.id)
        if (held.round, held.status) != (after, "answered"):
            return False
        await self._index(row.id, row.until)
        return await self._swap(kept, replace(row, status="waiting", answers=None, given=held.given))

    async def finish(self, id_: str, result: bytes) -> Row:
        """Record what came of the call; return the row with the result that counts, which is the first one."""
        while True:
            kept, row = await self._held(id_)
            if row.status == "done":
                return row
            done = replace(row, status="done", result=result, payload=b"", answers=None)
            if await self._swap(kept, done):
                await self._index(id_, None)
                return done

    async def withdraw(self, id_: str) -> None:
        """Take the question back; raise as `answer` does if it was answered, or is over."""
        while True:
            kept, row = await self._held(id_)
            _check_open(row, row.round)
            if await self._swap(kept, replace(row, status="withdrawn", payload=b"")):
                return await self._index(id_, None)

    async def forget(self, id_: str) -> None:
        """Remove a row, so that its id is free."""
        await self.store.take(_key(id_))
        await self._index(id_, None)
        await self.store.publish(_channel(id_), b"")

    def changes(self, id_: str) -> AbstractAsyncContextManager[Wait]:
        """Yield a function that waits some seconds for a change of the row."""
        return following(self.store, _channel(id_))

    async def settled(self, id_: str, seconds: float | None = None) -> Row:
        """Return the row once it does not wait for an answer any more, or as it is when the seconds are over."""
        end = inf if seconds is None else self.now + seconds
        row = await self.get(id_)
        if row.status != "waiting" or end <= self.now:
            return row
        async with self.changes(id_) as changed:
            while (row := await self.get(id_)).status == "waiting" and (left := min(end, row.until) - self.now) > 0:
                await changed(min(left, _GLANCE))
        return row

    def sealed(self, value: bytes, about: str) -> bytes:
        """Seal what belongs to a row but is kept elsewhere in the store."""
        return self._closed(value, about, KEEP)

    def opened(self, value: bytes, about: str) -> bytes:
        """Open what `sealed` made; StoreError if this inbox has other keys."""
        try:
            return self._seal.open(value.decode("ascii"), bound_to=_bound(about), now=self.now).payload
        except (SealBroken, UnicodeDecodeError) as fault:
            raise StoreError(
                f"what the store keeps for {about} cannot be opened ({fault}): give every process the keys with which"
                " it was sealed, in ANTIPHON_KEYS or as keys="
            ) from None

    def marks(self, value: bytes) -> list[str]:
        """Return what a value is found by in the store, which does not tell it; the first is to be written under."""
        return self._seal.marks(value)

    async def _held(self, id_: str) -> tuple[bytes, Row]:
        kept = await self.store.get(_key(id_)) if _ID.match(id_) else None
        if kept is None:
            raise TicketUnknown(id_[:80])
        row = msgspec.msgpack.decode(self.opened(kept, id_), type=Row)
        return kept, replace(row, status="expired") if row.status == "waiting" and row.until <= self.now else row

    async def _found(self, id_: str) -> Row | None:
        try:
            return await self.get(id_)
        except TicketUnknown:
            return None

    async def _swap(self, kept: bytes, row: Row) -> bool:
        sealed, seconds = self._sealed(row)
        if not await self.store.add(_key(row.id), sealed, ttl=seconds, replacing=kept):
            return False
        await self.store.publish(_channel(row.id), b"")
        return True

    def _sealed(self, row: Row, ttl: float | None = None) -> tuple[bytes, float]:
        seconds = max(row.until - self.now, 0) + KEEP if ttl is None else ttl
        return self._closed(msgspec.msgpack.encode(row), row.id, seconds + _SPARE), seconds

    def _closed(self, value: bytes, about: str, seconds: float) -> bytes:
        if len(value) > MAX_BYTES:  # before it is compressed: every reader has to inflate it
            raise StoreError(f"a call with {len(value):,} bytes of questions and arguments is too large for an inbox")
        try:
            return self._seal.seal(
                value, bound_to=_bound(about), now=self.now, ttl=seconds, entropy=os.urandom(12)
            ).encode()
        except StateTooLarge as fault:
            raise StoreError(f"a call is too large for an inbox: {fault}") from None

    async def _index(self, id_: str, until: float | None) -> None:
        """Enter a row into the index, or, without an end, drop it."""
        key = _shard(zlib.crc32(id_.encode()) % _SHARDS)
        while True:
            kept = await self.store.get(key)
            before = _entries(kept)
            after = {other: end for other, end in before.items() if end > self.now and other != id_}
            if until is None and id_ not in before:
                return
            if until is not None:
                if len(after) >= _PER_SHARD:
                    raise StoreError(f"the inbox is full: about {_SHARDS * _PER_SHARD:,} calls wait for an answer")
                after[id_] = until
            ttl = max(after.values(), default=self.now) - self.now + _SPARE
            if await self.store.add(key, msgspec.msgpack.encode(after), ttl=ttl, replacing=kept):
                return


def new_ticket() -> str:
    """Return an id that no other row has, easy to read and to type."""
    return b32encode(secrets.token_bytes(10)).decode().lower()


def checked_all(questions: JsonObject, responses: JsonObject) -> JsonObject:
    """Return the responses to all questions, checked; raise CannotAnswer for the first that is missing or unfit."""
    made: JsonObject = {}
    for key, request in questions.items():
        if key not in responses:
            raise CannotAnswer(f"There is no answer for {key!r}", key=key)
        try:
            made[key] = checked(request, responses[key])
        except ValueError as fault:
            raise CannotAnswer(f"The answer to {key!r} does not fit its question: {fault}", key=key) from None
    return made


def _check_open(row: Row, round_: int) -> None:
    if row.status == "withdrawn":
        raise TicketWithdrawn(row.id)
    if row.status == "expired":
        raise TicketExpired(row.id)
    if row.status != "waiting" or row.round != round_:
        first = [(one.by, one.at) for one in row.given if one.round == round_]
        raise AlreadyAnswered(row.id, *(first[0] if first else (None, None)))


def _ring(keys: str | bytes | Sequence[str | bytes] | None, store: Store) -> str | bytes | Sequence[str | bytes]:
    if keys:
        return keys
    if from_environment := os.environ.get("ANTIPHON_KEYS", "").strip():
        return parse_keys(from_environment)
    if isinstance(store, MemoryStore):
        return generate_key(os.urandom(32))
    raise ValueError(
        "an inbox seals what it keeps, and has no key: pass keys=, or set ANTIPHON_KEYS (`antiphon keygen` prints one)"
    )


def _entries(shard: bytes | None) -> dict[str, float]:
    return {} if shard is None else msgspec.msgpack.decode(shard, type=dict[str, float])


def _short(name: str) -> str:
    if not name or len(name) > MAX_TEXT:
        raise ValueError(f"who answers is a name of 1 to {MAX_TEXT} letters")
    return name


def _key(id_: str) -> str:
    return f"antiphon:inbox:row:{id_}"


def _shard(number: int) -> str:
    return f"antiphon:inbox:open:{number}"


def _channel(id_: str) -> str:
    return f"antiphon:inbox:{id_}"


def _bound(about: str) -> bytes:
    return b"antiphon inbox row " + about.encode()
