"""Streamable HTTP: every status, every header, JSON and streams, and clients that go away."""

import asyncio
import json
import logging
import subprocess
import sys
import threading

import httpx
import pytest

from antiphon import Context, InvalidRequest, Server
from antiphon.transports import asgi
from asgi import Http
from messages import REVISION, SUBSCRIPTION, check_reply, headers_for, request, tool_call

CANCELLED = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


@pytest.fixture
def app():
    app = Server("tests", version="1.0.0")

    @app.tool
    async def echo(text: str = "x") -> str:
        return text

    @app.tool
    async def work(ctx: Context, steps: int = 2) -> str:
        for step in range(steps):
            await ctx.progress(step, steps)
            await ctx.log("info", f"step {step}")
        return "done"

    return app


class Patient:
    """A tool that waits until its client has gone, and notes how that felt."""

    def __init__(self, app, *, talks):
        self.started = asyncio.Event()
        self.felt = []
        self.talks = talks
        app.add_tool(self.wait)

    async def wait(self, ctx: Context) -> str:
        if self.talks:
            await ctx.progress(1)
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.felt.append("cancelled")
            raise
        finally:
            self.felt.append("tidied")
        return "never"


# --- answers ------------------------------------------------------------------------------------------------------


async def test_an_answer_is_json_by_default(http):
    reply = await http.tool("echo", {"text": "hi"})
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["content-length"] == str(len(reply.body))
    assert reply.result["content"] == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize("id_", [0, "", "abc", -1, 2**70])
async def test_ids_are_echoed_in_results_and_in_errors(http, id_):
    assert (await http.tool("echo", id=id_)).message["id"] == id_
    assert (await http.tool("none", id=id_)).message["id"] == id_
    assert (await http.call("no/method", id=id_)).message["id"] == id_
    assert (await http.call("tools/list", id=id_, version="v0", headers={"mcp-protocol-version": "v0"})).message[
        "id"
    ] == id_


async def test_the_answer_becomes_a_stream_with_the_first_notification(app, http):
    reached = asyncio.Event()

    @app.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1)
        await reached.wait()
        return "done"

    exchange = http.open(tool_call("slow", progress="t"))
    first = await exchange.next_message()
    assert first["params"] == {"progressToken": "t", "progress": 1}
    assert exchange.status == 200
    assert exchange.headers["content-type"] == "text/event-stream"
    assert exchange.headers["x-accel-buffering"] == "no"
    assert exchange.headers["cache-control"] == "no-cache, no-transform"
    assert not exchange.ended
    reached.set()
    reply = await exchange.reply()
    assert reply.result["content"][0]["text"] == "done"


async def test_a_stream_carries_the_notifications_and_then_the_result(http):
    reply = await http.tool("work", {"steps": 2}, progress="t", log_level="debug")
    assert reply.is_stream
    assert [message.get("method", "result") for message in reply.messages] == [
        "notifications/progress",
        "notifications/message",
        "notifications/progress",
        "notifications/message",
        "result",
    ]


async def test_a_stream_ends_with_an_error_if_that_is_how_it_ended(app, http, caplog):
    @app.tool
    async def fail(ctx: Context) -> str:
        await ctx.progress(1)
        raise RuntimeError("no")

    reply = await http.tool("fail", progress="t")
    assert (reply.status, reply.is_stream, reply.error["code"]) == (200, True, -32603)


async def test_a_stream_ends_well_even_if_the_result_cannot_be_sent(app, http, caplog):
    @app.tool
    async def odd(ctx: Context) -> str:
        await ctx.progress(1)
        return "\ud800"

    reply = await http.tool("odd", progress="t")
    assert reply.error["code"] == -32603


async def test_notifications_that_nobody_asked_for_make_no_stream(http):
    reply = await http.tool("work")
    assert not reply.is_stream


async def test_no_event_is_torn_apart_by_what_it_says(app, http):
    @app.tool
    async def tricky(ctx: Context) -> str:
        await ctx.log("info", "a\n\ndata: b\r\n\u2028")
        return "x\n\nevent: y"

    reply = await http.tool("tricky", log_level="info")
    assert reply.messages[0]["params"]["data"] == "a\n\ndata: b\r\n\u2028"
    assert reply.result["content"][0]["text"] == "x\n\nevent: y"


async def test_notifications_from_many_tasks_do_not_mix(app, http):
    @app.tool
    async def crowd(ctx: Context) -> str:
        await asyncio.gather(*(ctx.log("info", "x" * 50 + str(number)) for number in range(20)))
        return "done"

    reply = await http.tool("crowd", log_level="info")
    assert len(reply.messages) == 21


async def test_a_notification_is_accepted_without_a_word(http):
    reply = await http.post(CANCELLED, headers={"mcp-method": None, "mcp-protocol-version": None})
    assert (reply.status, reply.body) == (202, b"")
    assert "content-type" not in reply.headers


async def test_any_notification_is_accepted(http):
    reply = await http.post({"jsonrpc": "2.0", "method": "notifications/com.example"})
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.parametrize("message", [{**CANCELLED, "params": []}, {**CANCELLED, "jsonrpc": "1.0"}])
async def test_a_broken_notification_is_a_bad_request(http, message):
    reply = await http.post(message)
    assert (reply.status, reply.error["code"]) == (400, -32600)


# --- what a client accepts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json, text/event-stream", "json"),
        ("text/event-stream, application/json", "json"),
        ("APPLICATION/JSON;q=0.9,Text/Event-Stream", "json"),
        ("*/*", "json"),
        (None, "json"),
        ("application/json", "json"),
        ("application/*", "json"),
        ("text/event-stream", "stream"),
        ("text/*", "stream"),
        ("application/json;q=0, text/event-stream", "stream"),
        ("text/event-stream, application/json; q=0.0", "stream"),
    ],
)
async def test_the_answer_comes_as_the_client_takes_it(http, accept, kind):
    reply = await http.tool("echo", headers={"accept": accept})
    assert reply.status == 200
    assert reply.is_stream == (kind == "stream")
    assert reply.result["content"][0]["text"] == "x"


async def test_a_client_that_takes_only_json_gets_no_notifications(http):
    reply = await http.tool("work", progress="t", log_level="debug", headers={"accept": "application/json"})
    assert not reply.is_stream
    assert reply.result["content"][0]["text"] == "done"


async def test_a_client_that_takes_only_streams_gets_its_errors_too(http):
    reply = await http.tool("none", headers={"accept": "text/event-stream"})
    assert reply.is_stream
    assert reply.error["code"] == -32602


@pytest.mark.parametrize("accept", ["text/html", "", "application/xml, image/*", "application/json;q=0, */*;q=0"])
async def test_what_cannot_be_answered_acceptably_is_406(http, accept):
    reply = await http.tool("echo", headers={"accept": accept})
    assert reply.status == 406
    assert "application/json" in reply.error["message"]


@pytest.mark.parametrize("order", [1, -1])
async def test_accept_may_come_in_two_lines(http, order):
    # RFC 9110, Field Order: several lines of a list-valued field are one list.
    lines = [(b"accept", b"application/json"), (b"accept", b"text/event-stream")][::order]
    message = tool_call("work", progress="t")
    reply = await http.post(message, headers={"accept": None}, pairs=lines)
    assert reply.is_stream
    assert reply.messages[0]["method"] == "notifications/progress"
    reply = await http.post(tool_call("echo"), headers={"accept": None}, pairs=lines)
    assert not reply.is_stream


# --- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS"])
async def test_only_post_is_spoken(http, verb):
    reply = await http.post(b"", verb=verb)
    assert reply.status == 405
    assert reply.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/", "/other", "/mcp/more", "/mcpx", ""])
async def test_other_paths_are_not_found(http, path):
    assert (await http.post(tool_call("echo"), path=path)).status == 404


@pytest.mark.parametrize("path", ["/mcp", "/mcp/"])
async def test_the_endpoint_may_have_a_slash_at_its_end(http, path):
    assert (await http.post(tool_call("echo"), path=path)).status == 200


@pytest.mark.parametrize(("path", "asked"), [("/", "/"), ("/a/b", "/a/b"), ("/a/b/", "/a/b"), ("/a/b", "/a/b/")])
async def test_the_path_can_be_chosen(app, path, asked):
    assert (await Http(app.asgi(path=path)).post(tool_call("echo"), path=asked)).status == 200


def test_a_path_begins_with_a_slash(app):
    with pytest.raises(ValueError, match="'mcp'"):
        app.asgi(path="mcp")


@pytest.mark.parametrize("kind", [None, "", "text/plain", "application/jsonx", "application/x-www-form-urlencoded"])
async def test_another_content_type_is_415(http, kind):
    reply = await http.tool("echo", headers={"content-type": kind})
    assert reply.status == 415
    assert "application/json" in reply.error["message"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"])
async def test_the_content_type_may_have_parameters(http, kind):
    assert (await http.tool("echo", headers={"content-type": kind})).status == 200


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'{"a":"\xff"}', -32700),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]', -32600),
        (b'"text"', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}', -32600),
        (b'{"jsonrpc":"2.0","method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', -32600),
        (b'{"id":1,"method":"tools/list"}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"a":' * 100_000, -32600),
        (b"[" * 100_000, -32600),
        (b'{"a":' * 65 + b"1" + b"}" * 65, -32600),
    ],
    ids=range(18),
)
async def test_what_is_no_request_is_a_clear_protocol_error_with_status_400(http, body, code):
    reply = await http.open(body).reply()
    assert reply.status == 400
    check_reply({"id": 1}, reply.message)
    assert reply.error["code"] == code


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"mcp-protocol-version": None}, 400, -32020),
        ({"mcp-protocol-version": "2025-11-25"}, 400, -32020),
        ({"mcp-method": None}, 400, -32020),
        ({"mcp-method": "tools/list"}, 400, -32020),
        ({"mcp-method": "TOOLS/CALL"}, 400, -32020),
        ({"mcp-name": None}, 400, -32020),
        ({"mcp-name": "other"}, 400, -32020),
        ({"mcp-name": b"\xff"}, 400, -32020),
        ({"mcp-name": "=?base64?!?="}, 400, -32020),
        ({"mcp-name": "=?base64?ZWNobw==?="}, 200, None),
        ({"mcp-name": " echo "}, 200, None),
        ({"mcp-session-id": "s", "last-event-id": "7"}, 200, None),
        ({"mcp-param-unknown": "x"}, 200, None),
    ],
)
async def test_the_headers_are_held_against_the_body(http, change, status, code):
    reply = await http.tool("echo", headers=change)
    assert reply.status == status
    assert reply.message["id"] == 1
    if code is not None:
        assert reply.error["code"] == code
    assert "mcp-session-id" not in reply.headers


async def test_an_unspoken_revision_is_400_and_names_ours(http):
    reply = await http.call("tools/list", version="v999.0.0", headers={"mcp-protocol-version": "v999.0.0"})
    assert (reply.status, reply.error["code"]) == (400, -32022)
    assert reply.error["data"] == {"supported": [REVISION], "requested": "v999.0.0"}


@pytest.mark.parametrize("gone", ["protocolVersion", "clientCapabilities", None])
async def test_missing_meta_is_400_and_invalid_params(http, gone):
    message = request("server/discover")
    if gone is None:
        del message["params"]["_meta"]
    else:
        del message["params"]["_meta"][f"io.modelcontextprotocol/{gone}"]
    reply = await http.post(message)
    assert (reply.status, reply.error["code"]) == (400, -32602)


async def test_an_unknown_method_is_404(http):
    reply = await http.call("no/method")
    assert (reply.status, reply.error["code"]) == (404, -32601)


async def test_a_missing_capability_is_400(app, http):
    @app.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.sample("hi", max_tokens=5)).text

    reply = await http.tool("ask")
    assert (reply.status, reply.error["code"]) == (400, -32021)
    assert reply.error["data"]["requiredCapabilities"] == {"sampling": {}}


@pytest.mark.parametrize(
    "pairs",
    [
        [(b"mcp-method", b"tools/call")],
        [(b"mcp-method", b"tools/list")],
        [(b"mcp-name", b"other")],
        [(b"mcp-protocol-version", b"2025-11-25")],
        [(b"mcp-param-x", b"1"), (b"mcp-param-x", b"2")],
        [(b"content-type", b"text/plain")],
        [(b"host", b"localhost")],
    ],
)
async def test_a_header_that_counts_may_not_be_given_twice(http, pairs):
    reply = await http.post(tool_call("echo"), pairs=pairs)
    assert reply.status in {400, 415}
    assert "error" in reply.message


async def test_headers_that_do_not_count_may_come_twice(http):
    pairs = [(b"cookie", b"a"), (b"cookie", b"b"), (b"x-forwarded-for", b"1"), (b"x-forwarded-for", b"2")]
    assert (await http.post(tool_call("echo"), pairs=pairs)).status == 200


async def test_too_many_or_too_large_headers_are_431(http):
    many = [(b"x-%d" % number, b"y") for number in range(asgi.MAX_HEADERS)]
    assert (await http.post(tool_call("echo"), pairs=many)).status == 431
    assert (await http.tool("echo", headers={"x-large": "y" * asgi.MAX_HEADER_BYTES})).status == 431
    repeated = [(b"x-same", b"y" * 1024)] * 100
    assert (await http.post(tool_call("echo"), pairs=repeated)).status == 431
    named = [(b"x" * asgi.MAX_HEADER_BYTES, b"y")]
    assert (await http.post(tool_call("echo"), pairs=named)).status == 431


async def test_a_name_too_large_for_its_header_is_no_more_trouble_than_others(http):
    assert (await http.tool("x" * 1000)).error["code"] == -32602


# --- bodies -------------------------------------------------------------------------------------------------------


def sized(length):
    """A good request of exactly so many bytes."""
    message = tool_call("echo", {"text": ""})
    short = json.dumps(message).encode()
    message["params"]["arguments"]["text"] = "x" * (length - len(short))
    return message, json.dumps(message).encode()


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("pieces", [1, 7])
async def test_a_body_may_be_as_large_as_the_limit_and_no_larger(app, announced, pieces):
    http = Http(app.asgi(max_body=2000))
    for length, status in ((2000, 200), (2001, 413), (500_000, 413)):
        message, body = sized(length)
        step = -(-length // pieces)
        chunks = [body[start : start + step] for start in range(0, length, step)]
        headers = {"content-length": str(length)} if announced else None
        reply = await http.post(body, message=message, chunks=chunks, headers=headers)
        assert reply.status == status, length


async def test_the_limit_is_four_mebibytes_unless_said_otherwise(http):
    message, body = sized(4 * 1024 * 1024)
    assert (await http.post(body, message=message)).status == 200
    message, body = sized(4 * 1024 * 1024 + 1)
    assert (await http.post(body, message=message)).status == 413


async def test_a_body_that_announces_too_much_is_not_read(app):
    http = Http(app.asgi(max_body=1000))
    exchange = http.open(b"", chunks=[], headers={"content-length": "99999999"})
    assert (await exchange.reply()).status == 413


async def test_an_endless_body_is_cut_off(app):
    read = []

    class Endless(list):
        def pop(self, index):
            read.append(1)
            return b"x" * 1000

    http = Http(app.asgi(max_body=10_000))
    exchange = http.open(b"", chunks=Endless([b""]))
    assert (await exchange.reply()).status == 413
    assert len(read) < 20


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_a_body_may_come_in_chunks(http, size):
    message = tool_call("echo", {"text": "héllo"})
    body = json.dumps(message, ensure_ascii=False).encode()
    chunks = [body[start : start + size] for start in range(0, len(body), size)]
    chunks[1:1] = [b""]
    reply = await http.post(body, message=message, chunks=chunks)
    assert reply.result["content"][0]["text"] == "héllo"


@pytest.mark.parametrize("length", ["-5", "abc", "1e3", "9" * 5000, ""])
async def test_a_nonsensical_length_is_no_crash(http, length):
    reply = await http.tool("echo", headers={"content-length": length})
    assert reply.status in {200, 400, 413}


@pytest.mark.parametrize("chunks", [[], [b'{"json', b'rpc":']])
async def test_a_client_that_leaves_while_it_sends_is_let_go(http, chunks):
    events = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    events.append({"type": "http.disconnect"})
    sent = []

    async def receive():
        return events.pop(0)

    async def send(event):
        sent.append(event)

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": _raw(tool_call("echo"))}
    await asyncio.wait_for(http.app(scope, receive, send), 5)
    assert sent == []


def _raw(message):
    return [(name.encode(), value.encode()) for name, value in headers_for(message).items()]


# --- Host and Origin ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST:1", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:8000"]
)
async def test_local_hosts_are_served(http, host):
    assert (await http.tool("echo", headers={"host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:8000",
        "localhost.evil.com",
        "evil.com#localhost",
        "localhost@evil.com",
        "evil.com/localhost",
        "127.0.0.2",
        "127.0.0.1.evil.com",
        "localhost:8000:9",
        "localhost:",
        "localhost:x",
        "[::1",
        "::1",
        "0.0.0.0",
        "",
        None,
        b"\xff\xfe",
    ],
)
async def test_other_hosts_are_forbidden(http, host):
    reply = await http.tool("echo", headers={"host": host})
    assert reply.status == 403
    assert "id" not in reply.message
    assert "allowed_hosts" in reply.error["message"]


@pytest.mark.parametrize("origin", ["http://localhost", "http://localhost:3000", "https://127.0.0.1", "http://[::1]:1"])
async def test_local_origins_are_served(http, origin):
    assert (await http.tool("echo", headers={"origin": origin})).status == 200


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example.com",
        "https://localhost.evil.com",
        "http://localhost@evil.com",
        "http://evil.com/http://localhost",
        "null",
        "",
        "localhost",
        "file://localhost",
        "chrome-extension://localhost",
        "http://",
        b"\xff",
    ],
)
async def test_other_origins_are_forbidden(http, origin):
    reply = await http.tool("echo", headers={"origin": origin})
    assert reply.status == 403
    assert "id" not in reply.message
    assert "allowed_origins" in reply.error["message"]


async def test_two_origins_of_which_one_is_foreign_are_refused(http):
    for first, second in ((b"http://evil.com", b"http://localhost"), (b"http://localhost", b"http://evil.com")):
        reply = await http.post(tool_call("echo"), pairs=[(b"origin", first), (b"origin", second)])
        assert reply.status in {400, 403}


@pytest.mark.parametrize("verb", ["GET", "POST", "OPTIONS"])
async def test_a_foreign_origin_is_told_nothing_but_no(http, verb):
    assert (await http.post(b"", verb=verb, headers={"origin": "http://evil.com"})).status == 403


async def test_hosts_and_origins_can_be_chosen(app):
    http = Http(
        app.asgi(allowed_hosts=["api.example.com", "b.example.com:81"], allowed_origins=["https://app.example.com"])
    )

    async def status(host, origin=None):
        return (await http.tool("echo", headers={"host": host, "origin": origin})).status

    assert await status("api.example.com") == 200
    assert await status("API.example.com:1234") == 200
    assert await status("b.example.com:81") == 200
    assert await status("b.example.com:82") == 403
    assert await status("localhost") == 403
    assert await status("api.example.com", "https://app.example.com") == 200
    assert await status("api.example.com", "http://localhost") == 403


@pytest.mark.parametrize("origin", ["http://app.example.com", "https://app.example.com:8443"])
async def test_an_origin_given_as_a_url_is_that_origin_and_no_other(app, origin):
    # RFC 6454: scheme, host and port make an origin. Plain http can be forged by whoever is on the way.
    http = Http(app.asgi(allowed_origins=["https://app.example.com"]))
    assert (await http.tool("echo", headers={"origin": origin})).status == 403


async def test_a_star_allows_everybody(app):
    http = Http(app.asgi(allowed_hosts=["*"], allowed_origins=["*"]))
    assert (await http.tool("echo", headers={"host": "any.example.com", "origin": "https://other.com"})).status == 200
    assert (await http.tool("echo", headers={"host": None})).status == 200


async def test_one_host_need_not_be_in_a_list(app):
    http = Http(app.asgi(allowed_hosts="example.com"))
    assert (await http.tool("echo", headers={"host": "example.com"})).status == 200
    assert (await http.tool("echo", headers={"host": "e"})).status == 403


async def test_a_flood_of_hosts_and_accepts_fills_no_memory(http):
    for number in range(600):
        await http.tool("echo", headers={"host": f"h{number}", "origin": f"http://o{number}"})
        await http.tool("echo", headers={"accept": f"application/json;x={number}"})
    held = [len(cache) for cache in (http.app._hosts._known, http.app._origins._known, http.app._admitted)]
    assert max(held) <= 256
    assert (await http.tool("echo", headers={"host": "localhost:1"})).status == 200
    assert (await http.tool("echo", headers={"host": "new.evil.com"})).status == 403


# --- pages of other origins ---------------------------------------------------------------------------------------

PAGE = "https://app.example.com"


def shared(app, **options):
    return Http(app.asgi(allowed_origins=[PAGE], **options), origin=PAGE)


async def preflight(http, wanted="POST", **headers):
    about = {"access-control-request-method": wanted, "content-type": None, "accept": "*/*", **headers}
    return await http.open(b"", verb="OPTIONS", headers=about, message={}).reply()


async def test_a_page_of_an_allowed_origin_may_ask_and_then_send(app):
    http = shared(app)
    allowed = await preflight(http, **{"access-control-request-headers": "authorization,content-type,mcp-method"})
    assert (allowed.status, allowed.body) == (204, b"")
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert "POST" in allowed.headers["access-control-allow-methods"].split(", ")
    names = set(allowed.headers["access-control-allow-headers"].split(", "))
    assert {"authorization", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "*"} <= names
    assert {"mcp-session-id", "last-event-id"} <= names
    assert int(allowed.headers["access-control-max-age"]) > 0
    assert_readable(await http.tool("echo"))


def assert_readable(reply, origin=PAGE):
    assert reply.headers["access-control-allow-origin"] == origin
    assert reply.headers["vary"] == "origin"
    assert {"mcp-session-id", "www-authenticate"} <= set(reply.headers["access-control-expose-headers"].split(", "))


async def test_a_page_of_an_allowed_origin_can_read_every_response(app):
    http = shared(app)
    assert_readable(await http.tool("work", progress="t"))  # a stream
    assert_readable(await http.call("nothing/known"))
    assert_readable(await http.open(b"{").reply())
    assert_readable(await http.tool("echo", headers={"content-type": "text/plain"}))


async def test_an_origin_that_is_not_allowed_may_not_even_ask(app):
    http = shared(app)
    asked = await preflight(http, origin="https://evil.example")
    sent = await http.tool("echo", headers={"origin": "https://evil.example"})
    assert asked.status == sent.status == 403
    unsaid = await http.tool("echo", headers={"origin": None})
    for reply in (asked, sent, unsaid):
        assert not [name for name in reply.headers if name.startswith("access-control-") or name == "vary"]
    elsewhere = await preflight(http, host="evil.example")
    assert elsewhere.status == 403
    assert "access-control-allow-methods" not in elsewhere.headers


async def test_options_is_not_spoken_otherwise(app):
    http = shared(app)
    for headers in ({"origin": None}, {"access-control-request-method": None}):
        reply = await preflight(http, **headers)
        assert reply.status == 405
        assert reply.headers["allow"] == "POST"


# --- who is asking ------------------------------------------------------------------------------------------------


async def test_a_refusal_of_a_principal_may_say_how_to_sign_in(app):
    def strict(scope):
        raise InvalidRequest("Sign in first", status=401, headers={"WWW-Authenticate": 'Bearer scope="notes"'})

    reply = await shared(app, principal=strict).tool("echo")
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Bearer scope="notes"'
    assert reply.error["message"] == "Sign in first"
    assert_readable(reply)


async def test_a_principal_that_cannot_be_told_is_refused_and_logged(app, caplog):
    def broken(scope):
        raise RuntimeError("the password is 1234")

    with caplog.at_level(logging.ERROR, "antiphon"):
        reply = await Http(app.asgi(principal=broken)).tool("echo")
    assert "error" in reply.message
    assert "1234" not in reply.body.decode()
    assert "the password is 1234" in caplog.text


# --- clients that go away -----------------------------------------------------------------------------------------


async def test_closing_the_stream_cancels_the_handler(app, http):
    patient = Patient(app, talks=True)
    exchange = http.open(tool_call("wait", progress="t"))
    await asyncio.wait_for(patient.started.wait(), 5)
    exchange.disconnect()
    await exchange.finished()
    assert patient.felt == ["cancelled", "tidied"]
    assert exchange.late == []


async def test_a_quiet_handler_is_cancelled_too(app, http, monkeypatch):
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    patient = Patient(app, talks=False)
    exchange = http.open(tool_call("wait"))
    await asyncio.wait_for(patient.started.wait(), 5)
    exchange.disconnect()
    await exchange.finished()
    assert patient.felt == ["cancelled", "tidied"]
    assert exchange.late == []


async def test_a_quiet_handler_is_watched_on_a_later_event_loop_too(app, monkeypatch):
    # Test clients and some hosts use one application from one loop after another.
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    http = Http(app.asgi())
    await asyncio.to_thread(lambda: asyncio.run(http.tool("echo")))
    patient = Patient(app, talks=False)
    exchange = http.open(tool_call("wait"))
    await asyncio.wait_for(patient.started.wait(), 5)
    exchange.disconnect()
    try:
        async with asyncio.timeout(2):
            await exchange.finished()
    finally:
        exchange.task.cancel()
    assert patient.felt == ["cancelled", "tidied"]


async def test_a_handler_that_outlasts_the_watch_still_answers(app, http, monkeypatch):
    monkeypatch.setattr(asgi, "PATIENCE", 0.005)
    released = asyncio.Event()

    @app.tool
    async def slow() -> str:
        await released.wait()
        return "done"

    exchange = http.open(tool_call("slow"))
    await asyncio.wait_for(exchange.watched.wait(), 5)
    released.set()
    reply = await exchange.reply()
    assert not reply.is_stream
    assert reply.result["content"][0]["text"] == "done"


async def test_one_client_that_goes_away_takes_nobody_along(app, http):
    patient = Patient(app, talks=True)
    leaving = http.open(tool_call("wait", progress="t", id=1))
    await asyncio.wait_for(patient.started.wait(), 5)
    patient.started.clear()
    staying = http.open(tool_call("wait", progress="t", id=2))
    await asyncio.wait_for(patient.started.wait(), 5)
    leaving.disconnect()
    await leaving.finished()
    assert not staying.task.done()
    assert (await http.tool("echo")).status == 200
    staying.disconnect()
    await staying.finished()


async def test_nothing_is_sent_after_the_client_has_gone(app, http):
    # basic/patterns/cancellation: the server "MUST NOT send any further messages for it".
    started = asyncio.Event()

    @app.tool
    async def stubborn(ctx: Context) -> str:
        await ctx.progress(1)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.progress(2)
            await ctx.log("info", "still here")
        return "an answer for nobody"

    exchange = http.open(tool_call("stubborn", progress="t", log_level="debug"))
    await asyncio.wait_for(started.wait(), 5)
    exchange.disconnect()
    await exchange.finished()
    assert exchange.late == []


async def test_an_application_that_is_cancelled_by_its_host_says_so(app, http):
    patient = Patient(app, talks=True)
    exchange = http.open(tool_call("wait", progress="t"))
    await asyncio.wait_for(patient.started.wait(), 5)
    exchange.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await exchange.task
    assert patient.felt == ["cancelled", "tidied"]


async def test_a_connection_that_breaks_while_the_answer_is_sent_is_no_failure(app, caplog):
    async def send(event):
        raise OSError("broken pipe")

    body = [{"type": "http.request", "body": json.dumps(tool_call("echo")).encode()}]

    async def receive():
        return body.pop()

    scope = {"type": "http", "method": "POST", "path": "/mcp", "headers": _raw(tool_call("echo"))}
    with caplog.at_level(logging.ERROR, "antiphon"):
        await app.asgi()(scope, receive, send)
    assert caplog.text == ""


async def test_no_task_is_left_behind(app, http, monkeypatch):
    monkeypatch.setattr(asgi, "PATIENCE", 0.001)
    before = asyncio.all_tasks()
    await http.tool("work", progress="t")
    await http.tool("echo")
    patient = Patient(app, talks=True)
    exchange = http.open(tool_call("wait", progress="t"))
    await asyncio.wait_for(patient.started.wait(), 5)
    exchange.disconnect()
    await exchange.finished()
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
    assert http.app._under_way == set()


async def test_a_cancellation_inside_a_handler_still_gets_an_answer(app, http):
    @app.tool
    async def clumsy() -> str:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner
        return "never"

    reply = await http.tool("clumsy")
    assert (reply.status, reply.error["code"]) == (200, -32603)


# --- other scopes -------------------------------------------------------------------------------------------------


async def test_a_websocket_is_closed_politely(http):
    sent = []

    async def receive():
        return {"type": "websocket.connect"}

    async def send(event):
        sent.append(event)

    await http.app({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)
    assert [(event["type"], event["code"]) for event in sent] == [("websocket.close", 1008)]


async def test_an_unknown_scope_is_an_error(http):
    with pytest.raises(RuntimeError, match="'smtp'"):
        await http.app({"type": "smtp"}, None, None)


# --- mounted in other applications --------------------------------------------------------------------------------


async def exchange_with(host, url):
    """A call through a host application, by a real HTTP client library."""
    transport = httpx.ASGITransport(host)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        message = tool_call("echo", {"text": "mounted"})
        headers = {**headers_for(message), "host": "localhost:8000"}
        return message, await client.post(url, json=message, headers=headers)


async def assert_serves(host, url):
    message, response = await exchange_with(host, url)
    assert response.status_code == 200, response.text
    check_reply(message, response.json())
    assert response.json()["result"]["content"][0]["text"] == "mounted"


@pytest.mark.parametrize("url", ["/api", "/api/", "/api/mcp", "/api/mcp/"])
async def test_mounted_into_starlette_under_a_prefix(app, url):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/api", app.asgi())])
    if url == "/api":
        # Starlette itself redirects to the slash.
        assert (await exchange_with(host, url))[1].status_code == 307
    else:
        await assert_serves(host, url)


@pytest.mark.parametrize("prefix", ["", "/"])
async def test_mounted_into_starlette_at_its_root(app, prefix):
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route

    async def home(request):
        return PlainTextResponse("home")

    host = Starlette(routes=[Route("/home", home), Mount(prefix, app.asgi())])
    await assert_serves(host, "/mcp")
    _, response = await exchange_with(host, "/elsewhere")
    assert response.status_code == 404


async def test_mounted_into_starlette_as_a_route(app):
    from starlette.applications import Starlette
    from starlette.routing import Route

    await assert_serves(Starlette(routes=[Route("/mcp", app.asgi(), methods=["POST"])]), "/mcp")


@pytest.mark.parametrize("url", ["/tools/", "/tools/mcp"])
async def test_mounted_into_fastapi(app, url):
    from fastapi import FastAPI

    host = FastAPI()
    host.mount("/tools", app.asgi())
    await assert_serves(host, url)


async def test_a_host_application_runs_the_lifespan_as_its_own():
    from contextlib import asynccontextmanager

    from starlette.applications import Starlette
    from starlette.routing import Mount

    diary = []

    @asynccontextmanager
    async def life(server):
        diary.append("up")
        yield "state"
        diary.append("down")

    app = Server("tests", lifespan=life)

    @app.tool
    async def echo(text: str, ctx: Context) -> str:
        return text if ctx.lifespan == "state" else "no lifespan"

    @asynccontextmanager
    async def hosts_life(host):
        async with app.running():
            yield

    host = Starlette(routes=[Mount("/api", app.asgi())], lifespan=hosts_life)
    async with host.router.lifespan_context(host):
        assert diary == ["up"]
        await assert_serves(host, "/api/mcp")
    assert diary == ["up", "down"]


async def test_a_host_application_that_runs_no_lifespan_is_served_all_the_same():
    from contextlib import asynccontextmanager

    from fastapi import FastAPI

    @asynccontextmanager
    async def life(server):
        yield "state"

    app = Server("tests", lifespan=life)

    @app.tool
    async def echo(text: str, ctx: Context) -> str:
        return text if ctx.lifespan == "state" else "no lifespan"

    host = FastAPI()
    host.mount("/tools", app.asgi())
    await assert_serves(host, "/tools/mcp")


async def test_mounted_with_a_host_check_of_its_own(app):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    host = Starlette(routes=[Mount("/api", app.asgi())])
    transport = httpx.ASGITransport(host)
    async with httpx.AsyncClient(transport=transport, base_url="http://evil.example.com") as client:
        message = tool_call("echo")
        headers = {name: value for name, value in headers_for(message).items() if name != "host"}
        response = await client.post("/api/mcp", json=message, headers=headers)
    assert response.status_code == 403


# --- a real server ------------------------------------------------------------------------------------------------


def post(port, message, **how):
    return httpx.post(f"http://127.0.0.1:{port}/mcp", json=message, headers=_without_host(message), timeout=10, **how)


def _without_host(message):
    return {name: value for name, value in headers_for(message).items() if name != "host"}


def test_a_real_server_answers_with_json_and_with_streams(app, live):
    port = live(app.asgi())
    response = post(port, tool_call("echo", {"text": "héllo"}))
    assert response.status_code == 200
    assert response.json()["result"]["content"][0]["text"] == "héllo"
    response = post(port, tool_call("work", progress="t"))
    assert response.headers["content-type"] == "text/event-stream"
    assert response.text.count("data:") == 3
    assert "server" not in response.headers


def test_a_real_server_serves_many_at_once(app, live):
    gate = asyncio.Barrier(8)

    @app.tool
    async def meet() -> str:
        async with asyncio.timeout(5):
            await gate.wait()
        return "met"

    port = live(app.asgi())
    answers = []
    clients = [
        threading.Thread(target=lambda number=number: answers.append(post(port, tool_call("meet", id=number)).json()))
        for number in range(8)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join(10)
    assert sorted(answer["id"] for answer in answers) == list(range(8))
    assert all(answer["result"]["content"][0]["text"] == "met" for answer in answers)


@pytest.mark.parametrize("talks", [True, False])
async def test_a_real_connection_that_closes_cancels_its_handler(app, live, monkeypatch, talks):
    monkeypatch.setattr(asgi, "PATIENCE", 0.01)
    started, ended = threading.Event(), threading.Event()

    @app.tool
    async def wait(ctx: Context) -> None:
        if talks:
            await ctx.progress(1)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    port = live(app.asgi())
    message = tool_call("wait", progress="t")
    body = json.dumps(message).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "".join(f"{name}: {value}\r\n" for name, value in headers_for(message).items())
    writer.write(f"POST /mcp HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert await asyncio.to_thread(started.wait, 5)
    if talks:
        await asyncio.wait_for(reader.readuntil(b"data: "), 5)
    writer.close()
    assert await asyncio.to_thread(ended.wait, 5)


def test_a_real_server_refuses_what_it_should(app, live):
    port = live(app.asgi())
    url = f"http://127.0.0.1:{port}/mcp"
    good = _without_host(tool_call("echo"))
    assert httpx.get(url).status_code == 405
    assert httpx.delete(url).headers["allow"] == "POST"
    assert httpx.post(url, content=b"{", headers=good).status_code == 400
    assert httpx.post(url, content=b"{}", headers={**good, "host": "evil.example.com"}).status_code == 403
    assert httpx.post(url, content=b"{}", headers={**good, "origin": "http://evil.example.com"}).status_code == 403
    assert httpx.post(url, content=b"{}", headers={**good, "content-type": "text/plain"}).status_code == 415
    assert httpx.post(url, content=b"x" * (4 * 1024 * 1024 + 1), headers=good).status_code == 413
    assert httpx.post(url, content=iter([b"x" * 1024 * 1024] * 5), headers=good).status_code == 413
    assert post(port, {"jsonrpc": "2.0", "method": "notifications/x"}).status_code == 202
    assert post(port, tool_call("echo")).status_code == 200


RUN = """
import asyncio, socket
from antiphon import Context, Server
from antiphon.transports import serve

app = Server("tests")

@app.tool
async def slow(ctx: Context) -> str:
    await ctx.progress(1)
    while not app.subscriptions.closing:  # until the server is told to stop
        await asyncio.sleep(0.01)
    return "finished"

# Whoever connects before the server is up waits in the queue.
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
serve.run(app.asgi(), sockets=[listening])
"""


@pytest.fixture
def running():
    process = subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


async def test_a_server_that_is_told_to_stop_finishes_what_is_under_way_and_ends_its_streams(running):
    port = int(running.stdout.readline())
    listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l")
    slow = tool_call("slow", progress="t", id="s")
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client,
        client.stream("POST", "/mcp", json=listen, headers=_without_host(listen)) as listening,
        client.stream("POST", "/mcp", json=slow, headers=_without_host(slow)) as working,
    ):
        news, results = listening.aiter_lines(), working.aiter_lines()
        assert "acknowledged" in await _data(news)
        assert "progress" in await _data(results)
        running.terminate()
        assert "finished" in await _data(results)
        closed = json.loads(await _data(news))
    check_reply(listen, closed)
    assert closed["result"]["_meta"][SUBSCRIPTION] == "l"
    await asyncio.to_thread(running.wait, 5)
    assert "Traceback" not in running.stderr.read()


async def _data(lines):
    async with asyncio.timeout(5):
        async for line in lines:
            if line.startswith("data: "):
                return line.removeprefix("data: ")
    raise AssertionError("the stream ended")
