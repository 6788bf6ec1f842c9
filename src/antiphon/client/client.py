"""The Client: one server, its tools, prompts and resources, and the loop that answers its questions."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

import msgspec

from antiphon import eras
from antiphon.client.answers import Answers, Asker, Elicit, Roots, Sampler, fitted
from antiphon.client.results import (
    CallResult,
    Complete,
    InputNeeded,
    Pending,
    PromptReply,
    ReadResult,
    read_result,
)
from antiphon.errors import CallTimeout, CannotAnswer, Disconnected, PeerBroken, Refused
from antiphon.protocol.loop import MAX_ROUNDS, Leg, Pause, Questions, rounds
from antiphon.shapes import Mismatch, Shape, raw_shape
from antiphon.transports.link import Link, OnNotification
from antiphon.types import (
    UNSET,
    Accepted,
    Cancelled,
    Completion,
    Declined,
    Implementation,
    JsonObject,
    LogLevel,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from antiphon.wire.headers import HeaderParam, encode_params, encode_value, header_params
from antiphon.wire.rev2026 import (
    CLIENT_CAPABILITIES,
    CLIENT_INFO,
    LOG_LEVEL,
    METHODS,
    PROGRESS_TOKEN,
    PROTOCOL_VERSION,
    REVISION,
    SERVER_INFO,
)

log = logging.getLogger("antiphon.client")

T = TypeVar("T")
OnProgress: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None] | None]
OnLog: TypeAlias = Callable[[LogLevel, Any, str | None], Awaitable[None] | None]

HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
_MOST_CACHED = 256
_FIRST_WAIT, _LAST_WAIT = 0.5, 30.0


class Discovery(msgspec.Struct, frozen=True, rename="camel"):
    """What a server says of itself."""

    supported_versions: list[str] = []
    capabilities: JsonObject = {}
    instructions: str | None = None
    meta: JsonObject = msgspec.field(name="_meta", default_factory=dict)

    @property
    def server(self) -> Implementation | None:
        return _implementation(self.meta.get(SERVER_INFO))


class Change(msgspec.Struct, frozen=True):
    """Something changed at the server: a list, or the resource under ``uri``."""

    kind: Literal["tools", "prompts", "resources", "resource"]
    uri: str | None = None


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round of a watched call: questions to answer, or the end."""

    number: int
    questions: JsonObject
    result: CallResult | PromptReply | ReadResult | None = None


class Pages(Generic[T]):
    """A list that comes in pages: ``await`` it whole, or iterate over it as the pages come."""

    __slots__ = ("_items",)

    def __init__(self, items: Callable[[], AsyncIterator[T]]) -> None:
        self._items = items

    def __await__(self) -> Generator[Any, None, list[T]]:
        return self._all().__await__()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._items()

    async def _all(self) -> list[T]:
        return [item async for item in self._items()]


class Client:
    """A connection to one MCP server.

    ``target`` is a URL, a command to start (a list), the path of a server's file, a Server in this process, or a Link.
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
    ) -> None:
        if max_rounds < 1:
            raise ValueError("max_rounds must be at least 1")
        self._link: Link = eras.connect(target, headers=headers, env=env, cwd=cwd, era=era)
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
        self._headers: dict[str, tuple[HeaderParam, ...]] = {}
        self._outputs: dict[str, Shape] = {}
        self._cache: dict[bytes, tuple[float, JsonObject]] = {}
        self._open = False

    async def __aenter__(self) -> Self:
        await self._link.open()
        self._open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        await self._link.close()

    # --- who is there ---------------------------------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        return REVISION

    @property
    def era(self) -> Literal["modern", "legacy"]:
        return "modern"

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
        params: JsonObject = {"name": name, "arguments": dict(arguments or {})}
        result = await self._finish("prompts/get", params, timeout, progress)
        assert isinstance(result, PromptReply)
        return result

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, progress: OnProgress | None = None
    ) -> ReadResult:
        params: JsonObject = {"uri": uri}
        fresh = self._fresh(_key("resources/read", params))
        if fresh is not None:
            return _read(read_result("resources/read", fresh, 1))
        return _read(await self._finish("resources/read", params, timeout, progress))

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
        result = await self._request("completion/complete", params, self._timeout)
        found: Completion = _typed(result.get("completion"), Completion, "completion/complete")
        return found

    # --- rounds of your own ---------------------------------------------------------------------------------------

    async def begin(self, method: str, /, **params: object) -> "Complete | Pending":
        """Make a call and stop at its first question: ``begin("tools/call", name="deploy", arguments={...})``."""
        return await self._once(method, msgspec.to_builtins(params), None)

    async def resume(self, pending: Pending, answers: Mapping[str, object] | None = None) -> "Complete | Pending":
        """Go on with a call that waited, here or in another process; stops at its next question.

        An answer is Accepted, Declined, Cancelled, a Sample, a list of Roots, or the raw response as a dict.
        """
        given = answers or {}
        missing = [key for key in pending.questions if key not in given]
        if missing:
            raise CannotAnswer(f"There is no answer for {', '.join(map(repr, missing))}", key=missing[0])
        responses = {key: _response(key, request, given[key]) for key, request in pending.questions.items()}
        return await self._once(pending.method, pending.params, pending, responses)

    async def watch(self, method: str, /, **params: object) -> AsyncGenerator[Round, Mapping[str, object] | None]:
        """The rounds of a call, one by one, before they are answered: to log, to audit, or to refuse by leaving.

        The client's handlers answer, unless answers are sent in with ``asend``.
        """
        outcome = await self.begin(method, **params)
        while isinstance(outcome, Pending):
            given = yield Round(number=outcome.round, questions=outcome.questions)
            if given is None:
                asker = self._asker(outcome.method, outcome.params, outcome.round)
                responses = await self._answered(outcome.questions, asker)
                outcome = await self._once(outcome.method, outcome.params, outcome, responses)
            else:
                outcome = await self.resume(outcome, given)
        yield Round(number=outcome.result.rounds, questions={}, result=outcome.result)

    # --- changes --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, *, tools: bool = False, prompts: bool = False, resources: bool | list[str] = False
    ) -> AsyncGenerator[Change]:
        """Changes as they happen. Reconnects when the stream breaks; then every list may have changed unseen."""
        wanted: JsonObject = {}
        if tools:
            wanted["toolsListChanged"] = True
        if prompts:
            wanted["promptsListChanged"] = True
        if resources is True:
            wanted["resourcesListChanged"] = True
        elif resources:
            wanted["resourceSubscriptions"] = list(resources)
        wait = _FIRST_WAIT
        again = False
        while self._open:
            changes: asyncio.Queue[JsonObject] = asyncio.Queue()
            stream = asyncio.create_task(self._listen(wanted, changes))
            try:
                async for message in _until_done(changes, stream):
                    wait = _FIRST_WAIT
                    if message["method"] == "notifications/subscriptions/acknowledged":
                        for unseen in _unseen(wanted) if again else ():
                            yield unseen
                        continue
                    change = _change(message)
                    self._cache.clear()
                    if change is not None:
                        yield change
            except Disconnected as fault:
                log.info("the subscription broke: %s; trying again in %s s", fault, wait)
            finally:
                stream.cancel()
                await asyncio.gather(stream, return_exceptions=True)
            again = True
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LAST_WAIT)

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _finish(
        self, method: str, params: JsonObject, timeout: float | None, progress: OnProgress | None
    ) -> CallResult | PromptReply | ReadResult:
        """Drive a call to its end: the generator says what it needs, this does it."""
        limit = self._timeout if timeout is None else timeout
        left = limit
        steps = rounds(params, max_rounds=self._max_rounds)
        step = next(steps)
        while True:
            reply: Any = None
            if isinstance(step, Questions):
                if not self._auto:
                    raise InputNeeded(_pending(method, params, step))
                reply = await self._ask_person(step, self._asker(method, params, step.round))
            else:
                started = time.monotonic()
                try:
                    async with asyncio.timeout(left):
                        if isinstance(step, Leg):
                            reply = await self._request(method, step.params, None, progress)
                        else:
                            await asyncio.sleep(step.seconds)
                except TimeoutError:
                    raise CallTimeout("server", limit or 0) from None
                if left is not None:
                    left -= time.monotonic() - started
            try:
                step = steps.send(reply)
            except StopIteration as end:
                result, count = end.value
                return self._checked(method, params, result, count)

    async def _ask_person(self, step: Questions, asker: Asker) -> JsonObject:
        """The time a person takes is not the call's: it has a limit of its own."""
        try:
            async with asyncio.timeout(self._patience):
                return await self._answered(step.requests, asker)
        except TimeoutError:
            raise CallTimeout("person", self._patience or 0) from None

    async def _answered(self, requests: JsonObject, asker: Asker) -> JsonObject:
        """All questions of a round at once; the first handler that fails ends it, and the others are cancelled."""
        if len(requests) == 1:
            ((key, request),) = requests.items()
            return {key: await self._answers.answer(key, request, asker)}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    key: group.create_task(self._answers.answer(key, request, asker))
                    for key, request in requests.items()
                }
        except BaseExceptionGroup as faults:
            raise _first(faults) from None
        return {key: task.result() for key, task in tasks.items()}

    async def _once(
        self, method: str, params: JsonObject, before: Pending | None, responses: JsonObject | None = None
    ) -> "Complete | Pending":
        """One leg: to a result, or to the next question."""
        start = None
        if before is not None:
            start = (
                Questions(before.questions, before.state, before.round)
                if before.questions
                else Pause(0, before.state, before.round)
            )
        steps = rounds(params, max_rounds=max(self._max_rounds, 1), start=start)
        step = next(steps)
        if not isinstance(step, Leg):
            step = steps.send(responses)
        assert isinstance(step, Leg)
        result = await self._request(method, step.params, self._timeout)
        try:
            waiting = steps.send(result)
        except StopIteration as end:
            final, count = end.value
            return Complete(self._checked(method, params, final, count))
        assert isinstance(waiting, Questions | Pause)
        return _pending(method, params, waiting)

    def _checked(
        self, method: str, params: JsonObject, result: JsonObject, count: int
    ) -> CallResult | PromptReply | ReadResult:
        if count == 1 and method == "resources/read":
            self._keep(_key(method, params), result)
        made = read_result(method, result, count)
        if isinstance(made, CallResult) and not made.is_error:
            output = self._outputs.get(params["name"])
            if output is not None:
                try:
                    output.read(None if made.structured is UNSET else made.structured)
                except Mismatch as fault:
                    raise PeerBroken(
                        f"The result of {params['name']} does not fit its output schema: {fault}"
                    ) from None
        return made

    # --- requests -------------------------------------------------------------------------------------------------

    async def _request(
        self, method: str, params: JsonObject, timeout: float | None, progress: OnProgress | None = None
    ) -> JsonObject:
        """One request and its result; the errors that the specification lets a client mend are mended once."""
        try:
            async with asyncio.timeout(timeout):
                try:
                    return await self._sent(method, params, progress)
                except Refused as fault:
                    if not await self._mended(fault, method, params):
                        raise
                return await self._sent(method, params, progress)
        except TimeoutError:
            raise CallTimeout("server", timeout or 0) from None

    async def _mended(self, fault: Refused, method: str, params: JsonObject) -> bool:
        if fault.code == UNSUPPORTED_VERSION:
            supported = fault.data.get("supported") if isinstance(fault.data, dict) else None
            return isinstance(supported, list) and REVISION in supported
        if fault.code == HEADER_MISMATCH and method == "tools/call" and params["name"] not in self._headers:
            # streamable-http, Client Behavior: the tool's schema may name headers that we did not know of.
            self._cache.clear()
            await self.list_tools()
            return bool(self._headers.get(params["name"]))
        return False

    async def _sent(self, method: str, params: JsonObject, progress: OnProgress | None) -> JsonObject:
        if not self._open:
            raise Disconnected("The client is not open: use it inside 'async with'")
        id_ = next(self._ids)
        meta = self._meta if progress is None else {**self._meta, PROGRESS_TOKEN: id_}
        message: JsonObject = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, "_meta": meta}}
        tell = self._teller(progress) if progress is not None or self._on_log is not None else None
        reply = await self._link.request(message, headers=self._mirrored(method, params), on_notification=tell)
        fault = reply.get("error")
        if fault is not None:
            raise _refused(fault)
        result = reply.get("result")
        if type(result) is not dict:
            raise PeerBroken("The server's reply has neither a result nor an error")
        info = (result.get("_meta") or {}).get(SERVER_INFO) if self._server is None else None
        if info is not None:
            self._server = _implementation(info)
        return result

    def _mirrored(self, method: str, params: JsonObject) -> dict[str, str]:
        """streamable-http, Request Metadata: the headers that repeat the body."""
        headers = {"MCP-Protocol-Version": REVISION, "Mcp-Method": method}
        target = METHODS[method].target if method in METHODS else None
        if target is not None:
            headers["Mcp-Name"] = encode_value(params[target])
            known = self._headers.get(params[target]) if method == "tools/call" else None
            if known:
                headers.update(encode_params(known, params.get("arguments") or {}))
        return headers

    def _teller(self, progress: OnProgress | None) -> OnNotification:
        async def tell(message: JsonObject) -> None:
            params: Any = message.get("params") or {}
            told: Any = None
            if message["method"] == "notifications/progress" and progress is not None:
                told = progress(params.get("progress"), params.get("total"), params.get("message"))
            elif message["method"] == "notifications/message" and self._on_log is not None:
                told = self._on_log(params.get("level"), params.get("data"), params.get("logger"))
            if told is not None:
                await told

        return tell

    # --- lists and what is remembered of them ---------------------------------------------------------------------

    async def _listed(self, method: str, key: str, type_: type[T]) -> AsyncIterator[T]:
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self._cached(method, {} if cursor is None else {"cursor": cursor})
            for item in _typed(page.get(key), list[Any], method):
                yield _typed(item, type_, method)
            cursor = page.get("nextCursor")
            if cursor is None:
                return
            if cursor in seen:
                raise PeerBroken(f"The server's {method} gives the same page again and again")
            seen.add(cursor)

    async def _tools(self) -> AsyncIterator[Tool]:
        async for tool in self._listed("tools/list", "tools", Tool):
            try:
                self._headers[tool.name] = header_params(tool.input_schema)
            except ValueError as fault:
                log.warning("the tool %r is left out: %s", tool.name, fault)
                continue
            if tool.output_schema is not None:
                try:
                    self._outputs[tool.name] = raw_shape(tool.output_schema)
                except ValueError as fault:
                    log.warning("the output schema of %r cannot be used: %s", tool.name, fault)
            yield tool

    async def _cached(self, method: str, params: JsonObject) -> JsonObject:
        key = _key(method, params)
        fresh = self._fresh(key)
        if fresh is not None:
            return fresh
        result = await self._request(method, params, self._timeout)
        self._keep(key, result)
        return result

    def _fresh(self, key: bytes) -> JsonObject | None:
        kept = self._cache.get(key)
        return kept[1] if kept is not None and time.monotonic() < kept[0] else None

    def _keep(self, key: bytes, result: JsonObject) -> None:
        ttl = result.get("ttlMs")
        if isinstance(ttl, int) and ttl > 0 and result.get("resultType", "complete") == "complete":
            if len(self._cache) >= _MOST_CACHED:
                self._cache.pop(next(iter(self._cache)))
            self._cache[key] = (time.monotonic() + ttl / 1000, result)

    async def _listen(self, wanted: JsonObject, changes: "asyncio.Queue[JsonObject]") -> None:
        message: JsonObject = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": "subscriptions/listen",
            "params": {"notifications": wanted, "_meta": self._meta},
        }
        reply = await self._link.request(
            message, headers=self._mirrored("subscriptions/listen", {}), on_notification=changes.put
        )
        if "error" in reply:
            raise _refused(reply["error"])
        raise Disconnected("the server closed the subscription")

    def _asker(self, method: str, params: JsonObject, round_: int) -> Asker:
        target = METHODS[method].target if method in METHODS else None
        return Asker(self._server, str(params.get(target or "", method)), round_)


def _pending(method: str, params: JsonObject, step: Questions | Pause) -> Pending:
    questions = step.requests if isinstance(step, Questions) else {}
    return Pending(method=method, params=params, questions=questions, state=step.state, round=step.round)


def _response(key: str, request: JsonObject, answer: object) -> JsonObject:
    """An answer given by hand, as the wire has it."""
    if isinstance(answer, Accepted):
        params = request.get("params") or {}
        if params.get("mode") == "url":
            return {"action": "accept"}
        schema = params.get("requestedSchema")
        return {"action": "accept", "content": fitted(answer.value, schema if isinstance(schema, dict) else {}, key)}
    if isinstance(answer, Declined | Cancelled):
        return {"action": answer.action}
    if isinstance(answer, list):
        return {"roots": msgspec.to_builtins(answer)}
    made = msgspec.to_builtins(answer)
    if type(made) is not dict:
        raise CannotAnswer(f"The answer to {key!r} must be Accepted, Declined, Cancelled, a Sample or Roots", key=key)
    return made


def _refused(fault: object) -> Refused:
    body: JsonObject = fault if type(fault) is dict else {}
    code, message = body.get("code"), body.get("message")
    if type(code) is not int or type(message) is not str:
        raise PeerBroken("The server's error has no code and message")
    return Refused(message, code=code, data=body.get("data"))


def _typed(value: object, type_: Any, method: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as fault:
        raise PeerBroken(f"The server's result for {method} is malformed: {fault}") from None


def _implementation(info: object) -> Implementation | None:
    try:
        return msgspec.convert(info, Implementation)
    except msgspec.ValidationError:
        return None


def _read(result: object) -> ReadResult:
    assert isinstance(result, ReadResult)
    return result


def _key(method: str, params: JsonObject) -> bytes:
    return msgspec.json.encode([method, params], order="sorted")


def _first(faults: BaseExceptionGroup[Any]) -> BaseException:
    for fault in faults.exceptions:
        return _first(fault) if isinstance(fault, BaseExceptionGroup) else fault
    raise AssertionError("an exception group is never empty")


def _change(message: JsonObject) -> Change | None:
    method = message["method"]
    for kind in ("tools", "prompts", "resources"):
        if method == f"notifications/{kind}/list_changed":
            return Change(kind)
    if method == "notifications/resources/updated":
        return Change("resource", (message.get("params") or {}).get("uri"))
    return None


def _unseen(wanted: JsonObject) -> list[Change]:
    lists = [Change(kind) for kind in ("tools", "prompts", "resources") if wanted.get(f"{kind}ListChanged")]
    return lists + [Change("resource", uri) for uri in wanted.get("resourceSubscriptions", [])]


async def _until_done(queue: "asyncio.Queue[JsonObject]", task: "asyncio.Task[None]") -> AsyncIterator[JsonObject]:
    """What comes through a queue until the task that fills it ends; then its error."""
    while True:
        getter = asyncio.ensure_future(queue.get())
        try:
            await asyncio.wait({getter, task}, return_when=asyncio.FIRST_COMPLETED)
            if getter.done():
                yield getter.result()
                continue
        finally:
            getter.cancel()
        task.result()
        return
