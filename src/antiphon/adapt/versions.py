"""What is relied on in the other libraries, checked when a server is adapted: part of it is provisional or private."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from antiphon.errors import AntiphonError

_TRIED = "It was tried with mcp 2.3.0, and with FastMCP 4.1.2 and 4.1.8."


def moved(what: object) -> AntiphonError:
    """The error for a version that is not known."""
    found = ", ".join(f"{name} {known}" for name in ("mcp", "fastmcp-slim", "fastmcp") if (known := _version(name)))
    return AntiphonError(
        f"antiphon.adapt does not know this version ({found or 'mcp is not installed'}): {what}. {_TRIED}"
        " Install one of these, or a newer antiphon."
    )


def check_mcp(low: Any) -> None:
    """Raise `moved` if the ``mcp`` package is not as it was."""
    from mcp.server.context import ServerRequestContext
    from mcp.server.request_state import RequestStateBoundary
    from mcp.server.session import ServerSession

    _check_takes(
        ServerSession.send_request,
        ["self", "request", "result_type", "request_read_timeout_seconds", "metadata", "progress_callback"],
    )
    _check_takes(RequestStateBoundary.__call__, ["self", "ctx", "call_next"])
    lacking = {"method", "params", "protocol_version", "request", "request_id", "session"} - {
        field.name for field in fields(ServerRequestContext)
    }
    if lacking:
        raise moved(f"ServerRequestContext has no {', '.join(sorted(lacking))}")
    if not isinstance(getattr(low, "middleware", None), list):
        raise moved("a server has no list of middleware")
    for link in low.middleware:
        if isinstance(link, RequestStateBoundary) and not (
            hasattr(link, "_audience") and hasattr(getattr(link, "_security", None), "bind_principal")
        ):
            raise moved("RequestStateBoundary does not say whom it binds a state to")


def check_fastmcp(context: Any) -> None:
    """Raise `moved` if the Context of FastMCP is not as it was."""
    _check_takes(context.elicit, ["self", "message", "response_type", "response_title", "response_description"])
    for name in ("_is_modern_protocol", "request_context", "is_background_task", "session"):
        if not hasattr(context, name):
            raise moved(f"fastmcp's Context has no {name}")


def _check_takes(function: Callable[..., Any], names: list[str]) -> None:
    if list(inspect.signature(function).parameters) != names:
        raise moved(f"{function.__qualname__} takes other parameters")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
