"""The Server: a Service, and the ways to reach it."""

from collections.abc import Iterable
from typing import Literal

from antiphon import eras
from antiphon.http.exchange import Application
from antiphon.server.dispatch import Service
from antiphon.transports.asgi import MAX_BODY, Endpoint, Principal

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
        principal: Principal | None = None,
        fallback: Application | None = None,
        legacy: eras.Legacy = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 10_000,
        event_buffer: int = 1024,
    ) -> Endpoint:
        """A plain ASGI application that serves MCP at ``path``, or wherever it is mounted.

        ``allowed_hosts`` and ``allowed_origins`` are localhost by default; ``["*"]`` allows all. ``principal`` takes
        the ASGI scope and says who is authenticated. ``fallback`` is an ASGI application for every other path, such as
        the pages that ``ctx.elicit_url`` sends users to.

        ``legacy`` says how clients of 2025-11-25 and before are served: in sessions, without ("stateless": they cannot
        be asked anything), or not at all. A session ends after ``session_ttl`` seconds without use; ``event_buffer``
        is the number of events kept for a client that lost its stream.
        """
        return eras.asgi(
            self,
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            max_body=max_body,
            principal=principal,
            fallback=fallback,
            legacy=legacy,
            session_ttl=session_ttl,
            max_sessions=max_sessions,
            event_buffer=event_buffer,
        )

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        max_body: int = MAX_BODY,
        principal: Principal | None = None,
        fallback: Application | None = None,
        legacy: eras.Legacy = "sessions",
        session_ttl: float = 1800,
        max_sessions: int = 10_000,
        event_buffer: int = 1024,
    ) -> None:
        """Serve until told to stop: standard streams, or streamable HTTP at ``http://host:port/path``."""
        if transport == "stdio":
            eras.stdio(self)
        elif transport == "http":
            from antiphon.transports import serve  # brings the HTTP server

            endpoint = self.asgi(
                path=path,
                allowed_hosts=allowed_hosts,
                allowed_origins=allowed_origins,
                max_body=max_body,
                principal=principal,
                fallback=fallback,
                legacy=legacy,
                session_ttl=session_ttl,
                max_sessions=max_sessions,
                event_buffer=event_buffer,
            )
            serve.run(endpoint, host=host, port=port)
        else:
            raise ValueError(f"run() takes 'stdio' or 'http', got {transport!r}")
