"""The Server: a Service, and the ways to reach it."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from antiphon import eras, loading
from antiphon.http.exchange import Application
from antiphon.server.dispatch import Principal, Service
from antiphon.server.mounts import LocalMount, Mount
from antiphon.transports.asgi import MAX_BODY, MAX_REQUESTS, Endpoint
from antiphon.transports.link import Link

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
