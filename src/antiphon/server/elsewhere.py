"""Asking people whom the client cannot ask: their questions stand in rows of an inbox, and the same call goes on.

A handler that asks what its client cannot show ends its round, as with any question. The round is parked: a row holds
its questions for a person, and its journal for the server. The store finds the row by a keyed digest of the call and
the caller, so the same call by the same principal goes on from there, at any instance, and no other call does.

* While no answer is there, the call is told to come again. The handler does not run.
* An answered round is run once. A request claims it, and renews the claim while the handler runs; a mark that stays
  keeps all others away. If the request that has the claim dies, the answers are spent: the person is asked anew.
* What came of the call is kept for `AGAIN` seconds, for a client that lost the response and calls again.
* A row that expired or was withdrawn is left behind: the call begins anew.

What the client itself can be asked comes first, as ever, and only answers to that are taken from it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from antiphon.errors import AnswerNeeded, CannotAsk, InternalError, TicketClosed, TicketUnknown
from antiphon.inbox.rows import Row, Rows, new_ticket
from antiphon.rounds.ask import missing, supports
from antiphon.rounds.journal import Conversation, Journal, RoundEnds
from antiphon.server.context import next_round
from antiphon.server.run import Run
from antiphon.server.tools import error_result
from antiphon.stores.shared_steps import Claim
from antiphon.stores.store import StoreError
from antiphon.types import JsonObject
from antiphon.wire.call import Call
from antiphon.wire.jsonrpc import encode, notification
from antiphon.wire.revisions import PROGRESS_TOKEN

log = logging.getLogger("antiphon")

AGAIN = 60.0
"""Seconds for which the result of a call that went on is given again to the same call."""
BEAT = 5.0
"""Seconds between two notifications of progress while a call waits."""
KEEP = 7 * 86400.0
"""Seconds for which it is known that an answered round was run."""
WAITING = "antiphon/waiting"
"""The key in a result's ``_meta`` that tells programs what the text tells a model."""
_FORM, _PAGE = ("elicitation", "form"), ("elicitation", "url")
_STEP = 1e-3
_MAX_TOLD = 1000

Route: TypeAlias = Callable[[Run], Awaitable[Any]]
Action: TypeAlias = Literal["accept", "decline", "cancel"]

_decode = msgspec.json.decode


class Elsewhere(Protocol):
    """A place where people are asked: an Inbox, or a Browser."""

    @property
    def rows(self) -> Rows: ...
    @property
    def who(self) -> str | None:
        """Who may answer; None: the principal that calls."""
        ...

    @property
    def lasts(self) -> float:
        """Seconds that a question waits for its answer, if it does not say."""
        ...

    @property
    def patience(self) -> float:
        """Seconds for which a call that comes again waits, so that a model does not ask in a busy loop."""
        ...

    @property
    def always(self) -> bool:
        """Whether people are asked here even if their client shows forms."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether the person sits at this machine: then the first call waits, too."""
        ...

    def address(self, ticket: str) -> str | None:
        """Where a person answers who signs in there. The client and its model may know it; None if they may not."""
        ...

    async def tell(self, row: Row) -> None:
        """Tell the person of questions. Where the person sits here, also when the same call comes again."""
        ...

    async def close(self) -> None:
        """The server stops."""
        ...


class AskingElsewhere:
    """Asks people elsewhere whom their clients cannot ask, for all calls of a server."""

    def __init__(self, place: Elsewhere, bound: Callable[[Run], bytes], name: Callable[[], str]) -> None:
        self.place = place
        self.bound = bound
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def takes(self, call: Call) -> bool:
        """Whether the client of a call cannot be asked everything, or is not to be."""
        able = call.capabilities
        return self.place.always or not (supports(able, _FORM) and supports(able, _PAGE))

    def around(self, inner: Route) -> Route:
        """A route that asks elsewhere what its client cannot show."""

        async def answer(run: Run) -> Any:
            if not self.takes(run.call):
                return await inner(run)
            return await _CallElsewhere(self, run, inner).result()

        return answer

    def start(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start what has to be done even if the request is cancelled, and hold it until then."""
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


class _CallElsewhere:
    """One request of a client that cannot be asked everything."""

    def __init__(self, asking: AskingElsewhere, run: Run, inner: Route) -> None:
        self._asking_elsewhere = asking
        self._place = asking.place
        self._rows = asking.place.rows
        self._inner = inner
        self._first = self._run = run
        self._call = run.call
        # Before the handler runs, which may change what it is given.
        self._marks = [f"antiphon:parked:{mark}" for mark in self._rows.marks(asking.bound(run))]
        self._pointer: bytes | None = None
        """What the store has under the first mark."""
        self._consents: JsonObject = {}
        self._asked = False
        """Whether the handler has asked in this request."""
        self._end = asyncio.get_running_loop().time() + self._place.patience
        able = self._call.capabilities
        if self._place.always:
            able = {**able, "elicitation": {"url": {}} if supports(able, _PAGE) else None}
        self._able = able
        # client/elicitation, Phishing: a page is for the user who was asked, so that user has to be known.
        known = self._call.principal is not None and self._place.who is None
        self._opens_pages = known and supports(able, _PAGE)

    async def result(self) -> Any:
        """The call's result: of its handler, or that a person has to answer first."""
        self._prepare()
        outcome: Any = await self._parked()
        if self._run.round > 1:  # the client's own part was answered: its token goes on, not what is parked
            if outcome is not None and outcome.status in {"waiting", "answered"}:
                self._pointer = None  # which is not replaced
            outcome = None
        try:
            while outcome is None or isinstance(outcome, Row):
                if outcome is None:
                    outcome = self._told(_OVER) if self._asked else await self._round(None)
                elif outcome.status == "waiting":
                    outcome = await self._ask(outcome)
                elif outcome.status == "answered":
                    outcome = await self._go_on(outcome)
                else:
                    outcome = await self._again(outcome) if outcome.status == "done" else None
            return outcome
        finally:
            self._first.talk = self._run.talk
            if self._run is not self._first:
                self._run.over = True

    # --- the handler ----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Let the handler ask what the client cannot show, and take no answer to that from the client."""
        run, params = self._run, self._call.params
        talk, given = run.conversation(), params.get("inputResponses")
        arrived = talk.arrived
        if not supports(self._able, _FORM):
            asked = talk.journal.asked
            self._consents = {name: each for name, each in arrived.items() if name not in asked and _is_elicited(each)}
            arrived = {name: each for name, each in arrived.items() if name not in self._consents}
        if given is not None:
            self._call.params = {**params, "inputResponses": arrived}
        run.talk = talk.elsewhere(arrived)
        run.able = self._able

    async def _round(self, row: Row | None) -> Any:
        """Run the handler: its result, or the row in which its questions stand."""
        run = self._run
        try:
            return await self._inner(run)
        except RoundEnds:
            self._asked = run.over = True
        talk = run.conversation()
        pending = talk.pending
        talk.pending = {
            name: question
            for name, question in pending.items()
            if question.kind not in {"form", "url"} or not missing(self._able, (question,))
        }
        if talk.pending or not pending:
            raise RoundEnds  # the client's own part comes first
        talk.pending = pending
        return await self._park(talk, row)

    async def _park(self, talk: Conversation, row: Row | None) -> Row:
        """Put the round's questions where a person finds them."""
        rows, call = self._rows, self._call
        if talk.unfit:
            self._run.log_unfit(talk.pending)
        limits = [question.ttl for question in talk.pending.values() if question.ttl is not None]
        questions, now = talk.close()["inputRequests"], rows.now
        until, payload = now + min(limits, default=self._place.lasts), talk.journal.pack()
        pointer, ttl = self._marks[0], until - now + KEEP
        if row is not None:
            following = replace(row, round=row.round + 1, questions=questions, until=until, payload=payload)
            if not await rows.replace(following, after=row.round):
                self._give_up()
                raise InternalError("The row of this call is gone: make the call again")
            following = replace(following, status="waiting", answers=None)
            await rows.store.put(pointer, rows.sealed(row.id.encode(), pointer), ttl=ttl)
        else:
            arguments = call.params.get("arguments")
            following = Row(
                id=new_ticket(),
                method=call.method,
                name=call.name,
                arguments=arguments if type(arguments) is dict else {},
                server=self._asking_elsewhere.name(),
                questions=questions,
                since=now,
                until=until,
                on_behalf=call.principal,
                who=None if self._place.is_local else self._place.who or call.principal,
                payload=payload,
            )
            await rows.add(following)
            sealed = rows.sealed(following.id.encode(), pointer)
            if not await rows.store.add(pointer, sealed, ttl=ttl, replacing=self._pointer):
                self._give_up()
                await rows.forget(following.id)  # another request of the same call was first
                return await self._parked() or following
        await self._place.tell(following)
        return following

    def _give_up(self) -> None:
        """End what waits elsewhere for the answers to this round, which no person is asked for."""
        if self._run.give_up is not None:
            self._run.give_up()

    async def _go_on(self, row: Row) -> Any:
        """Run the handler with a person's answers, once; None if they are spent, and the person is to be asked anew."""
        rows, round_ = self._rows, f"{row.id}:{row.round}"
        claim = Claim(rows.store, f"parked:{round_}", f"{self._run}")
        if not await claim.take():
            moved = await self._change(row)
            return moved if _state(moved) != _state(row) else self._told(_RUNS)
        if not await rows.store.add(f"antiphon:parked:taken:{round_}", ttl=KEEP):
            self._asking_elsewhere.start(claim.release())
            held = await self._found(row.id)
            return held if held is None or _state(held) != _state(row) else None
        renewing = asyncio.ensure_future(claim.stay())
        try:
            self._begin(row)
            outcome = await self._round(row)
        except RoundEnds:
            await asyncio.shield(self._asking_elsewhere.start(self._close(row, claim, None)))
            raise
        except BaseException:
            self._asking_elsewhere.start(self._close(row, claim, None))
            raise
        finally:
            renewing.cancel()
        if isinstance(outcome, Row):
            self._asking_elsewhere.start(claim.release())
        else:
            await asyncio.shield(self._asking_elsewhere.start(self._close(row, claim, outcome)))
        return outcome

    def _begin(self, row: Row) -> None:
        """Make the run of a further round."""
        call, before = self._call, self._run
        if isinstance(call.arguments, msgspec.Raw):
            call.params = {**call.params, "arguments": _decode(call.arguments)}
        before.over = True
        talk = Conversation(Journal.unpack(row.payload), None, call.capabilities).elsewhere(row.answers or {})
        self._run = run = next_round(before, talk)
        run.brought, run.expires = row.payload, row.until
        run.able = self._able

    # --- the row --------------------------------------------------------------------------------------------------

    async def _parked(self) -> Row | None:
        """The row of this call, if there is one."""
        for mark in self._marks:
            kept = await self._rows.store.get(mark)
            if mark == self._marks[0]:
                self._pointer = kept
            row = None if kept is None else await self._found(self._rows.opened(kept, mark).decode())
            if row is not None:
                return row
        return None

    async def _found(self, ticket: str) -> Row | None:
        try:
            return await self._rows.get(ticket)
        except TicketUnknown:
            return None

    async def _change(self, row: Row) -> Row:
        """Wait for a change of the row, as long as patience lasts; the row as it is then."""
        clock = asyncio.get_running_loop().time
        async with self._rows.changes(row.id) as changed:
            while True:
                now = await self._found(row.id) or replace(row, status="withdrawn")
                left = self._end - clock()
                if _state(now) != _state(row) or left <= 0:
                    return now
                await self._beat()
                await changed(min(left, BEAT))

    async def _beat(self) -> None:
        """Tell a client that asked for progress that the call is alive."""
        run, token = self._run, self._call.meta.get(PROGRESS_TOKEN)
        if token is not None:
            run.progress = (run.progress or 0) + _STEP
            params = {"progressToken": token, "progress": run.progress, "message": "Waiting for a person to answer"}
            await run.channel.emit(notification("notifications/progress", params))

    async def _close(self, row: Row, claim: Claim, result: JsonObject | None) -> None:
        """End the row, and keep what came of the call; a store that fails does not undo what is done."""
        try:
            if result is not None:
                sealed = self._rows.sealed(encode(result), row.id)
                await self._rows.store.put(_result(row), sealed, ttl=AGAIN)
        except StoreError as fault:
            log.warning("%s: the result is not kept for a client that loses it: %s", self._run, fault)
        try:
            await self._rows.finish(row.id, b"")
            await claim.release()
        except (StoreError, TicketUnknown) as fault:
            log.warning("%s: the row %s stays open until its time is over: %s", self._run, row.id, fault)

    async def _again(self, row: Row) -> JsonObject | None:
        """What came of the same call a moment ago, and that it was not run again; None if that is long past."""
        kept = await self._rows.store.get(_result(row))
        if kept is None:
            return None
        result: JsonObject = _decode(self._rows.opened(kept, row.id))
        if "content" in result:
            result["content"] = [*result["content"], {"type": "text", "text": _ONCE}]
        return result

    # --- the person -----------------------------------------------------------------------------------------------

    async def _ask(self, row: Row) -> Row | JsonObject:
        """Send the person to the row, and wait a while: the row when it was answered, or what to tell the model."""
        page = self._place.address(row.id) if self._opens_pages else None
        if page is not None:
            row = await self._send_to(page, row)
        elif self._place.is_local or not self._asked:  # a new question is told at once, so that the user hears of it
            if not self._asked and self._place.is_local:
                await self._place.tell(row)
            row = await self._change(row)
        if row.status != "waiting":
            return row
        return self._told(_NOT_YET.format(_messages(row)), self._where(row), _THEN, row=row)

    async def _send_to(self, page: str, row: Row) -> Row:
        """Have the client open the page for its user, who answers there."""
        name = f"page-{row.round}"
        asked = {"method": "elicitation/create", "params": {"mode": "url", "message": _messages(row), "url": page}}
        push, channel = self._run.channel.push, self._run.channel
        if push is not None:
            try:
                consent = await push(name, asked)
            except CannotAsk as fault:
                log.warning("%s: the client could not be sent to the page: %s", self._run, fault.message)
                return row
        elif name in self._consents:
            consent = self._consents.pop(name)
        else:
            self._first.instead = {"resultType": "input_required", "inputRequests": {name: asked}, "_meta": {}}
            raise RoundEnds
        action = consent.get("action") if isinstance(consent, dict) else None
        if action in {"decline", "cancel"}:
            return await self._refuse(row, action)
        moved = await self._change(row)
        if moved.status != "waiting":
            await channel.url_done(name)
        return moved

    async def _refuse(self, row: Row, action: Action) -> Row:
        """The user did not want to open the page: that answers all that stands there."""
        refused: JsonObject = {name: {"action": action} for name in row.questions}
        try:
            return await self._rows.answer(row.id, row.round, refused, str(self._call.principal))
        except TicketClosed:
            return await self._rows.get(row.id)  # it was answered on the page meanwhile

    def _told(self, *sentences: str, row: Row | None = None) -> JsonObject:
        """What the model is told: an error, so that nothing takes it for done."""
        text = " ".join(sentences)
        if self._call.method != "tools/call":
            raise AnswerNeeded(text, required={"elicitation": {"form": {}}})
        if row is None:
            return error_result(text)
        waiting: JsonObject = {"until": datetime.fromtimestamp(row.until, UTC).isoformat(timespec="seconds")}
        page = self._place.address(row.id)
        if page is not None:
            waiting["page"] = page
        return {**error_result(text), "_meta": {WAITING: waiting}}

    def _where(self, row: Row) -> str:
        page = self._place.address(row.id)
        if page is not None:
            return f"They sign in and answer at {page} (a link for them, not for you)."
        if self._place.is_local:
            return "A form for it was opened in the browser on their own machine."
        return "They answer it in this server's inbox."


_NOT_YET = "This call is not done yet: a person has to answer first. The question is: {}"
_THEN = (
    "You cannot answer for them, whatever you send. Tell the user. Once the answer is given, make this same call again"
    " with exactly the same arguments: it goes on from there. Before that, it only returns this message."
)
_RUNS = (
    "A person has answered, and another request of this same call is carrying it out now. It is not run twice. Make"
    " the same call again with exactly the same arguments to get its result."
)
_OVER = (
    "This call ended: the question to a person was withdrawn, or its time is over. Make the same call again to have it"
    " asked anew."
)
_ONCE = (
    "(This is the result of the call that was just made with the same arguments. It was not run again. To run it once"
    f" more, make the call after {AGAIN:.0f} seconds; a person will be asked again.)"
)


def _is_elicited(response: object) -> bool:
    return isinstance(response, dict) and "action" in response


def _messages(row: Row) -> str:
    told = "; ".join(str(question["params"].get("message", "")) for question in row.questions.values())
    return told if len(told) <= _MAX_TOLD else f"{told[:_MAX_TOLD]}..."


def _state(row: Row) -> tuple[str, int]:
    return row.status, row.round


def _result(row: Row) -> str:
    return f"antiphon:parked:result:{row.id}"
