"""Every link to an old server keeps the promises of a Link."""

import sys

import pytest

from antiphon import eras
from antiphon.testing.contracts import check_link
from antiphon.transports import stdio_client as child

COMMAND = [sys.executable, "-m", "antiphon.testing.contracts"]


@pytest.fixture
def url(live):
    return lambda server: f"http://127.0.0.1:{live(server.asgi(allowed_hosts=['*']))}/mcp"


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """No link waits long for a process to end."""
    monkeypatch.setattr(child, "GRACE", 0.2)


async def test_in_memory_to_an_old_server():
    await check_link(lambda server: eras.connect(server, era="legacy"))


async def test_over_http_to_an_old_server(url):
    await check_link(lambda server: eras.connect(url(server), era="legacy"))


@pytest.mark.heavy
async def test_to_an_old_process():
    await check_link(lambda _: eras.connect(COMMAND, era="legacy"))


async def test_over_http_to_a_server_that_turns_out_to_be_old(url):
    await check_link(lambda server: eras.connect(url(server), versions=["2025-11-25"]))


@pytest.mark.heavy
async def test_to_a_process_that_turns_out_to_be_old():
    await check_link(lambda _: eras.connect(COMMAND, versions=["2025-11-25"]))
