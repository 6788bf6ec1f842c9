"""The words that a page's hidden tests may use, beside what the page itself has defined."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from antiphon import Server
from antiphon.auth import Identity
from antiphon.transports.memory import MemoryLink
from asgi import Http
from asking import driver
from messages import headers_for, request, tool_call

Json = dict[str, Any]


async def send(
    server: Server, method: str, params: Json | None = None, *, told: list[Json] | None = None, **about: Any
) -> Json:
    """One request in memory, and the whole reply; `told` collects the notifications that came before it."""
    principal = about.pop("principal", None)
    heard: list[Json] = [] if told is None else told
    reply = await MemoryLink(server, identity=None if principal is None else Identity(subject=principal)).send(
        request(method, params, **about), heard.append
    )
    as_on_a_wire: Json = json.loads(json.dumps(reply))
    return as_on_a_wire


async def listed(server: Server, kind: str) -> Json:
    """What a server lists for a client that can be asked everything, by name."""
    path = "resources/templates/list" if kind == "resourceTemplates" else f"{kind}/list"
    return {item["name"]: item for item in (await send(server, path, capabilities=driver.EVERYTHING))["result"][kind]}


@pytest.fixture
def words() -> dict[str, Callable[..., Any]]:
    return {
        "Http": Http,
        "headers_for": headers_for,
        "in_turn": driver.in_turn,
        "listed": listed,
        "send": send,
        "tool_call": tool_call,
        "accept": driver.accept,
        "cancel": driver.cancel,
        "converse": driver.converse,
        "decline": driver.decline,
        "leg": driver.leg,
        "prompt": driver.prompt,
        "resource": driver.resource,
        "roots": driver.roots,
        "sampled": driver.sampled,
        "tool": driver.tool,
    }
