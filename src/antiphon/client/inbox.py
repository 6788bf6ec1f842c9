"""The Inbox: calls that wait for a person, put here today and taken up by any process tomorrow."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from copy import copy
from datetime import UTC, datetime, timedelta
from typing import Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from antiphon.client.results import Address, Complete, Pending, Result, read_result
from antiphon.errors import (
    CallTimeout,
    CannotAnswer,
    Disconnected,
    Refused,
    RoundsExceeded,
    TicketClosed,
    TicketExpired,
    TicketWithdrawn,
)
from antiphon.inbox.notify import Notice, Notify
from antiphon.inbox.page import Identify, Page
from antiphon.inbox.rows import KEEP, Row, Rows, new_ticket
from antiphon.rounds.client_loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.stores.shared_steps import SharedSteps
from antiphon.stores.store import Store
from antiphon.types import Implementation, JsonObject
from antiphon.wire.revisions import METHODS

log = logging.getLogger("antiphon")

_CLIENTS = 10_000
"""Tickets whose client is remembered."""
_NOT_FINAL = {401, 403, 408, 425, 429}
"""HTTP statuses that another login or attempt may change."""


class Resumer(Protocol):
    """What an inbox needs of a client."""

    @property
    def server(self) -> Implementation | None: ...
    @property
    def address(self) -> Address | None: ...
    @property
    def is_open(self) -> bool: ...

    async def resume(self, pending: Pending, answers: Mapping[str, object] | None = None) -> Complete | Pending: ...
    async def own_answers(self, pending: Pending) -> JsonObject: ...


Target: TypeAlias = str | list[str] | None
Connect: TypeAlias = Callable[[Target], AbstractAsyncContextManager[Resumer]]
"""Makes a client for a recorded URL or command; None where the call was made to a server in its own process."""


class _Parked(msgspec.Struct, frozen=True):
    """The payload of a row: how to go on."""

    pending: Pending
    known: JsonObject
    """Answers to some of the questions that the client's handlers gave."""
    address: Address | None
    seconds: float
    """The time to answer each round."""


class _Fault(msgspec.Struct, frozen=True):
    message: str
    code: int | None = None
    data: object = None
    status: int | None = None
    rounds: int | None = None
    """Of RoundsExceeded."""


class _Outcome(msgspec.Struct, frozen=True):
    """What came of a leg: the next round, a result, or a refusal."""

    next: Pending | None = None
    known: JsonObject = {}
    result: JsonObject | None = None
    fault: _Fault | None = None


class Inbox:
    """Calls that wait for a person, in a store that any number of processes share.

    ``notify`` is a webhook's URL or a function of the row. ``page`` is the URL at which ``asgi()`` is served. ``keys``
    seal what is kept; default: ANTIPHON_KEYS. ``connect`` makes a client for a recorded target, where the server wants
    a login. ``who`` may answer, and has the time ``until``, unless a call says otherwise. ``patience`` is for a server
    that asks here: the seconds for which a call that is made again waits for its answer. With ``always``, such a server
    asks here even if the client shows forms.
    """

    def __init__(
        self,
        store: Store,
        *,
        notify: Notify | None = None,
        page: str | None = None,
        keys: str | bytes | Sequence[str | bytes] | None = None,
        connect: Connect | None = None,
        who: str | None = None,
        until: timedelta | datetime = timedelta(days=1),
        patience: float = 20,
        always: bool = False,
    ) -> None:
        self.rows = Rows(store, keys=keys)
        self.notice = Notice(notify, page=page)
        self.page = page
        self.patience = patience
        self.always = always
        self._connect = connect
        self.who = who
        """Who may answer, if that was said."""
        self.until = until
        self.on_behalf: str | None = None
        self._steps = SharedSteps(store, KEEP)
        self._clients: WeakValueDictionary[str, Resumer] = WeakValueDictionary()

    # --- for a server whose clients cannot be asked -----------------------------------------------------------------

    is_local = False
    """Whether the person who answers sits at this machine."""

    @property
    def lasts(self) -> float:
        """The time to answer, in seconds."""
        return _seconds(self.until)

    def address(self, ticket: str) -> str | None:
        """Where a row can be answered; None if there is no page."""
        return self.notice.address(ticket)

    async def tell(self, row: Row) -> None:
        """Tell people of a row."""
        await self.notice.tell(row)

    async def close(self) -> None:
        """Nothing is held open: the store is its owner's to close."""

    def to(
        self, who: str | None = None, *, on_behalf: str | None = None, until: timedelta | datetime | None = None
    ) -> "Inbox":
        """Return the same inbox with other defaults: ``Client(url, inbox=inbox.to("finance", on_behalf="ada"))``."""
        made = copy(self)
        made.who = self.who if who is None else who
        made.on_behalf = self.on_behalf if on_behalf is None else on_behalf
        made.until = self.until if until is None else until
        return made

    def asgi(self, *, principal: Identify, hosts: Collection[str] = ()) -> Page:
        """The page that lists and answers what waits, as an ASGI application to be served or mounted anywhere.

        ``principal`` is a function of the ASGI scope that says who is signed in: a name, a name and groups in a list,
        or None. ``hosts`` are those under which it is served, beside that of ``page`` and this machine's own.
        """
        return Page(self.rows, principal=principal, page=self.page, hosts=hosts)

    # --- calls ----------------------------------------------------------------------------------------------------

    async def put(
        self,
        client: Resumer,
        pending: Pending,
        *,
        who: str | None = None,
        until: timedelta | datetime | None = None,
        on_behalf: str | None = None,
        known: JsonObject | None = None,
    ) -> str:
        """Keep a call that waits; return its ticket. ``known`` are raw responses that need no person."""
        if not set(pending.questions) - set(known or ()):
            raise ValueError("This call waits for no person: go on with client.resume(pending, answers)")
        parked = _Parked(pending, known or {}, client.address, _seconds(self.until if until is None else until))
        row = self._asking(self._new(client, who, on_behalf), parked)
        await self._add(row)
        while len(self._clients) >= _CLIENTS:
            self._clients.popitem()
        self._clients[row.id] = client
        return row.id

    async def result(self, ticket: str, *, timeout: float | None = None) -> Result:
        """Wait for the answers, go on with the call, and return its result, which is the same for all that ask.

        Raises what the call raises; TicketExpired, TicketWithdrawn or TicketUnknown; CallTimeout after ``timeout``
        seconds, which leaves the call waiting.
        """
        try:
            async with asyncio.timeout(timeout):
                while (row := await self.rows.settled(ticket)).status == "answered":
                    await self._go_on(row)
        except TimeoutError:
            assert timeout is not None
            raise CallTimeout("person", timeout) from None
        if row.status == "withdrawn":
            raise TicketWithdrawn(ticket)
        if row.status != "done" or row.result is None:
            raise TicketExpired(ticket)
        return _result(row)

    async def ask(self, client: Resumer, pending: Pending) -> JsonObject:
        """Put questions here, and wait for their answers in place: an older server keeps the call open meanwhile."""
        parked = _Parked(pending, {}, None, _seconds(self.until))
        row = replace(self._asking(self._new(client, None, None), parked), payload=b"")
        ticket = row.id
        await self._add(row)
        try:
            row = await self.rows.settled(ticket)
        except BaseException:
            with suppress(TicketClosed):
                await self.rows.withdraw(ticket)
            raise
        if row.answers is None:
            raise CannotAnswer(f"The questions in the inbox were not answered in time ({ticket})", key="")
        await self.rows.finish(ticket, b"")
        return row.answers

    # --- people ---------------------------------------------------------------------------------------------------

    async def waiting(self) -> list[Row]:
        """Return all calls that wait for an answer, the oldest first."""
        return await self.rows.waiting()

    async def answer(self, ticket: str, answers: Mapping[str, object], *, by: str, groups: Collection[str] = ()) -> Row:
        """Answer the questions of a call, as ``Client.resume`` takes them; raise as `Rows.answer` does."""
        from antiphon.client.calls import responses_of  # which needs the whole client

        row = await self.rows.get(ticket)
        responses = responses_of(row.questions, answers)
        return await self.rows.answer(ticket, row.round, responses, by, groups=groups)

    async def withdraw(self, ticket: str) -> None:
        """Take a question back."""
        await self.rows.withdraw(ticket)

    # --- going on -------------------------------------------------------------------------------------------------

    async def _go_on(self, row: Row) -> None:
        """Go on with an answered call. Of all processes that try, one does, and all see what came of it."""
        about = f"{row.id} after round {row.round}"
        kept = await self._steps.once(
            f"inbox:{row.id}:{row.round}", lambda: self._leg(row, about), KEEP, label=f"inbox {row.name}"
        )
        outcome = msgspec.json.decode(self.rows.opened(kept, about), type=_Outcome)
        if outcome.next is None:
            await self.rows.finish(row.id, msgspec.json.encode(outcome))
            return
        parked = replace(_parked(row), pending=outcome.next, known=outcome.known)
        following = self._asking(row, parked)
        if await self.rows.replace(following, after=row.round):
            await self.tell(following)

    async def _leg(self, row: Row, about: str) -> bytes:
        parked = _parked(row)
        async with self._client_for(row.id, parked.address) as client:
            outcome = await _advanced(client, parked, row.answers or {})
        return self.rows.sealed(msgspec.json.encode(outcome), about)

    @asynccontextmanager
    async def _client_for(self, ticket: str, address: Address | None) -> AsyncGenerator[Resumer]:
        """The client that put the call here, while it is open; else another one to the same server."""
        here = self._clients.get(ticket)
        if here is not None and here.is_open:
            yield here
            return
        target = None if address is None else address.target
        if self._connect is not None:
            made = self._connect(target)
        elif address is None:
            raise Disconnected(
                "The client that put this call into the inbox is closed, and its server was in its own process:"
                " pass connect= to the Inbox, a function that makes a client for it"
            )
        elif address.private:
            raise Disconnected(
                f"The call was made to {address.target!r} with headers, a login or variables, which an inbox does not"
                " keep: pass connect= to the Inbox, a function of the target that makes a client with them"
            )
        else:
            from antiphon.client.client import Client  # only a process without the client needs one

            made = Client(address.target, cwd=address.cwd, inbox=self)
        async with made as client:
            yield client

    # --- rows -----------------------------------------------------------------------------------------------------

    def _new(self, client: Resumer, who: str | None, on_behalf: str | None) -> Row:
        return Row(
            id=new_ticket(),
            method="",
            name="",
            questions={},
            since=self.rows.now,
            until=0,
            server=_server_name(client),
            on_behalf=self.on_behalf if on_behalf is None else on_behalf,
            who=self.who if who is None else who,
        )

    async def _add(self, row: Row) -> None:
        if row.warning:
            log.warning("the call %s waits in the inbox: %s", row.id, row.warning)
        await self.rows.add(row)
        await self.tell(row)

    def _asking(self, row: Row, parked: _Parked) -> Row:
        """Return the row as it waits for the answers to a round."""
        pending, now = parked.pending, self.rows.now
        until, warning = now + parked.seconds, None
        if pending.expires is not None and pending.expires < until:
            until = max(pending.expires, now + 1)
            end = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            warning = (
                f"The server keeps its question only until {end}, which is before the deadline that was asked for. Give"
                " the question a longer ttl=, or the server Seal(ttl=...)."
            )
        target = METHODS[pending.method].target or ""
        return replace(
            row,
            method=pending.method,
            name=str(pending.params.get(target, "")),
            arguments=pending.params.get("arguments") or {},
            questions={key: asked for key, asked in pending.questions.items() if key not in parked.known},
            round=pending.round,
            until=until,
            status="waiting",
            answers=None,
            warning=warning,
            payload=msgspec.msgpack.encode(parked),
        )


def _seconds(until: timedelta | datetime) -> float:
    seconds = (until if isinstance(until, timedelta) else until - datetime.now(until.tzinfo)).total_seconds()
    if seconds <= 0:
        raise ValueError(f"until is in the past: {until}")
    return seconds


async def _advanced(client: Resumer, parked: _Parked, answers: JsonObject) -> _Outcome:
    """Go on until the call is done, is refused, or asks what the client's handlers do not answer."""
    pending, pause = parked.pending, FIRST_PAUSE
    responses = {**parked.known, **answers}
    while True:
        try:
            outcome = await client.resume(pending, responses)
        except RoundsExceeded as fault:
            return _Outcome(fault=_Fault(str(fault), rounds=fault.rounds))
        except Refused as fault:
            if fault.code is None or fault.status in _NOT_FINAL or (fault.status or 0) >= 500:
                raise  # and the next attempt may succeed
            return _Outcome(fault=_Fault(str(fault), fault.code, fault.data, fault.status))
        if isinstance(outcome, Complete):
            return _Outcome(result=cast("JsonObject", msgspec.to_builtins(outcome.result)))
        pending = outcome
        if pending.questions:
            pause = FIRST_PAUSE
            responses = await client.own_answers(pending)
            if set(pending.questions) - set(responses):
                return _Outcome(next=pending, known=responses)
        else:
            responses = {}
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)


def _parked(row: Row) -> _Parked:
    try:
        return msgspec.msgpack.decode(row.payload, type=_Parked)
    except msgspec.MsgspecError:
        raise _not_here(row) from None


def _not_here(row: Row) -> TicketClosed:
    return TicketClosed("This call waits where it was made, and its result goes there", ticket=row.id)


def _result(row: Row) -> Result:
    try:
        outcome = msgspec.json.decode(row.result or b"", type=_Outcome)
    except msgspec.MsgspecError:
        raise _not_here(row) from None
    fault = outcome.fault
    if fault is not None:
        if fault.rounds is not None:
            raise RoundsExceeded(fault.rounds)
        raise Refused(fault.message, code=fault.code, data=fault.data, status=fault.status)
    assert outcome.result is not None
    return read_result(row.method, outcome.result, int(outcome.result["rounds"]))


def _server_name(client: Resumer) -> str:
    if client.server is not None:
        return client.server.title or client.server.name
    address = client.address
    if address is None:
        return ""
    return address.target if isinstance(address.target, str) else address.target[0]
