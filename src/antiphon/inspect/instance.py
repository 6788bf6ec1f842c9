"""An instance of the server under inspection: a client that is connected to it in one era, and what it hears."""

import asyncio
import os
from collections.abc import AsyncIterable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec

from antiphon import __version__, eras
from antiphon.client.answers import Elicitation, SampleRequest
from antiphon.client.client import Client
from antiphon.client.results import Address, Discovery
from antiphon.errors import AntiphonError, CallFailed, CannotAnswer, Refused
from antiphon.inspect.traffic import Traffic, bounded, current
from antiphon.testing.transcript import Recorded
from antiphon.transports.link import Authorizer, Caller, Link, OnNotification, tell
from antiphon.types import Cancelled, JsonObject
from antiphon.uri import Template
from antiphon.wire.revisions import LOG_LEVEL, METHODS, PROGRESS_TOKEN

MOST_OFFERED: Final = 2_000
"""Tools, prompts, resources or templates that are listed at most."""
_MOST_DESCRIBED: Final = 256 * 1024
"""Characters of one of them that are shown."""
_MOST_KEPT: Final = 32
"""Lists whose last answer is kept, for cassettes."""
_METHOD_NOT_FOUND: Final = -32601


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and how it is reached. A command inherits the variables of this process."""

    target: str | list[str]
    text: str
    """Finds it again from any folder."""
    label: str
    file: str | None = None
    """The Python file that holds the Server, if it is started from one."""
    folder: str | None = None
    headers: Mapping[str, str] = {}
    env: Mapping[str, str] = {}
    versions: tuple[str, ...] = ()
    timeout: float = 60.0

    @property
    def kind(self) -> str:
        if isinstance(self.target, str):
            return "url"
        return "command" if self.file is None else "file"


Hear = Callable[[JsonObject, object], None]
"""Hears a notification, and the call that it belongs to, if any."""


class InspectedLink(Recorded):
    """A Link that asks for progress and logs, and tells what comes."""

    def __init__(self, link: Link, hear: Hear) -> None:
        super().__init__(link)
        self.answered: dict[str, tuple[JsonObject, Mapping[str, str], JsonObject]] = {}
        """The last request of each kind that belongs to no call, and its reply."""
        self._hear = hear

    def introduce(self, caller: Caller) -> None:
        async def hear(message: JsonObject) -> None:
            self._hear(message, None)
            await tell(caller.hear, message)

        super().introduce(caller._replace(hear=hear))

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        params: JsonObject = message["params"]
        meta = {**params["_meta"], LOG_LEVEL: "debug"}
        call: Any = current.get()
        if METHODS[message["method"]].asks:
            meta[PROGRESS_TOKEN] = message["id"]
        message = {**message, "params": {**params, "_meta": meta}}
        if call is not None:
            call.sends(message, headers)

        async def listen(notification: JsonObject) -> None:
            self._hear(notification, call)
            await tell(on_notification, notification)

        try:
            reply = await super().request(message, headers=headers, on_notification=listen)
        finally:
            self.turns.clear()  # a call keeps its own
        if call is not None:
            call.receives(reply)
        elif len(self.answered) < _MOST_KEPT:
            key = f"{message['method']} {params.get('cursor', '')}"
            self.answered[key] = message, headers, reply
        return reply


class InspectingClient(Client):
    """A client that knows where its server is, although it was given a link."""

    spot: Spot

    @property
    def address(self) -> Address:
        spot = self.spot
        return Address(target=spot.target, cwd=spot.folder, private=bool(spot.headers or spot.env))


class Instance:
    """A client that is connected to the server. ``hear`` gets its notifications, ``lost`` why it has gone."""

    def __init__(
        self,
        spot: Spot,
        *,
        era: str,
        auth: Authorizer | None,
        hear: Hear,
        lost: Callable[[CallFailed], None],
        stray: Callable[[str], None],
    ) -> None:
        self.spot = spot
        self.era = era
        self.traffic = Traffic(secret=spot.headers, lost=lost)
        self._auth = auth
        self._hear = hear
        self._stray = stray
        self._listening: dict[str, asyncio.Task[None]] = {}
        self.is_open = False
        self.discovery: Discovery | None = None

    async def open(self) -> None:
        """Connect, and have the server answer once."""
        self.link = InspectedLink(
            eras.connect(
                self.spot.target,
                headers=self.spot.headers,
                auth=self._auth,
                env={**os.environ, **self.spot.env},
                cwd=self.spot.folder,
                era=self.era,
                versions=self.spot.versions,
                on_stray_line=self._stray,
                watched=self.traffic.kinds(),
            ),
            self._hear,
        )
        self.client = InspectingClient(
            self.link,
            elicit=_unasked,
            elicit_url=_unasked,
            sample=_unsampled,
            sample_tools=True,
            roots=[],
            timeout=self.spot.timeout,
            name="antiphon-inspect",
            version=__version__,
            on_log=lambda *_: None,
        )
        self.client.spot = self.spot
        await self.client.__aenter__()
        self.is_open = True
        try:
            self.discovery = await self.client.discover()
        except BaseException as fault:
            # A server that refuses to say what it is, is there all the same.
            if not isinstance(fault, Refused) or fault.code is None:
                await self.close()
                raise

    async def close(self) -> None:
        if not self.is_open:
            return
        self.is_open = False
        for task in self._listening.values():
            task.cancel()
        await asyncio.gather(*self._listening.values(), return_exceptions=True)
        self._listening.clear()
        await self.client.__aexit__(None, None, None)

    # --- what it offers -------------------------------------------------------------------------------------------

    async def offers(self) -> JsonObject:
        """Return all that it lists, as the wire has it; what cannot be listed is named under ``problems``."""
        client, problems = self.client, list[str]()
        lists: dict[str, tuple[str, AsyncIterable[object]]] = {
            "tools": ("tools/list", client.list_tools()),
            "prompts": ("prompts/list", client.list_prompts()),
            "resources": ("resources/list", client.list_resources()),
            "templates": ("resources/templates/list", client.list_resource_templates()),
        }
        made: JsonObject = {}
        for name, (method, pages) in lists.items():
            made[name] = []
            try:
                async for offer in pages:
                    made[name].append(bounded(msgspec.to_builtins(offer), _MOST_DESCRIBED)[0])
                    if len(made[name]) >= MOST_OFFERED:
                        problems.append(f"{method}: only the first {MOST_OFFERED:,} are shown")
                        break
            except AntiphonError as fault:
                if not (isinstance(fault, Refused) and fault.code == _METHOD_NOT_FOUND):
                    problems.append(f"{method}: {fault}")
        for template in made["templates"]:
            template["variables"] = _variables(template.get("uriTemplate"))
        return {**made, "problems": problems}

    # --- changes --------------------------------------------------------------------------------------------------

    def listen_to_lists(self) -> None:
        """Listen for changes of the lists that the server says it tells of."""
        known: Any = {} if self.discovery is None else self.discovery.capabilities
        kinds = ("tools", "prompts", "resources")
        self.listen(**{kind: True for kind in kinds if (known.get(kind) or {}).get("listChanged")})

    def listen(self, **wanted: bool | list[str]) -> None:
        """Listen for changes; they are heard like other notifications. A server that tells of none is left alone."""
        key = "uris" if isinstance(wanted.get("resources"), list) else "lists"
        before = self._listening.pop(key, None)
        if before is not None:
            before.cancel()
        if any(wanted.values()):
            self._listening[key] = asyncio.create_task(self._changes(wanted))

    async def _changes(self, wanted: Mapping[str, Any]) -> None:
        with suppress(AntiphonError):
            async with aclosing(self.client.subscribe(**wanted)) as changes:
                async for _ in changes:
                    pass


def _unasked(question: Elicitation) -> Cancelled:
    del question  # asked outside of any call: there is no round to show it in
    return Cancelled()


def _unsampled(request: SampleRequest) -> str:
    raise CannotAnswer("antiphon inspect answers what a call asks, and this was asked by none", key=request.key)


def _variables(template: object) -> list[str]:
    try:
        return list(Template(str(template)).variables)
    except ValueError:
        return []
