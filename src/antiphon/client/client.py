"""The Client: one server, its tools, prompts and resources, and the loop that answers its questions."""

import asyncio
import functools
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from antiphon import eras
from antiphon.client import results as changes
from antiphon.client.answers import Answers, Asker, Elicit, Roots, Sampler, response
from antiphon.client.catalogue import Cache, Catalogue, Pages, pages
from antiphon.client.deadlines import Budget, Deadlines
from antiphon.client.results import (
    CallResult,
    Change,
    Complete,
    Discovery,
    InputNeeded,
    Pending,
    PromptReply,
    ReadResult,
    Round,
    check_call,
    implementation,
    read_result,
)
from antiphon.errors import CallFailed, CannotAnswer, Disconnected, PeerBroken, Refused
from antiphon.rounds.loop import MAX_ROUNDS, Leg, Pause, Questions, asked, rounds
from antiphon.transports.link import Caller, OnNotification, refusal, session_of
from antiphon.types import (
    Completion,
    Implementation,
    JsonObject,
    LogLevel,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from antiphon.wire.headers import encode_value
from antiphon.wire.revisions import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    METHODS,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REVISION,
    SERVER_INFO,
)

__all__ = ["Change", "Client", "Discovery", "Pages", "Round"]

log = logging.getLogger("antiphon.client")

T = TypeVar("T")
Result: TypeAlias = CallResult | PromptReply | ReadResult
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[LogLevel, Any, str | None], Awaitable[None] | None]

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
FIRST_WAIT, LAST_WAIT = 0.5, 30.0
"""Seconds between attempts to reconnect a subscription: doubling from the first to the last."""
_PASSING = {429, 502, 503, 504}
"""HTTP statuses of a server that may be back in a moment."""


class Client:
    """A connection to one MCP server.

    ``target`` is a URL, a command to start (a list), the path of a server's file, a Server in this process, or a Link.
    ``timeout`` is the server's time for a call, over all its rounds; ``patience`` is a person's, for each round.
    """

    def __init__(
        self,
        target: object,
        *,
        elicit: Elicit | None = None,
        elicit_url: Elicit | None = None,
        sample: Sampler | None = None,
        sample_tools: bool = False,
        roots: Roots | None = None,
        auto: bool = True,
        max_rounds: int = MAX_ROUNDS,
        timeout: float | None = 60,
        patience: float | None = None,
        name: str = "antiphon",
        version: str = "0.1.0",
        headers: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_log: OnLog | None = None,
        log_level: LogLevel | None = None,
        era: str = "auto",
        prior: Discovery | None = None,
        probe_timeout: float = eras.PROBING,
    ) -> None:
        if max_rounds < 1:
            raise ValueError("max_rounds must be at least 1")
        if prior is not None and not isinstance(prior, Discovery):
            raise TypeError(f"prior is what client.discover() gave before, a Discovery; got {type(prior).__name__}")
        versions = () if prior is None else prior.supported_versions
        self._link = session_of(
            eras.connect(target, headers=headers, env=env, cwd=cwd, era=era, versions=versions, patience=probe_timeout)
        )
        self._answers = Answers(
            elicit=elicit, elicit_url=elicit_url, sample=sample, sample_tools=sample_tools, roots=roots
        )
        self._auto = auto
        self._max_rounds = max_rounds
        self._timeout = timeout
        self._patience = patience
        self._on_log = on_log
        self._ids = itertools.count(1)
        self._meta: JsonObject = {
            PROTOCOL_VERSION: REVISION,
            CLIENT_INFO: {"name": name, "version": version},
            CLIENT_CAPABILITIES: self._answers.capabilities,
        }
        if on_log is not None or log_level is not None:
            self._meta[LOG_LEVEL] = log_level or "info"
        self._server: Implementation | None = None if prior is None else prior.server
        self._catalogue = Catalogue()
        self._cache = Cache()
        self._deadlines = Deadlines()
        self._budgets: dict[object, Budget] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._open = False
        self._link.introduce(Caller(self._meta, self._answer_unasked, self._teller(None), self._clock))

    async def __aenter__(self) -> Self:
        # An old server is greeted here; to open any other link is not yet the server's time.
        with self._servers_time(self._timeout if self._link.stateful else None):
            await self._link.open()
        self._open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        streams = list(self._streams)
        for stream in streams:
            stream.cancel()
        try:
            await asyncio.gather(*streams, return_exceptions=True)
        finally:
            self._deadlines.close()
            await self._link.close()

    # --- who is there ---------------------------------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken; until the server has answered, the one that is tried."""
        return self._link.revision

    @property
    def era(self) -> Literal["modern", "legacy"]:
        return "legacy" if self._link.stateful else "modern"

    @property
    def server(self) -> Implementation | None:
        """Who the server says it is, once it has answered anything."""
        return self._server

    async def discover(self) -> Discovery:
        found: Discovery = _typed(await self._cached("server/discover", {}), Discovery, "server/discover")
        return found

    # --- lists ----------------------------------------------------------------------------------------------------

    def list_tools(self) -> Pages[Tool]:
        """The server's tools. One whose header annotations are invalid is left out, with a warning."""
        return Pages(self._tools)

    def list_prompts(self) -> Pages[Prompt]:
        return Pages(lambda: self._listed("prompts/list", "prompts", Prompt))

    def list_resources(self) -> Pages[Resource]:
        return Pages(lambda: self._listed("resources/list", "resources", Resource))

    def list_resource_templates(self) -> Pages[ResourceTemplate]:
        return Pages(lambda: self._listed("resources/templates/list", "resourceTemplates", ResourceTemplate))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> CallResult:
        """Call a tool; its questions go to the client's handlers."""
        params: JsonObject = {"name": name, "arguments": msgspec.to_builtins(dict(arguments or {}))}
        result = await self._finish("tools/call", params, timeout, progress)
        assert isinstance(result, CallResult)
        return result

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> PromptReply:
        """Get a prompt; its questions go to the client's handlers."""
        params: JsonObject = {"name": name, "arguments": dict(arguments or {})}
        result = await self._finish("prompts/get", params, timeout, progress)
        assert isinstance(result, PromptReply)
        return result

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, progress: OnProgress | None = None
    ) -> ReadResult:
        """Read a resource; its questions go to the client's handlers."""
        params: JsonObject = {"uri": uri}
        fresh = self._cache.get("resources/read", params)
        result = (
            await self._finish("resources/read", params, timeout, progress)
            if fresh is None
            else read_result("resources/read", fresh, 1)
        )
        assert isinstance(result, ReadResult)
        return result

    async def complete(
        self,
        *,
        argument: str,
        value: str,
        prompt: str | None = None,
        template: str | None = None,
        known: Mapping[str, str] | None = None,
    ) -> Completion:
        """Suggestions for an argument of a prompt, or a variable of a resource template."""
        if (prompt is None) == (template is None):
            raise TypeError("complete() takes either prompt= or template=")
        ref = {"type": "ref/prompt", "name": prompt} if prompt else {"type": "ref/resource", "uri": template}
        params: JsonObject = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            params["context"] = {"arguments": dict(known)}
        result = await self._plain("completion/complete", params)
        found: Completion = _typed(result.get("completion"), Completion, "completion/complete")
        return found

    # --- rounds of your own ---------------------------------------------------------------------------------------

    async def begin(self, method: str, /, **params: object) -> Complete | Pending:
        """Make a call and stop at its first question: ``begin("tools/call", name="deploy", arguments={...})``."""
        return await self._leg(method, _call(method, params), None, None)

    async def resume(self, pending: Pending, answers: Mapping[str, object] | None = None) -> Complete | Pending:
        """Go on with a call that waited, here or in another process; stops at its next question.

        An answer is Accepted, Declined, Cancelled, a Sample, a list of Roots, or the raw response as a dict.
        """
        check_call(pending.method, pending.params)
        start = (
            Questions(pending.questions, pending.state, pending.round)
            if pending.questions
            else Pause(0, pending.state, pending.round)
        )
        return await self._leg(pending.method, pending.params, start, _given(pending.questions, answers or {}))

    async def watch(self, method: str, /, **params: object) -> AsyncGenerator[Round, Mapping[str, object] | None]:
        """The rounds of a call, one by one, before they are answered: to log, to audit, or to refuse by leaving.

        The client's handlers answer, unless answers are sent in with ``asend``.
        """
        call = _call(method, params)
        age = self._cache.age
        budget = self._servers_time(self._timeout)
        steps = rounds(call, max_rounds=self._max_rounds)
        step = next(steps)
        try:
            while True:
                reply: Any
                if isinstance(step, Leg):
                    with budget:
                        reply = await self._request(method, step.params, budget=budget)
                else:
                    questions = step.requests if isinstance(step, Questions) else {}
                    given = yield Round(number=step.round, questions=questions)
                    if isinstance(step, Pause):
                        with budget:
                            reply = await asyncio.sleep(step.seconds, {})
                    else:
                        reply = await self._ask(step, method, call) if given is None else _given(questions, given)
                try:
                    step = steps.send(reply)
                except StopIteration as end:
                    result, count = end.value
                    break
        except BaseException as fault:
            self._abandon(step, fault)
            raise
        yield Round(number=count, questions={}, result=self._checked(method, call, result, count, age))

    # --- changes --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, *, tools: bool = False, prompts: bool = False, resources: bool | list[str] = False
    ) -> AsyncGenerator[Change]:
        """Changes as they happen. Reconnects when the stream breaks; then everything may have changed unseen."""
        filter_ = changes.wanted(tools=tools, prompts=prompts, resources=resources)
        wait, heard_before = FIRST_WAIT, False
        while self._open:
            news: asyncio.Queue[JsonObject | CallFailed] = asyncio.Queue()
            stream = asyncio.create_task(self._listen(filter_, news))
            self._streams.add(stream)
            stream.add_done_callback(self._streams.discard)
            try:
                # A server that does not even acknowledge is not waited for; a quiet one is.
                with self._servers_time(self._timeout):
                    early, agreed = await _agreement(news)
                _warn_of(changes.left_out(filter_, agreed))
                for unseen in changes.everything_in(filter_) if heard_before else ():
                    yield unseen
                wait, heard_before = FIRST_WAIT, True
                while True:
                    change = changes.change_in(early.pop(0) if early else await _next(news))
                    if change is not None:
                        yield change
            except (Disconnected, Refused) as fault:
                if self._is_closed():
                    return
                if not heard_before or (isinstance(fault, Refused) and fault.status not in _PASSING):
                    raise
                log.info("the subscription broke: %s; trying again in %s s", fault, wait)
            finally:
                stream.cancel()
                await asyncio.gather(stream, return_exceptions=True)
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_WAIT)

    async def _listen(self, filter_: JsonObject, news: "asyncio.Queue[JsonObject | CallFailed]") -> None:
        """One stream of changes, from its request to its end, which is always a fault."""
        end: CallFailed = Disconnected("The client was closed")
        hear = self._teller(None)

        def tell(message: JsonObject) -> Awaitable[None] | None:
            if message["method"] == "notifications/message":
                return hear(message)
            # At once, and not when somebody looks at the news: what is under way is stale from here on.
            self._cache.clear()
            news.put_nowait(message)
            return None

        try:
            await self._request("subscriptions/listen", {"notifications": filter_}, tell=tell)
            end = Disconnected("The server ended the subscription")
        except CallFailed as fault:
            end = fault
        finally:
            news.put_nowait(end)

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _finish(
        self, method: str, params: JsonObject, timeout: float | None, progress: OnProgress | None
    ) -> Result:
        """Drive a call to its end: the generator says what it needs, this does it."""
        steps = rounds(params, max_rounds=self._max_rounds)
        step = next(steps)
        age = self._cache.age
        with self._servers_time(self._timeout if timeout is None else timeout) as budget:
            try:
                while True:
                    reply: Any
                    if isinstance(step, Leg):
                        reply = await self._request(method, step.params, progress, budget=budget)
                    elif isinstance(step, Pause):
                        reply = await asyncio.sleep(step.seconds, {})
                    elif self._auto:
                        # The time a person takes is not the call's.
                        budget.pause()
                        reply = await self._ask(step, method, params)
                        budget.go_on()
                    else:
                        raise InputNeeded(self._pending(method, params, step))
                    try:
                        step = steps.send(reply)
                    except StopIteration as end:
                        result, count = end.value
                        return self._checked(method, params, result, count, age)
            except BaseException as fault:
                self._abandon(step, fault)
                raise

    async def _leg(
        self, method: str, params: JsonObject, start: Questions | Pause | None, responses: JsonObject | None
    ) -> Complete | Pending:
        """One request of a call: to its result, or to the next question."""
        steps = rounds(params, max_rounds=self._max_rounds, start=start)
        step = next(steps)
        if not isinstance(step, Leg):
            step = steps.send(responses)
        assert isinstance(step, Leg)
        age = self._cache.age
        with self._servers_time(self._timeout):
            reply = await self._request(method, step.params)
        try:
            waiting = steps.send(reply)
        except StopIteration as end:
            result, count = end.value
            return Complete(self._checked(method, params, result, count, age))
        assert isinstance(waiting, Questions | Pause)
        try:
            return self._pending(method, params, waiting)
        except CannotAnswer as fault:
            self._abandon(waiting, fault)
            raise

    def _pending(self, method: str, params: JsonObject, step: Questions | Pause) -> Pending:
        """A call that waits; CannotAnswer where none can."""
        questions = step.requests if isinstance(step, Questions) else {}
        if self._link.stateful:
            raise CannotAnswer(
                f"The server speaks revision {self.protocol_version}, in which a call cannot wait for answers that come"
                " later: give the client handlers (elicit=, sample=, ...), leave auto=True, and use call_tool or watch",
                key=next(iter(questions), ""),
            )
        return Pending(method=method, params=params, questions=questions, state=step.state, round=step.round)

    def _abandon(self, step: Leg | Questions | Pause, why: BaseException) -> None:
        """Tell a link that keeps calls open that nobody comes back for this one."""
        self._link.abandon(step.params.get("requestState") if isinstance(step, Leg) else step.state, why)

    async def _answer_unasked(self, key: str, request: JsonObject) -> JsonObject:
        """The response to what a server asks outside of any call, as only old ones do."""
        if not self._auto and request["method"] != "roots/list":
            raise CannotAnswer("This client answers nothing by itself (auto=False)", key=key)
        answer = self._answers.answer(key, request, Asker(self._server, "", 0))
        with Budget(self._deadlines, "person", self._patience):
            return await answer

    def _clock(self, id_: object, runs: bool) -> None:
        """Let the server's time for a request run, or not: somebody is asked what may be its question."""
        budget = self._budgets.get(id_)
        if budget is None:
            return
        if runs:
            budget.go_on()
        else:
            budget.pause()

    async def _ask(self, step: Questions, method: str, params: JsonObject) -> JsonObject:
        """The answers to a round's questions, all asked at once."""
        asker = Asker(self._server, params[METHODS[method].target or ""], step.round)
        answers = self._answers.answer_all(step.requests, asker)
        pointless = None if step.state is None else self._link.moot(step.state)
        if pointless is not None:
            answers = _unless(pointless, answers)
        if self._patience is None:
            return await answers
        with Budget(self._deadlines, "person", self._patience):
            return await answers

    def _is_closed(self) -> bool:
        return not self._open

    def _servers_time(self, seconds: float | None) -> Budget:
        return Budget(self._deadlines, "server", seconds)

    def _checked(self, method: str, params: JsonObject, result: JsonObject, count: int, age: int) -> Result:
        made = read_result(method, result, count)
        if isinstance(made, CallResult):
            self._catalogue.check(params["name"], made)
        elif isinstance(made, ReadResult) and count == 1:
            # server/utilities/caching, Cache Key: never what came of answers.
            self._cache.keep(method, params, result, age)
        return made

    # --- requests -------------------------------------------------------------------------------------------------

    async def _mended(self, fault: Refused, method: str, params: JsonObject) -> bool:
        """Whether a refused request is worth repeating."""
        if fault.code == UNSUPPORTED_VERSION:
            supported = fault.data.get("supported") if isinstance(fault.data, dict) else None
            return isinstance(supported, list) and REVISION in supported
        if fault.code == HEADER_MISMATCH and method == "tools/call":
            # streamable-http, Client Behavior: the tool's schema may name headers that we did not know of.
            before = self._catalogue.headers_of(params["name"])
            self._cache.clear()
            await self.list_tools()
            return self._catalogue.headers_of(params["name"]) != before
        return False

    async def _request(
        self,
        method: str,
        params: JsonObject,
        progress: OnProgress | None = None,
        *,
        tell: OnNotification | None = None,
        mend: bool = True,
        budget: Budget | None = None,
    ) -> JsonObject:
        """One request and its result; the errors that the specification lets a client mend are mended once."""
        if not self._open:
            raise Disconnected("The client is not open: use it inside 'async with'")
        id_ = next(self._ids)
        meta = self._meta
        if progress is not None:
            meta = {**meta, PROGRESS_TOKEN: id_}
        if tell is None and (progress is not None or self._on_log is not None):
            tell = self._teller(progress)
        message: JsonObject = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": meta}}
        if budget is not None:
            self._budgets[id_] = budget
        try:
            reply = await self._link.request(message, headers=self._mirrored(method, params), on_notification=tell)
            if "error" in reply:
                raise refusal(reply["error"])
        except Refused as fault:
            if mend and await self._mended(fault, method, params):
                return await self._request(method, params, progress, tell=tell, mend=False, budget=budget)
            raise
        finally:
            self._budgets.pop(id_, None)
        if reply.get("id") != id_ or type(reply["id"]) is not int:
            # To Python, 1 is 1.0 and True as well.
            raise PeerBroken(f"The server answered request {reply.get('id')!r}, and not this one")
        result = reply.get("result")
        if type(result) is not dict:
            raise PeerBroken("The server's reply has neither a result nor an error")
        if self._server is None:
            self._server = _server_of(result)
        return result

    def _mirrored(self, method: str, params: JsonObject) -> Mapping[str, str]:
        """streamable-http, Request Metadata: the headers that repeat the body."""
        target = METHODS[method].target
        headers = _standard(method, None if target is None else params[target])
        if method == "tools/call" and self._catalogue.headers_of(params["name"]):
            return {**headers, **self._catalogue.mirrored(params["name"], params.get("arguments") or {})}
        return headers

    def _teller(self, progress: OnProgress | None) -> OnNotification:
        async def tell(message: JsonObject) -> None:
            method, params = message["method"], message.get("params")
            told: Any = None
            if type(params) is not dict:
                return
            if method == "notifications/progress" and progress is not None:
                told = progress(params.get("progress", 0), params.get("total"), params.get("message"))
            elif method == "notifications/message" and self._on_log is not None:
                told = self._on_log(params.get("level", "info"), params.get("data"), params.get("logger"))
            if told is not None:
                await told

        return tell

    # --- lists, and what else is remembered -----------------------------------------------------------------------

    async def _listed(self, method: str, key: str, type_: type[T]) -> AsyncIterator[T]:
        async for page in pages(lambda params: self._cached(method, params)):
            for item in _typed(page.get(key), list[Any], method):
                yield _typed(item, type_, method)

    async def _tools(self) -> AsyncIterator[Tool]:
        async for tool in self._listed("tools/list", "tools", Tool):
            if self._catalogue.learn(tool):
                yield tool

    async def _cached(self, method: str, params: JsonObject) -> JsonObject:
        result = self._cache.get(method, params)
        if result is None:
            age = self._cache.age
            result = await self._plain(method, params)
            self._cache.keep(method, params, result, age)
        return result

    async def _plain(self, method: str, params: JsonObject) -> JsonObject:
        """A request that asks nothing back."""
        with self._servers_time(self._timeout):
            result = await self._request(method, params)
        if asked(result, 1) is not None:
            raise PeerBroken(f"The server asks for input where it may not: {method}")
        return result


async def _unless(pointless: Awaitable[None], answers: Coroutine[Any, Any, JsonObject]) -> JsonObject:
    """The answers; none of them if nobody wants to know them any more."""
    asking, ended = asyncio.ensure_future(answers), asyncio.ensure_future(pointless)
    try:
        await asyncio.wait({asking, ended}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else {}
    finally:
        for task in (asking, ended):
            task.cancel()
        await asyncio.gather(asking, ended, return_exceptions=True)


@functools.lru_cache(maxsize=1024)
def _standard(method: str, name: str | None) -> Mapping[str, str]:
    headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
    if name is not None:
        headers["Mcp-Name"] = encode_value(name)
    return MappingProxyType(headers)


def _call(method: str, params: Mapping[str, object]) -> JsonObject:
    made: JsonObject = msgspec.to_builtins(dict(params))
    check_call(method, made)
    return made


def _given(questions: JsonObject, answers: Mapping[str, object]) -> JsonObject:
    """Answers given by hand, as the wire has them: one for each question."""
    missing = [key for key in questions if key not in answers]
    if missing:
        raise CannotAnswer(f"There is no answer for {', '.join(map(repr, missing))}", key=missing[0])
    return {key: response(key, request, answers[key]) for key, request in questions.items()}


def _typed(value: object, type_: Any, method: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"The server's result for {method} is malformed: {fault}") from None


def _server_of(result: JsonObject) -> Implementation | None:
    meta = result.get("_meta")
    info = meta.get(SERVER_INFO) if type(meta) is dict else None
    # Some servers still say it where the older revisions did.
    return implementation(info or result.get("serverInfo"))


async def _agreement(news: "asyncio.Queue[JsonObject | CallFailed]") -> tuple[list[JsonObject], JsonObject]:
    """The acknowledgement of a subscription, and what a server told before it."""
    early: list[JsonObject] = []
    while (message := await _next(news))["method"] != "notifications/subscriptions/acknowledged":
        early.append(message)
    return early, message


async def _next(news: "asyncio.Queue[JsonObject | CallFailed]") -> JsonObject:
    """The next notification of a subscription; its end is raised."""
    message = await news.get()
    if isinstance(message, CallFailed):
        raise message
    if message["method"] == "notifications/cancelled":
        raise Disconnected("The server ended the subscription")
    return message


def _warn_of(missing: list[str]) -> None:
    if missing:
        log.warning("the server will not tell of %s", ", ".join(missing))
