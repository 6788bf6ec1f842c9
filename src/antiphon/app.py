"""The Server: a Service, and the ways to reach it."""

from collections.abc import Iterable
from typing import Literal

from antiphon import eras
from antiphon.server.service import Service
from antiphon.transports.asgi import MAX_BODY, Application, Endpoint, Principal

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
    ) -> Endpoint:
        """A plain ASGI application that serves MCP at ``path``, or wherever it is mounted.

        ``allowed_hosts`` and ``allowed_origins`` are localhost by default; ``["*"]`` allows all. ``principal`` takes
        the ASGI scope and says who is authenticated. ``fallback`` is an ASGI application for every other path, such as
        the pages that ``ctx.elicit_url`` sends users to.
        """
        return eras.asgi(
            self,
            path=path,
            allowed_hosts=allowed_hosts,
            allowed_origins=allowed_origins,
            max_body=max_body,
            principal=principal,
            fallback=fallback,
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
            )
            serve.run(endpoint, host=host, port=port)
        else:
            raise ValueError(f"run() takes 'stdio' or 'http', got {transport!r}")
