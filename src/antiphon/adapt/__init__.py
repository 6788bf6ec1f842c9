"""Awaited questions in servers that are written with the official ``mcp`` package or with FastMCP.

``mcp = awaited(MCPServer("shop"))``, and its tools stay as they are. With clients of 2026-07-28, ``await ctx.elicit()``
and the session's ``elicit_url``, ``create_message`` and ``list_roots`` then end a round with the question, and the next
round runs the tool from the top with the answer. With clients of earlier revisions, nothing changes.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from antiphon.adapt.versions import moved
from antiphon.rounds.token import Codec, Seal, SignedState
from antiphon.server import steps
from antiphon.server.dispatch import Service
from antiphon.stores.store import Store

if TYPE_CHECKING:
    from antiphon.server.elsewhere import Elsewhere

__all__ = ["awaited", "step"]

S = TypeVar("S")


class _Context(Protocol):
    """The context that a tool of either library is given."""

    @property
    def session(self) -> Any: ...


def awaited(
    server: S,
    *,
    seal: Seal | SignedState | Codec | None = None,
    store: Store | None = None,
    elsewhere: "Elsewhere | None" = None,
) -> S:
    """Let the handlers of an MCPServer, a FastMCP or a low-level ``mcp`` Server await their questions; return it.

    ``seal``, ``store`` and ``elsewhere`` are those of `antiphon.Server`. The seal takes the place of the server's own
    ``request_state_security``; who is authenticated is still asked there.
    """
    try:
        from antiphon.adapt.service import adapt  # it imports the user's own library
    except ImportError as fault:
        raise moved(fault) from fault
    adapt(server, seal=seal, store=store, elsewhere=elsewhere)
    return server


async def step(ctx: _Context, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a function once in a call, however many rounds it has; on later rounds, return what it returned.

    With a store, it runs once even if a request arrives twice. The result is plain data, or fits the function's
    return annotation.
    """
    from antiphon.adapt.session import run_of

    return await steps.step(run_of(ctx.session), key, fn, args, kwargs)


def service_of(server: object) -> Service | None:
    """Return the service that a server's conversations are kept by; None if it was not given to `awaited`."""
    chain: object = getattr(getattr(server, "_mcp_server", server), "middleware", None)
    links: Iterable[object] = chain if isinstance(chain, list) else ()
    return next((link for link in links if isinstance(link, Service)), None)
