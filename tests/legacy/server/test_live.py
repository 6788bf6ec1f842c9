"""Under a real HTTP server: connections that break, and streams that are taken up again."""

import http.client
import json
import threading

import pytest

from antiphon import Context, Server

from .driver import EVERYTHING, SESSION, accept, initialize, notification, text_of, tool_call

PATIENCE = 10.0


class Browser:
    """One connection for each request, as a client has that is in no hurry."""

    def __init__(self, port):
        self._port = port
        self._connections = []
        self.headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        reply = self.open(initialize(capabilities=EVERYTHING))
        self.headers[SESSION] = reply.headers[SESSION]
        assert json.loads(reply.read())["result"]["protocolVersion"] == "2025-11-25"
        assert self.open(notification("notifications/initialized")).status == 202

    def open(self, message=None, *, verb="POST", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        body = None if message is None else json.dumps(message)
        connection.request(verb, "/mcp", body, {**self.headers, **headers})
        self._connections.append(connection)
        return connection.getresponse()

    def drop(self):
        """Let every connection break."""
        while self._connections:
            self._connections.pop().close()

    def events(self, reply):
        """The events of a stream as they come: an id and a message, or None where there is no data."""
        place, data = None, None
        for line in map(str.rstrip, map(bytes.decode, reply)):
            if line.startswith("id: "):
                place = line[4:]
            elif line.startswith("data:"):
                data = line[5:].strip()
            elif not line and data is not None:
                yield place, json.loads(data) if data else None
                data = None


@pytest.fixture
def told():
    return {"cancelled": threading.Event()}


@pytest.fixture
def browser(live, told):
    import asyncio

    app = Server("tests")

    @app.tool
    async def sure(ctx: Context) -> str:
        try:
            return str(await ctx.confirm("Sure?"))
        except asyncio.CancelledError:
            told["cancelled"].set()
            raise

    @app.tool
    async def part(ctx: Context) -> str:
        await ctx.hang_up(retry=0.01)
        return f"sure: {await ctx.confirm('Sure?')}"

    browser = Browser(live(app.asgi()))
    yield browser
    browser.drop()


def ask_and_drop(browser):
    reply = browser.open(tool_call("sure"))
    events = browser.events(reply)
    assert next(events)[1] is None
    place, question = next(events)
    reply.close()
    browser.drop()
    return place, question


def test_a_connection_that_breaks_under_a_question_is_taken_up_again(browser, told):
    place, question = ask_and_drop(browser)
    again = browser.open(verb="GET", **{"last-event-id": place})
    assert browser.open({"jsonrpc": "2.0", "id": question["id"], "result": accept(confirm=True)}).status == 202
    assert text_of([message for _, message in browser.events(again)][-1]) == "True"
    assert not told["cancelled"].is_set()


def test_a_connection_that_breaks_for_good_ends_the_handler(browser, told, soon):
    ask_and_drop(browser)
    assert told["cancelled"].wait(PATIENCE)


def test_a_handler_hangs_up_and_the_client_comes_back(browser):
    reply = browser.open(tool_call("part"))
    *_, (place, _) = browser.events(reply)
    again = browser.events(browser.open(verb="GET", **{"last-event-id": place}))
    _, question = next(again)
    assert browser.open({"jsonrpc": "2.0", "id": question["id"], "result": accept(confirm=True)}).status == 202
    assert text_of(next(again)[1]) == "sure: True"
    assert list(again) == []


def test_the_end_of_a_session_ends_its_streams(browser):
    stream = browser.open(verb="GET")
    assert browser.open(verb="DELETE").status == 204
    assert list(browser.events(stream)) == []
    assert browser.open(tool_call("sure")).status == 404
