"""A client for tests: a script answers its questions, and its results tell what was asked."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import aclosing
from os import PathLike
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from antiphon.client.client import Client
from antiphon.client.deadlines import Budget
from antiphon.client.listening import Change
from antiphon.client.requests import OnProgress, Pages, Requests
from antiphon.client.results import CallResult, PromptReply, ReadResult
from antiphon.testing.answers import Asked, Script, asked_in, keyless_in
from antiphon.testing.cassette.links import Player, Recorder
from antiphon.testing.replay_safety import SafetyReport, check_replay_safety
from antiphon.testing.servers import ServerUnderTest
from antiphon.testing.transcript import Recorded, Turn
from antiphon.types import JsonObject, Prompt, Resource, ResourceTemplate, Tool

T = TypeVar("T")
P = ParamSpec("P")


class ToolOutcome(CallResult, frozen=True, kw_only=True):
    """A tool's result, and what was asked on the way to it."""

    asked: list[Asked]
    """The questions in their order: ``["region", "confirm"]``. Each is its key, and knows its message and answer."""
    turns: tuple[Turn, ...]
    """Every request and what came back."""


class PromptOutcome(PromptReply, frozen=True, kw_only=True):
    """A prompt, and what was asked on the way to it."""

    asked: list[Asked]
    turns: tuple[Turn, ...]


class ReadOutcome(ReadResult, frozen=True, kw_only=True):
    """A resource's contents, and what was asked on the way to them."""

    asked: list[Asked]
    turns: tuple[Turn, ...]


Outcome = TypeVar("Outcome", ToolOutcome, PromptOutcome, ReadOutcome)


class _TestRequests(Requests):
    """The requests of a client for tests, which is opened by the first one."""

    client: "McpClient"

    def budget(self, seconds: float | None) -> Budget:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            why = "Antiphon runs on asyncio, and this test does not: choose anyio's asyncio backend"
            raise RuntimeError(why) from None
        return super().budget(seconds)

    async def send(self, *args: Any, **kwargs: Any) -> JsonObject:
        if not self.is_open:
            await self.client.__aenter__()
        result = await super().send(*args, **kwargs)
        # The first answer shows whether the server names its questions.
        self.client.script.keyless = keyless_in(self.client.turns) if self.link.stateful else False
        return result


class McpClient(Client):
    """A Client for tests. It opens itself when it is first used; close it when done."""

    _requests_type = _TestRequests
    _requests: _TestRequests

    def __init__(self, connection: ServerUnderTest, script: Script | None = None, **options: Any) -> None:
        self.script = Script() if script is None else script
        self.connection = connection
        self._inner = connection.link()
        self._recorded = Recorded(self._inner)
        self._opening = asyncio.Lock()
        options = {**self.script.handlers(), **options}
        super().__init__(self._recorded, **options)
        self._requests.client = self

    @classmethod
    def from_config(
        cls,
        file: str | PathLike[str],
        name: str | None = None,
        *,
        inputs: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Self:
        """A client of a server in a configuration file, or of a host. Raises ConfigUnusable."""
        from antiphon.config.servers import open_config  # few tests have such a file

        found = open_config(file, name, inputs)
        connection = ServerUnderTest(target=found.target, headers=found.headers, env=found.env, cwd=found.cwd)
        return cls(connection, **options)

    @property
    def turns(self) -> list[Turn]:
        """Every request so far, and what came back."""
        return self._recorded.turns

    @property
    def is_recording(self) -> bool:
        """Whether this makes a cassette."""
        return isinstance(self._inner, Recorder)

    def check_cassette(self) -> None:
        """Drifted, if a cassette answered and was asked what it does not have."""
        if isinstance(self._inner, Player):
            self._inner.check()

    async def __aenter__(self) -> Self:
        async with self._opening:
            if not self._requests.is_open:
                await super().__aenter__()
        return self

    async def close(self) -> None:
        """Disconnect, and end the server if it was started for this client."""
        if self._requests.is_open:
            await self.__aexit__()

    async def subscribe(
        self, *, tools: bool = False, prompts: bool = False, resources: bool | list[str] = False
    ) -> AsyncGenerator[Change]:
        """Changes as they happen."""
        await self.__aenter__()
        async with aclosing(super().subscribe(tools=tools, prompts=prompts, resources=resources)) as changes:
            async for change in changes:
                yield change

    async def check_replay_safety(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        effects: Iterable[Callable[..., object] | str] = (),
        ignore: Collection[str] = (),
        may_fail: bool = False,
    ) -> SafetyReport:
        """Whether a tool may be run from the top on every round: ``assert report.ok, report``."""
        call = (name, arguments or {})
        return await check_replay_safety(
            self.connection, call, self.script, effects=effects, ignore=ignore, may_fail=may_fail
        )

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> ToolOutcome:
        """Call a tool; the script answers what it asks."""
        return await self._noted(ToolOutcome, super().call_tool(name, arguments, timeout=timeout, progress=progress))

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        progress: OnProgress | None = None,
    ) -> PromptOutcome:
        """Get a prompt; the script answers what it asks."""
        return await self._noted(PromptOutcome, super().get_prompt(name, arguments, timeout=timeout, progress=progress))

    async def read_resource(
        self, uri: str, *, timeout: float | None = None, progress: OnProgress | None = None
    ) -> ReadOutcome:
        """Read a resource; the script answers what it asks."""
        return await self._noted(ReadOutcome, super().read_resource(uri, timeout=timeout, progress=progress))

    async def _noted(self, type_: type[Outcome], calling: Awaitable[CallResult | PromptReply | ReadResult]) -> Outcome:
        """Return the result of a call, with what was asked on the way to it."""
        with self._recorded.noting() as turns:
            result = await calling
        fields = {name: getattr(result, name) for name in result.__struct_fields__}
        return type_(**fields, asked=asked_in(turns), turns=tuple(turns))


def _waiting(
    method: Callable[Concatenate[McpClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SyncMcpClient", P], T]:
    """A method of McpClient for plain functions: it returns when the call is done."""

    @functools.wraps(method)
    def call(self: "SyncMcpClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        # A method of the class in all but its place.
        return self._runner.run(method(self._client, *args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    return call


class SyncMcpClient:
    """The same client for plain functions: the calls return when they are done, and lists are lists."""

    def __init__(self, connection: ServerUnderTest, script: Script | None = None, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = McpClient(connection, script, **options)

    @property
    def script(self) -> Script:
        """The answers that are scripted."""
        return self._client.script

    @property
    def turns(self) -> list[Turn]:
        """Every request so far, with its reply."""
        return self._client.turns

    @property
    def is_recording(self) -> bool:
        """Whether a cassette is recorded."""
        return self._client.is_recording

    @property
    def era(self) -> str:
        return self._client.era

    @property
    def protocol_version(self) -> str:
        return self._client.protocol_version

    def check_cassette(self) -> None:
        """Raise Drifted unless all went as it was recorded."""
        self._client.check_cassette()

    discover = _waiting(McpClient.discover)
    call_tool = _waiting(McpClient.call_tool)
    get_prompt = _waiting(McpClient.get_prompt)
    read_resource = _waiting(McpClient.read_resource)
    check_replay_safety = _waiting(McpClient.check_replay_safety)
    complete = _waiting(McpClient.complete)
    begin = _waiting(McpClient.begin)
    resume = _waiting(McpClient.resume)

    def list_tools(self) -> list[Tool]:
        return self._all(self._client.list_tools())

    def list_prompts(self) -> list[Prompt]:
        return self._all(self._client.list_prompts())

    def list_resources(self) -> list[Resource]:
        return self._all(self._client.list_resources())

    def list_resource_templates(self) -> list[ResourceTemplate]:
        return self._all(self._client.list_resource_templates())

    def close(self) -> None:
        try:
            self._runner.run(self._client.close())
        finally:
            self._runner.close()

    def _all(self, pages: Pages[T]) -> list[T]:
        async def whole() -> list[T]:
            return await pages

        return self._runner.run(whole())
