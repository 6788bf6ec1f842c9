"""The Client: one server, its tools, prompts and resources, and the loop that answers its questions."""

from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import msgspec
from msgspec.structs import replace

from antiphon import eras
from antiphon.client.answers import Answers, Asker, Elicit, Roots, Sampler
from antiphon.client.calls import RunningCall, params_of, questions_of, responses_of, start_of, unless
from antiphon.client.deadlines import Budget
from antiphon.client.listening import Change, Listening
from antiphon.client.requests import OnLog, OnProgress, Pages, Requests, typed
from antiphon.client.results import (
    Address,
    CallResult,
    Complete,
    Discovery,
    InputNeeded,
    Pending,
    PromptReply,
    ReadResult,
    Result,
    Round,
    read_result,
)
from antiphon.errors import CannotAnswer
from antiphon.rounds.client_loop import MAX_ROUNDS, Pause, Questions
from antiphon.transports.link import Authorizer, Caller, session_of
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
from antiphon.wire.revisions import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, METHODS, PROTOCOL_VERSION, REVISION

if TYPE_CHECKING:
    from antiphon.client.signing_in import SignedIn
    from antiphon.oauth.account import Login
    from antiphon.oauth.identity import Identity

__all__ = ["Change", "Client", "Discovery", "Pages", "Round"]


class Auth(Protocol):
    """A way to authenticate: see antiphon.auth."""

    def for_server(self, url: str, *, era: str, patience: float | None) -> Authorizer:
        """Return what authorizes the requests to one server."""
        ...


class Parking(Protocol):
    """Where the questions go that no handler answers: an Inbox."""

    async def put(self, client: "Client", pending: Pending, *, known: JsonObject) -> str:
        """Keep a call that waits; return its ticket."""
        ...

    async def ask(self, client: "Client", pending: Pending) -> JsonObject:
        """Wait for the answers, and return them."""
        ...


class Client:
    """A connection to one MCP server.

    ``target`` is a URL, a command to start (a list), the path of a server's file, a Server in this process, or a Link.
    ``timeout`` is the server's time for a call, over all its rounds; ``patience`` is a person's, for each round.
    With an ``inbox``, a question without a handler is put there, and the call raises InputNeeded with its ticket.
    ``auth`` signs in to a URL; ``identity`` says who calls a Server in this process, where no token does.
    """

    _requests_type: ClassVar[type[Requests]] = Requests

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
        auth: Auth | None = None,
        identity: "Identity | None" = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_log: OnLog | None = None,
        log_level: LogLevel | None = None,
        era: str = "auto",
        prior: Discovery | None = None,
        probe_timeout: float = eras.PROBING,
        inbox: "Parking | None" = None,
    ) -> None:
        if max_rounds < 1:
            raise ValueError("max_rounds must be at least 1")
        if prior is not None and not isinstance(prior, Discovery):
            raise TypeError(f"prior is what client.discover() gave before, a Discovery; got {type(prior).__name__}")
        versions = () if prior is None else prior.supported_versions
        self._authorizer = None if auth is None else auth.for_server(url_of(target), era=era, patience=patience)
        self._link = session_of(
            eras.connect(
                target,
                headers=headers,
                auth=self._authorizer,
                identity=identity,
                env=env,
                cwd=cwd,
                era=era,
                versions=versions,
                patience=probe_timeout,
            )
        )
        self._answers = Answers(
            elicit=elicit,
            elicit_url=elicit_url,
            sample=sample,
            sample_tools=sample_tools,
            roots=roots,
            parks=inbox is not None,
        )
        self._inbox = inbox
        self._address = _address(target, cwd, private=bool(headers or auth or env))
        extension = getattr(auth, "extension", None)
        if extension is not None:
            self._answers.capabilities["extensions"] = {extension: {}}
        self._auto = auto
        self._max_rounds = max_rounds
        self._patience = patience
        self._meta: JsonObject = {
            PROTOCOL_VERSION: REVISION,
            CLIENT_INFO: {"name": name, "version": version},
            CLIENT_CAPABILITIES: self._answers.capabilities,
        }
        if on_log is not None or log_level is not None:
            self._meta[LOG_LEVEL] = log_level or "info"
        self._requests = self._requests_type(self._link, self._meta, on_log=on_log, timeout=timeout)
        self._requests.server = None if prior is None else prior.server
        self._listening = Listening(self._requests)
        self._link.introduce(
            Caller(self._meta, self._answer_unasked, self._requests.teller(None), self._requests.clock)
        )

    @classmethod
    def from_config(
        cls,
        file: str | PathLike[str],
        name: str | None = None,
        *,
        inputs: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """A client of a server in a configuration file, or of a host: ``Client.from_config("mcp.json", "notes")``.

        ``inputs`` has the values for ``${input:...}``; the other options are those of a Client. Variables and headers
        in ``options`` are added to those of the entry. Raises ConfigUnusable.
        """
        from antiphon.config.servers import open_config  # most clients have no such file

        found = open_config(file, name, inputs)
        options["headers"] = {**found.headers, **(options.get("headers") or {})}
        options["env"] = {**found.env, **(options.get("env") or {})}
        options.setdefault("cwd", found.cwd)
        return cls(found.target, **options)

    async def __aenter__(self) -> Self:
        await self._requests.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._requests.is_open = False
        try:
            await self._listening.close()
        finally:
            self._requests.deadlines.close()
            await self._link.close()

    # --- signing in -----------------------------------------------------------------------------------------------

    async def sign_in(self, login: "Login | None" = None, callback: str = "", *, again: bool = False) -> None:
        """Sign in now, unless a kept login is good; ``again``: in any case.

        With a login that LoginNeeded carried, and the URL that the person came back to, end that login.
        """
        authorizer = self._signed_in()
        await (authorizer.sign_in(again=again) if login is None else authorizer.finish(login, callback))

    async def sign_out(self) -> None:
        """Revoke the tokens at the authorization server, and forget them."""
        await self._signed_in().sign_out()

    def _signed_in(self) -> "SignedIn":
        from antiphon.client.signing_in import SignedIn  # only who signs in needs it

        if not isinstance(self._authorizer, SignedIn):
            raise TypeError("This client does not sign in: pass auth=OAuth() to it")
        return self._authorizer

    # --- who is there ---------------------------------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken; until the server has answered, the one that is tried."""
        return self._link.revision

    @property
    def era(self) -> Literal["modern", "legacy"]:
        """``"legacy"`` with a server of 2025-11-25 or before, which has sessions; else ``"modern"``."""
        return "legacy" if self._link.stateful else "modern"

    @property
    def server(self) -> Implementation | None:
        """Who the server says it is, once it has answered anything."""
        return self._requests.server

    @property
    def address(self) -> Address | None:
        """By what another process reaches the same server; None if it is in this one."""
        return self._address

    @property
    def is_open(self) -> bool:
        """Whether calls can be made: inside ``async with``."""
        return self._requests.is_open

    async def discover(self) -> Discovery:
        """Ask which revisions the server speaks and what it can do. A fresh answer is kept."""
        found: Discovery = typed(await self._requests.cached("server/discover", {}), Discovery, "server/discover")
        return found

    # --- lists ----------------------------------------------------------------------------------------------------

    def list_tools(self) -> Pages[Tool]:
        """The server's tools. One whose header annotations are invalid is left out, with a warning."""
        return Pages(self._requests.tools)

    def list_prompts(self) -> Pages[Prompt]:
        """The server's prompts: ``await`` for a list, ``async for`` one by one."""
        return Pages(lambda: self._requests.listed("prompts/list", "prompts", Prompt))

    def list_resources(self) -> Pages[Resource]:
        """The server's resources: ``await`` for a list, ``async for`` one by one."""
        return Pages(lambda: self._requests.listed("resources/list", "resources", Resource))

    def list_resource_templates(self) -> Pages[ResourceTemplate]:
        """The server's resource templates: ``await`` for a list, ``async for`` one by one."""
        return Pages(lambda: self._requests.listed("resources/templates/list", "resourceTemplates", ResourceTemplate))

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
        fresh = self._requests.cache.get("resources/read", params)
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
        result = await self._requests.plain("completion/complete", params)
        found: Completion = typed(result.get("completion"), Completion, "completion/complete")
        return found

    # --- rounds of your own ---------------------------------------------------------------------------------------

    async def begin(self, method: str, /, **params: object) -> Complete | Pending:
        """Make a call and stop at its first question: ``begin("tools/call", name="deploy", arguments={...})``."""
        return await self._to_question(method, params_of(method, params))

    async def resume(self, pending: Pending, answers: Mapping[str, object] | None = None) -> Complete | Pending:
        """Go on with a call that waited, here or in another process; stops at its next question.

        An answer is Accepted, Declined, Cancelled, a Sample, a list of Roots, or the raw response as a dict.
        """
        start, responses = start_of(pending), responses_of(pending.questions, answers or {})
        return await self._to_question(pending.method, pending.params, start, responses)

    async def watch(self, method: str, /, **params: object) -> AsyncGenerator[Round, Mapping[str, object] | None]:
        """The rounds of a call, one by one, before they are answered: to log, to audit, or to refuse by leaving.

        The client's handlers answer, unless answers are sent in with ``asend``.
        """
        named = params_of(method, params)
        call = RunningCall(self._requests, method, named, self._max_rounds)
        responses: JsonObject | None = None
        try:
            while (step := await call.advance(responses)) is not None:
                questions = questions_of(step)
                given = yield Round(number=step.round, questions=questions)
                if isinstance(step, Questions):
                    responses = (
                        await self._ask(step, method, named) if given is None else responses_of(questions, given)
                    )
        except BaseException as fault:
            call.abandon(fault)
            raise
        yield Round(number=call.result.rounds, questions={}, result=call.result)

    async def own_answers(self, pending: Pending) -> JsonObject:
        """The responses of this client's handlers to those questions of a call that they can answer."""
        handled = {key: asked for key, asked in pending.questions.items() if self._auto and self._answers.has(asked)}
        if not handled:
            return {}
        return await self._ask(Questions(handled, pending.state, pending.round), pending.method, pending.params)

    # --- changes --------------------------------------------------------------------------------------------------

    async def subscribe(
        self, *, tools: bool = False, prompts: bool = False, resources: bool | list[str] = False
    ) -> AsyncGenerator[Change]:
        """Changes as they happen. Reconnects when the stream breaks; then everything may have changed unseen."""
        async with aclosing(self._listening.changes(tools=tools, prompts=prompts, resources=resources)) as changes:
            async for change in changes:
                yield change

    # --- the loop -------------------------------------------------------------------------------------------------

    async def _finish(
        self, method: str, params: JsonObject, timeout: float | None, progress: OnProgress | None
    ) -> Result:
        """Drive a call to its end; the client's handlers answer."""
        call = RunningCall(self._requests, method, params, self._max_rounds, timeout=timeout, progress=progress)
        responses: JsonObject | None = None
        try:
            while (step := await call.advance(responses)) is not None:
                if isinstance(step, Questions):
                    by_itself = self._auto and self._inbox is None
                    responses = await (
                        self._ask(step, method, params) if by_itself else self._parked(call, step, method, params)
                    )
        except BaseException as fault:
            call.abandon(fault)
            raise
        return call.result

    async def _to_question(
        self,
        method: str,
        params: JsonObject,
        start: Questions | Pause | None = None,
        responses: JsonObject | None = None,
    ) -> Complete | Pending:
        """Drive a call to its result, or to its next question."""
        call = RunningCall(self._requests, method, params, self._max_rounds, start=start, responses=responses)
        try:
            step = await call.advance()
            return Complete(call.result) if step is None else call.pending(step)
        except BaseException as fault:
            call.abandon(fault)
            raise

    async def _answer_unasked(self, key: str, request: JsonObject) -> JsonObject:
        """The response to what a server asks outside of any call, as only old ones do."""
        if not self._auto and request["method"] != "roots/list":
            raise CannotAnswer("This client answers nothing by itself (auto=False)", key=key)
        return await self._patiently(self._answers.answer(key, request, Asker(self.server, "", 0)))

    async def _parked(self, call: RunningCall, step: Questions, method: str, params: JsonObject) -> JsonObject:
        """Get a round answered by the handlers, and the rest at the inbox; InputNeeded if that takes another time."""
        if self._inbox is None:
            raise InputNeeded(call.pending(step))
        pending = Pending(method=method, params=params, questions=step.requests, state=step.state, round=step.round)
        known = await self.own_answers(pending)
        left = {key: asked for key, asked in step.requests.items() if key not in known}
        if not left:
            return known
        if self._link.stateful:
            return {**known, **await self._in_time(step, self._inbox.ask(self, replace(pending, questions=left)))}
        pending = call.pending(step)
        raise InputNeeded(pending, await self._inbox.put(self, pending, known=known))

    def _ask(self, step: Questions, method: str, params: JsonObject) -> Coroutine[Any, Any, JsonObject]:
        """Put all questions of a round to the handlers at once; their responses, to be awaited."""
        asker = Asker(self.server, params[METHODS[method].target or ""], step.round)
        return self._in_time(step, self._answers.answer_all(step.requests, asker))

    def _in_time(self, step: Questions, answers: Coroutine[Any, Any, JsonObject]) -> Coroutine[Any, Any, JsonObject]:
        """The answers, for as long as the server wants them and the person's time lasts."""
        moot = None if step.state is None else self._link.moot(step.state)
        if moot is not None:
            answers = unless(moot, answers)
        return answers if self._patience is None else self._patiently(answers)

    async def _patiently(self, answers: Coroutine[Any, Any, JsonObject]) -> JsonObject:
        with Budget(self._requests.deadlines, "person", self._patience):
            return await answers


def _address(target: object, cwd: str | None, *, private: bool) -> Address | None:
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return Address(target, private=private)
    if isinstance(target, list | tuple):
        return Address([str(word) for word in target], str(Path(cwd or ".").absolute()), private)
    if isinstance(target, str | PathLike):
        return Address(str(Path(target).absolute()), str(Path(cwd or ".").absolute()), private)
    return None


def url_of(target: object) -> str:
    """Return a target that can be signed in to; TypeError if it is none."""
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return target
    raise TypeError("auth= is for servers behind a URL: others take credentials from their environment (env=)")
