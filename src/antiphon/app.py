"""The Server: a Service, and the ways to reach it."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from antiphon import eras, loading
from antiphon.http.exchange import Application
from antiphon.server.dispatch import Principal, Service
from antiphon.server.mounts import SEPARATOR, Mount, Mounts
from antiphon.server.run import Host, Run
from antiphon.transports.asgi import MAX_BODY, MAX_REQUESTS, Endpoint
from antiphon.transports.link import Link
from antiphon.types import JsonObject
from antiphon.wire.call import Call

if TYPE_CHECKING:
    from antiphon.client.client import Auth

__all__ = ["Server"]


class Server(Service):
    """An MCP server: register functions, then ``run()`` it or mount its ``asgi()``."""

    def asgi(
        self,
        *,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        max_body: int = MAX_BODY,
        max_requests: int = MAX_REQUESTS,
        principal: Principal | None = None,
        fallback: Application | None = None,
        legacy: eras.Legacy = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 10_000,
        event_buffer: int = 1024,
        health: bool = False,
    ) -> Endpoint:
        """A plain ASGI application that serves MCP at ``path``, or wherever it is mounted.

        ``allowed_hosts`` and ``allowed_origins`` are localhost by default; ``["*"]`` allows all. ``principal`` takes
        the ASGI scope and says who is authenticated, or names a header that a gateway sets. ``fallback`` is an ASGI
        application for every other path, such as the pages that ``ctx.elicit_url`` sends users to. Both default to
        those of the Server.

        ``legacy`` says how clients of 2025-11-25 and before are served: in sessions, without ("stateless": they cannot
        be asked anything), or not at all. A session ends after ``session_ttl`` seconds without use; ``event_buffer``
        is the number of events kept for a client that lost its stream.

        Beyond ``max_requests`` at once, requests get 503 with ``Retry-After``, before their body is read.

        ``health`` adds two pages for load balancers: ``/healthz`` (the process answers) and ``/readyz`` (it takes
        requests, and its store answers).
        """
        return eras.asgi(
            self,
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            max_body=max_body,
            max_requests=max_requests,
            principal=principal,
            fallback=fallback,
            legacy=legacy,
            session_ttl=session_ttl,
            max_sessions=max_sessions,
            event_buffer=event_buffer,
            health=health,
        )

    def mount(
        self,
        prefix: str,
        target: object,
        *,
        headers: Mapping[str, str] | None = None,
        auth: "Auth | None" = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        era: str = "auto",
    ) -> None:
        """Offer what another server offers: its tools and prompts as ``prefix_name``, its resources as they are.

        ``target`` is a Server in this process, or what a Client takes: a URL, a command (a list), a server's file or a
        Link. The options are those of a Client. Call this before the server is served.
        """
        mount: Mount
        if isinstance(target, Service):
            mount = LocalMount(prefix, target, self)
        else:
            from antiphon.bridge.upstream import Upstream, connector  # brings the client

            connect = connector(target, headers=headers, auth=auth, env=env, cwd=cwd, era=era)
            mount = Upstream(prefix, connect, self, label=prefix or str(target), single=isinstance(target, Link))
        self.add_mount(mount)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        workers: int = 1,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        max_body: int = MAX_BODY,
        max_requests: int = MAX_REQUESTS,
        principal: Principal | None = None,
        fallback: Application | None = None,
        legacy: eras.Legacy = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 10_000,
        event_buffer: int = 1024,
        health: bool = False,
    ) -> None:
        """Serve until told to stop: standard streams, or streamable HTTP at ``http://host:port/path``.

        ``workers`` is the number of processes that serve HTTP. Each imports the file that runs, so the Server is at its
        top level and has ``principal`` and ``fallback`` itself.
        """
        _check_may_serve()
        if transport == "stdio":
            eras.stdio(self)
            return
        if transport != "http":
            raise ValueError(f"run() takes 'stdio' or 'http', got {transport!r}")
        if workers < 1:
            raise ValueError("workers must be at least 1")
        from antiphon.transports.local_endpoint import check_reach  # the server may run on standard streams

        check_reach(self, host, workers)
        options: dict[str, Any] = {
            "path": path,
            "allowed_hosts": None if allowed_hosts is None else list(allowed_hosts),
            "allowed_origins": None if allowed_origins is None else list(allowed_origins),
            "max_body": max_body,
            "max_requests": max_requests,
            "legacy": legacy,
            "session_ttl": session_ttl,
            "max_sessions": max_sessions,
            "event_buffer": event_buffer,
            "health": health,
        }
        if workers == 1:
            from antiphon.transports import serve  # brings the HTTP server

            endpoint = eras.asgi(self, principal=principal, fallback=fallback, **options)
            serve.run(endpoint, host=host, port=port)
        elif principal is None and fallback is None:
            from antiphon.workers import serve_in_workers  # brings the HTTP server

            serve_in_workers(self, options, host=host, port=port, count=workers)
        else:
            raise ValueError("Workers cannot be handed a function: give principal= and fallback= to Server() instead")


def _check_may_serve() -> None:
    loading.refuse_to_serve()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("run() starts an event loop and cannot be called in one: mount asgi() there instead")


# --- a server in this process -----------------------------------------------------------------------------------------


class LocalMount(Mount):
    """A server in this process. Its handlers run as if they were the other's own: one token, one store, both eras."""

    def __init__(self, prefix: str, server: Service, outer: Service) -> None:
        self.prefix = prefix
        self._server = server
        self._outer = outer
        self._stem = f"{prefix}{SEPARATOR}" if prefix else ""

    @property
    def features(self) -> Iterable[str]:
        return self._server.features

    @property
    def instructions(self) -> str | None:
        return self._server.mounts.instructions(self._server.instructions)

    @property
    def info(self) -> object:
        return self._server.mounts.info or self._server.info

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._server.running():
            self._server.subscriptions.join(self)
            try:
                yield
            finally:
                self._server.subscriptions.leave(self)

    async def ready(self, call: Call) -> None:
        await self._server.mounts.ready(call)

    async def answer(self, run: Run) -> JsonObject:
        before = run.server
        run.server = _Within(before, self._server)
        try:
            return await self._server.route(run)
        finally:
            run.server = before

    async def has(self, call: Call, uri: str) -> bool:
        offers = self._server.offers("resources/read", uri)
        return offers or await self._server.mounts.holder(call, uri) is not None

    async def relays(self, call: Call) -> bool:
        asks_elsewhere = self._server.asks_elsewhere(call)  # then the state is our own
        offers = self._server.offers(call.method, call.name)
        return not asks_elsewhere and not offers and await self._server.mounts.relays(call)

    def watch(self, call: Call, uri: str) -> Callable[[], None]:
        return self._server.mounts.watch(call, uri)

    def scopes_for(self, message: JsonObject) -> tuple[str, ...]:
        return self._server.scopes_for(message)

    def names(self) -> dict[str, list[str]]:
        inside = self._server.names()
        return {
            kind: names if kind == "resource" else [f"{self._stem}{name}" for name in names]
            for kind, names in inside.items()
        }

    def functions(self) -> Iterable[Callable[..., Any]]:
        return self._server.functions()

    def function_of(self, method: str, name: str) -> Callable[..., Any] | None:
        if method == "resources/read":
            return self._server.function_of(method, name)
        is_ours = name.startswith(self._stem)
        return self._server.function_of(method, name.removeprefix(self._stem)) if is_ours else None

    def check_apart(self, mounts: Mounts) -> None:
        if self._server.mounts is mounts:
            raise ValueError(f"{self._server.info.name!r} cannot be mounted here: it would serve itself")
        for mount in self._server.mounts:
            mount.check_apart(mounts)

    # what its subscriptions tell

    def tell(self, method: str, uri: str = "") -> None:
        if uri:
            self._outer.updated(uri)
        else:
            kind: Any = method.split("/")[1]
            self._outer.changed(kind)

    def close(self) -> None:
        """Its streams are the other's."""


class _Within:
    """The host of a run in a mounted server: its own state, and the store, clock and threads of the other one."""

    def __init__(self, outer: Host, server: Service) -> None:
        self.info = server.info
        self.state = server.state
        self.changed = server.changed
        self.updated = server.updated
        self.clock = outer.clock
        self.shared_steps = outer.shared_steps
        self.observer = outer.observer
        self.auth = outer.auth
        self.in_thread = outer.in_thread
        self.in_step_thread = outer.in_step_thread
        self.asking = outer.asking
