"""Servers that fail in every way: the right error, soon, and nothing left running.

What is left running is looked for after every test here, by the fixture in conftest.py.
"""

import asyncio
import contextlib
import email.utils
import json
import signal
import socket
import sys
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from antiphon import Accepted, CallTimeout, Change, Client, Disconnected, PeerBroken, Refused
from antiphon.http import client as http1
from antiphon.transports import stdio_client as child
from antiphon.transports.http_client import HttpLink
from antiphon.transports.stdio_client import ChildLink

from .hostile import DONE, END, STREAM, answer, asking, chunk, event, result
from .until import until

SOON = 5.0
"""Seconds within which an error that needs no waiting must have come."""
LIMIT = 0.3
"""The timeout of calls that are meant to run into it."""


@contextlib.asynccontextmanager
async def soon(seconds=SOON):
    async with asyncio.timeout(seconds):
        yield


def yes(_question):
    return Accepted({"confirm": True})


async def call(server, *, timeout=60.0, **options):
    async with soon(), Client(server.url, elicit=yes, timeout=timeout) as client:
        return await client.call_tool("x", **options)


# --- HTTP: the connection dies ------------------------------------------------------------------------------------


async def test_killed_before_the_request_is_read(hostile):
    async def behave(server, reader, writer):
        writer.transport.abort()

    with pytest.raises(Disconnected):
        await call(await hostile(behave))


async def test_killed_before_the_headers(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.transport.abort()

    server = await hostile(behave)
    with pytest.raises(Disconnected, match="before it had answered"):
        await call(server)
    assert len(server.requests) == 1, "a call that may have been served is not sent twice"


async def test_killed_in_the_middle_of_the_headers(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Ty")
        await writer.drain()

    with pytest.raises(Disconnected, match="before it had answered"):
        await call(await hostile(behave))


async def test_killed_in_the_middle_of_the_body(hostile):
    async def behave(server, reader, writer):
        writer.write(answer(result(await server.request(reader)))[:-20])
        await writer.drain()

    with pytest.raises(Disconnected, match="in the middle of its answer"):
        await call(await hostile(behave))


@pytest.mark.parametrize("violently", [True, False])
async def test_killed_in_the_middle_of_a_stream(hostile, violently):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(STREAM + event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}))
        writer.write(event(result(message))[:30])
        await writer.drain()
        if violently:
            writer.transport.abort()

    with pytest.raises(Disconnected, match="in the middle of its answer"):
        await call(await hostile(behave))


async def test_a_stream_that_ends_without_an_answer(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(STREAM + chunk(b": nothing to say\n\n") + END)
        await reader.read()

    with pytest.raises(Disconnected, match="before it had answered"):
        await call(await hostile(behave))


async def test_killed_between_rounds(hostile):
    async def behave(server, reader, writer):
        writer.write(answer(asking(await server.request(reader))))
        await writer.drain()
        await server.request(reader)
        writer.transport.abort()

    server = await hostile(behave)
    with pytest.raises(Disconnected):
        await call(server)
    assert len(server.requests) == 2, "the second leg is not sent twice"


async def test_a_server_that_closes_between_rounds_and_is_back_for_the_next(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(answer(asking(message) if server.connections == 1 else result(message)))
        await writer.drain()

    server = await hostile(behave)
    gone = asyncio.Event()

    async def think(_question):
        await asyncio.sleep(0.1)
        gone.set()
        return Accepted({"confirm": True})

    async with soon(), Client(server.url, elicit=think) as client:
        assert (await client.call_tool("x")).rounds == 2
    assert gone.is_set()
    assert server.connections == 2


async def test_a_server_that_closes_while_a_handler_blocks_the_loop(hostile, live):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(answer(asking(message) if server.connections == 1 else result(message)))
        await writer.drain()

    server = await hostile(behave)

    def block(_question):
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)  # the server's close is in the socket by then
        time.sleep(0.1)
        return Accepted({"confirm": True})

    async with soon(), Client(server.url, elicit=block) as client:
        assert (await client.call_tool("x")).rounds == 2


# --- HTTP: time ---------------------------------------------------------------------------------------------------


async def test_headers_that_never_come(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        await reader.read()

    with pytest.raises(CallTimeout) as raised:
        await call(await hostile(behave), timeout=LIMIT)
    assert raised.value.waiting_for == "server"


async def test_headers_that_come_letter_by_letter(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        for letter in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"s" * 1000:
            writer.write(bytes([letter]))
            await asyncio.sleep(0.01)

    with pytest.raises(CallTimeout):
        await call(await hostile(behave), timeout=LIMIT)


async def test_headers_that_take_a_while_are_waited_for(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        for letter in answer(result(message)):
            writer.write(bytes([letter]))
            await asyncio.sleep(0)

    assert (await call(await hostile(behave))).text == "done"


async def test_an_endless_stream_of_comments_is_bounded_by_the_timeout(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(STREAM)
        while True:
            writer.write(chunk(b": still here\n\n"))
            await writer.drain()
            await asyncio.sleep(0.001)

    with pytest.raises(CallTimeout):
        await call(await hostile(behave), timeout=LIMIT)


async def test_an_endless_stream_of_progress_is_bounded_by_the_timeout(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(STREAM)
        while True:
            writer.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}))
            await writer.drain()
            await asyncio.sleep(0.001)

    seen = []
    with pytest.raises(CallTimeout):
        await call(await hostile(behave), timeout=LIMIT, progress=lambda *told: seen.append(told))
    assert seen


async def test_a_server_that_does_not_even_accept():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        with socket.create_connection(listener.getsockname()):  # the queue of length 0 holds one
            async with soon(), Client(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", timeout=LIMIT) as client:
                with pytest.raises(CallTimeout):
                    await client.call_tool("x")


async def test_a_timeout_closes_the_connection_which_cancels_the_call(hostile):
    closed = asyncio.Event()

    async def behave(server, reader, writer):
        await server.request(reader)
        await reader.read()
        closed.set()

    with pytest.raises(CallTimeout):
        await call(await hostile(behave), timeout=LIMIT)
    async with soon():
        await closed.wait()


# --- HTTP: sizes --------------------------------------------------------------------------------------------------

TEN_MEGABYTES = 10 * 1024 * 1024


def large(message, size=TEN_MEGABYTES):
    return result(message, {**DONE, "content": [{"type": "text", "text": "x" * size}]})


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_of_ten_megabytes_on_one_line_is_read(hostile, streamed):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(STREAM + event(large(message)) + END if streamed else answer(large(message)))
        await writer.drain()

    assert len((await call(await hostile(behave))).text) == TEN_MEGABYTES


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_beyond_the_limit_is_an_error_before_it_fills_the_memory(hostile, streamed):
    sent = 0

    async def behave(server, reader, writer):
        nonlocal sent
        await server.request(reader)
        writer.write(STREAM if streamed else b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(chunk(b"x" * 65536) if streamed else b"x" * 65536)
            await writer.drain()
            sent += 65536

    server = await hostile(behave)
    async with soon(), Client(HttpLink(server.url, max_reply=1024 * 1024)) as client:
        with pytest.raises(PeerBroken, match="more than 1048576 bytes|larger than 1048576 bytes"):
            await client.call_tool("x")
    assert sent < 32 * 1024 * 1024


async def test_a_head_without_end_is_an_error_before_it_fills_the_memory(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-More: " + b"x" * 1000 + b"\r\n")
            await writer.drain()

    with pytest.raises(PeerBroken, match="head"):
        await call(await hostile(behave))


async def test_an_answer_that_nobody_reads_yet_stops_the_server_and_not_the_client(hostile):
    sent = 0

    async def behave(server, reader, writer):
        nonlocal sent
        message = await server.request(reader)
        writer.write(STREAM)
        for _ in range(2000):
            writer.write(chunk(b": " + b"x" * 16384 + b"\n\n"))
            note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}
            writer.write(event(note))
            await writer.drain()
            sent += 16384
        writer.write(event(result(message)) + END)

    held = asyncio.Event()

    async def hold(*_told):
        await held.wait()

    server = await hostile(behave)
    async with soon(20), Client(server.url) as client:
        calling = asyncio.create_task(client.call_tool("x", progress=hold))
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 2000 * 16384
        held.set()
        assert (await calling).text == "done"


# --- HTTP: nonsense -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"220 mail.example.com ESMTP\r\n\r\n",
        b"\x00\x01\x02\x03\x04garbage\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nBroken header\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nxx",
    ],
)
async def test_garbage_instead_of_http(hostile, raw):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(raw)
        await reader.read()

    with pytest.raises(PeerBroken, match="HTTP response is broken"):
        await call(await hostile(behave))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b'{"jsonrpc": "2.0", "id": 1, "result": {"content": [',
        b'{"jsonrpc": "2.0"',
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_truncated_or_broken_json(hostile, body, streamed):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(STREAM + chunk(b"data: " + body + b"\n\n") + END if streamed else answer(body))
        await reader.read()

    with pytest.raises((PeerBroken, RecursionError), match="not JSON|no message"):
        await call(await hostile(behave))


async def test_a_response_to_another_request(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(answer({**result(message), "id": message["id"] + 1}))
        await reader.read()

    with pytest.raises(PeerBroken, match="answered request 2"):
        await call(await hostile(behave))


async def test_a_response_to_another_request_on_a_stream_is_passed_over(hostile):
    async def behave(server, reader, writer):
        while True:
            message = await server.request(reader)
            writer.write(STREAM + event({**result(message), "id": "other"}) + event({**result(message), "id": 99}))
            if len(server.requests) == 2:
                writer.write(event(result(message)))
            writer.write(END)

    server = await hostile(behave)
    async with soon(), Client(server.url) as client:
        with pytest.raises(Disconnected, match="before it had answered"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "done"


async def test_an_error_without_an_id_is_about_this_request(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}
        writer.write(answer(error) if server.connections == 1 else STREAM + event(error) + END)
        await reader.read()

    server = await hostile(behave)
    for _ in range(2):
        with pytest.raises(Refused, match="Parse error"):
            await call(server)


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/xml", "", None, "application/jsonx"])
async def test_a_wrong_content_type(hostile, kind):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(answer(result(message), kind=kind))
        await reader.read()

    with pytest.raises(Refused, match="instead of JSON") as raised:
        await call(await hostile(behave))
    assert raised.value.status == 200


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=y"])
async def test_a_content_type_may_have_parameters_and_any_case(hostile, kind):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(answer(result(message), kind=kind))
        await reader.read()

    assert (await call(await hostile(behave))).text == "done"


# --- HTTP: statuses -----------------------------------------------------------------------------------------------


def responding(**how):
    async def behave(server, reader, writer):
        await server.request(reader)
        writer.write(answer(**{"body": b"", **how}))
        await reader.read()

    return behave


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_a_redirect_is_shown_and_not_followed(hostile, status):
    elsewhere = await hostile(responding())
    server = await hostile(responding(status=status, Location=elsewhere.url))
    with pytest.raises(Refused, match="redirects to") as raised:
        await call(server)
    assert elsewhere.url in str(raised.value)
    assert raised.value.status == int(status[:3])
    assert elsewhere.connections == 0
    assert len(server.requests) == 1


async def test_a_server_that_wants_to_know_who_asks(hostile):
    server = await hostile(responding(status="401 Unauthorized", WWW_Authenticate="Bearer"))
    with pytest.raises(Refused, match="wants a token") as raised:
        await call(server)
    assert raised.value.status == 401
    assert len(server.requests) == 1


async def test_a_server_that_has_too_much_to_do_says_when_to_come_back(hostile):
    server = await hostile(responding(status="429 Too Many Requests", Retry_After="17"))
    with pytest.raises(Refused, match="429") as raised:
        await call(server)
    assert (raised.value.status, raised.value.retry_after) == (429, 17)
    assert len(server.requests) == 1, "whether to come back is the caller's decision"


async def test_it_may_say_so_as_a_date(hostile):
    later = email.utils.formatdate(time.time() + 60, usegmt=True)
    server = await hostile(responding(status="503 Service Unavailable", Retry_After=later))
    with pytest.raises(Refused) as raised:
        await call(server)
    assert 50 < raised.value.retry_after <= 60


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("0", 0), ("soon", None), ("-5", None), ("", None), ("²", None), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)],
)
async def test_a_time_to_come_back_that_makes_no_sense_is_none(hostile, value, seconds):
    server = await hostile(responding(status="503 Service Unavailable", Retry_After=value))
    with pytest.raises(Refused) as raised:
        async with soon(), Client(server.url) as client:
            await client.call_tool("x")
    assert raised.value.retry_after == seconds


@pytest.mark.parametrize("status", [400, 403, 404, 405, 406, 413, 500, 502, 503, 504])
async def test_any_other_status_is_shown_with_what_was_said(hostile, status):
    server = await hostile(responding(status=f"{status} Whatever", body=b"because of rain", kind="text/plain"))
    with pytest.raises(Refused, match=f"HTTP status {status}: because of rain") as raised:
        await call(server)
    assert (raised.value.status, raised.value.code) == (status, None)


@pytest.mark.parametrize("status", ["202 Accepted", "204 No Content"])
async def test_a_success_without_an_answer_is_none(hostile, status):
    server = await hostile(responding(status=status, kind=None))
    with pytest.raises(Refused, match="HTTP status 20"):
        await call(server)


async def test_a_json_rpc_error_behind_a_status_keeps_both(hostile):
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32021, "message": "cannot", "data": {"a": 1}}}
    server = await hostile(responding(status="400 Bad Request", body=error, Retry_After="3"))
    with pytest.raises(Refused, match="cannot") as raised:
        await call(server)
    fault = raised.value
    assert (fault.code, fault.data, fault.status, fault.retry_after) == (-32021, {"a": 1}, 400, 3)


@pytest.mark.parametrize("body", [b'{"error": "gateway timeout"}', b'{"message": "x"}', b"[]", b"{"])
async def test_a_gateways_own_json_is_shown_as_text(hostile, body):
    server = await hostile(responding(status="502 Bad Gateway", body=body))
    with pytest.raises(Refused, match="HTTP status 502") as raised:
        await call(server)
    assert body.decode() in str(raised.value)


async def test_an_interim_response_is_not_the_answer(hostile):
    async def behave(server, reader, writer):
        message = await server.request(reader)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
        writer.write(answer(result(message)))
        await reader.read()

    assert (await call(await hostile(behave))).text == "done"


# --- closing ------------------------------------------------------------------------------------------------------


async def test_a_client_that_closes_ends_the_calls_that_are_under_way(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        await reader.read()

    server = await hostile(behave)
    async with soon():
        async with Client(HttpLink(server.url, max_connections=2)) as client:
            calls = [asyncio.create_task(client.call_tool("x")) for _ in range(5)]
            await until(lambda: len(server.requests) == 2)
        faults = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(fault) for fault in faults] == [Disconnected] * 5
    assert server.connections == 2


async def test_a_call_that_is_cancelled_leaves_nothing(hostile):
    async def behave(server, reader, writer):
        await server.request(reader)
        await reader.read()

    server = await hostile(behave)
    async with soon(), Client(server.url) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        await until(lambda: server.requests)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


# --- a child process ----------------------------------------------------------------------------------------------

PRELUDE = """
import json, os, signal, sys, time
def read(): return json.loads(sys.stdin.readline())
def say(message): sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def done(message):
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": "done"}]}}
FORM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
ASK = {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": FORM}}
ROUND = {"resultType": "input_required", "inputRequests": {"sure": ASK}, "requestState": "s"}
def asks(message): return {"jsonrpc": "2.0", "id": message["id"], "result": ROUND}
def serve():
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message: say(done(message))
"""


@pytest.fixture
def short_grace(monkeypatch):
    monkeypatch.setattr(child, "GRACE", 0.2)


def python(code):
    return [sys.executable, "-c", PRELUDE + code]


async def call_child(code, *, timeout=20.0, **link):
    async with soon(20), Client(ChildLink(python(code), **link), elicit=yes, timeout=timeout) as client:
        return await client.call_tool("x")


@pytest.mark.parametrize(
    "code",
    [
        "os._exit(3)",
        "read(); os._exit(3)",
        "read(); sys.stdout.write('{\"jsonrpc\"'); sys.stdout.flush(); os._exit(3)",
        "say(asks(read())); os._exit(3)",
        "say(asks(read())); read(); os._exit(3)",
    ],
    ids=["at once", "before answering", "within a line", "between rounds", "in the second round"],
)
async def test_a_child_that_dies_is_an_error_at_once(code):
    with pytest.raises(Disconnected, match="exit code 3"):
        await call_child(code)


async def test_a_child_that_lives_but_does_not_hear_is_an_error_soon(short_grace):
    with pytest.raises(Disconnected, match="takes no more input"):
        await call_child("message = read(); os.close(0); say(asks(message)); time.sleep(60)")


async def test_a_child_that_is_killed_is_an_error_at_once():
    with pytest.raises(Disconnected, match=f"exit code -{signal.SIGKILL.value}"):
        await call_child("read(); os.kill(os.getpid(), signal.SIGKILL)")


async def test_a_child_that_closes_its_output_and_lives_on_is_an_error_at_once(short_grace):
    with pytest.raises(Disconnected, match="closed its output"):
        await call_child("read(); os.close(1); time.sleep(60)")


async def test_a_child_whose_own_child_keeps_the_output_open_is_an_error_at_once(short_grace):
    with pytest.raises(Disconnected, match="exit code 4"):
        await call_child("read(); os.fork() or time.sleep(60) or os._exit(0); os._exit(4)")


async def test_all_calls_under_way_are_told():
    async with soon(20), Client(ChildLink(python("[read() for _ in range(5)]; os._exit(3)"))) as client:
        faults = await asyncio.gather(*[client.call_tool("x") for _ in range(5)], return_exceptions=True)
    assert [type(fault) for fault in faults] == [Disconnected] * 5
    assert len({id(fault) for fault in faults}) == 5


async def test_a_child_that_never_answers():
    with pytest.raises(CallTimeout):
        await call_child("[read() for _ in range(9)]", timeout=LIMIT)


async def test_lines_that_are_no_messages_are_passed_over_with_a_warning(caplog):
    code = "print('starting...', flush=True); print(); print('[1, 2]'); print('\\x00'); serve()"
    assert (await call_child(code)).text == "done"
    assert "no message: b'starting...'" in caplog.text


async def test_lines_that_are_no_messages_are_told_to_a_callback_instead_of_the_log(caplog):
    heard = []
    code = "print('starting...', flush=True); print(); print('[1, 2]'); print('\\x00'); serve()"
    assert (await call_child(code, on_stray_line=heard.append)).text == "done"
    assert heard == ["starting...", "[1, 2]", "\x00"]
    assert caplog.text == ""


async def test_a_message_that_is_broken_is_an_error_at_once(short_grace):
    with pytest.raises(PeerBroken, match="not JSON"):
        await call_child("message = read(); print(json.dumps(done(message))[:40], flush=True); time.sleep(60)")


@pytest.mark.parametrize(
    "message",
    [
        {"id": []},
        {"id": {}, "result": 1},
        {"method": 7},
        {"method": "notifications/progress", "params": []},
        {"method": "notifications/progress", "params": {"progressToken": []}},
        {"method": "notifications/message"},
        {"method": "notifications/x", "params": {"_meta": 7}},
        {"method": "notifications/cancelled", "params": {"requestId": {}}},
        {"jsonrpc": "2.0", "id": 99, "result": {}},
        {"jsonrpc": "2.0", "error": {"code": -1, "message": "x"}},
        {"method": "roots/list", "id": 1},
    ],
)
async def test_messages_that_make_no_sense_are_passed_over(message):
    assert (await call_child(f"say({message!r}); serve()")).text == "done"


async def test_a_line_of_ten_megabytes_is_read():
    code = """
message = read()
reply = done(message)
reply["result"]["content"][0]["text"] = "x" * (10 * 1024 * 1024)
say(reply)
"""
    assert len((await call_child(code)).text) == TEN_MEGABYTES


async def test_a_line_beyond_the_limit_is_an_error_before_it_fills_the_memory(short_grace):
    with pytest.raises(PeerBroken, match="more than 1048576 bytes"):
        await call_child("read()\nwhile True: sys.stdout.write('{' * 65536)", max_line=1024 * 1024)


@pytest.mark.parametrize(
    "code",
    [
        "serve(); time.sleep(60)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(); time.sleep(60)",
        "os.fork(); signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(); time.sleep(60)",
        "serve()\nwhile True: sys.stdout.write('x' * 65536)",
    ],
    ids=["ignores the end of its input", "ignores SIGTERM too", "has a child of its own", "writes on and on"],
)
async def test_a_child_that_does_not_end_by_itself_is_ended(short_grace, code):
    async with soon(20), Client(ChildLink(python(code))) as client:
        assert (await client.call_tool("x")).text == "done"
        group = client._link._process._transport.get_pid()
        assert alive_in(group)
    assert alive_in(group) == []


def alive_in(group):
    """The processes of a group, without those that are dead and wait to be reaped."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = file.read_text().rpartition(")")[2].split()[:3]
            found += [file.parent.name] if int(its_group) == group and state != "Z" else []
    return found


async def test_a_child_is_ended_although_the_closing_is_cancelled(short_grace, monkeypatch):
    monkeypatch.setattr(child, "GRACE", 30)
    client = Client(ChildLink(python("signal.signal(signal.SIGTERM, signal.SIG_IGN); serve(); time.sleep(60)")))
    await client.__aenter__()
    await client.call_tool("x")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await client.__aexit__(None, None, None)


async def test_a_call_to_a_child_that_is_cancelled_is_cancelled_there_too():
    code = """
first = read()
say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": first["id"], "progress": 1}})
cancelled = read()
second = read()
reply = done(second)
reply["result"]["content"][0]["text"] = json.dumps(cancelled)
say(done(first)); say(reply)
serve()
"""
    arrived = asyncio.Event()
    async with soon(20), Client(ChildLink(python(code))) as client:
        calling = asyncio.create_task(client.call_tool("x", progress=lambda *_: arrived.set()))
        await arrived.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        told = json.loads((await client.call_tool("x")).text)
    assert told == {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}


async def test_a_slow_progress_callback_holds_up_no_other_call():
    code = """
first = read()
say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": first["id"], "progress": 1}})
say(done(first))
serve()
"""
    async with soon(20), Client(ChildLink(python(code))) as client:

        async def call_again(*_told):
            assert (await client.call_tool("y")).text == "done"

        assert (await client.call_tool("x", progress=call_again)).text == "done"


async def test_a_progress_callback_that_raises_ends_its_own_call_only():
    code = """
first = read()
say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": first["id"], "progress": 1}})
serve()
"""

    def report(*_told):
        raise ZeroDivisionError

    async with soon(20), Client(ChildLink(python(code))) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("x", progress=report)
        assert (await client.call_tool("y")).text == "done"


async def test_a_child_that_worked_and_died_is_started_again_for_the_next_call():
    code = "say(done(read())); read(); os._exit(3)"
    async with soon(20), Client(ChildLink(python(code))) as client:
        assert (await client.call_tool("x")).text == "done"
        with pytest.raises(Disconnected, match="exit code 3"):
            await client.call_tool("x")
        assert (await client.call_tool("x")).text == "done"


async def test_a_child_that_is_started_again_while_the_client_closes_is_ended_too(monkeypatch):
    starting, go_on = asyncio.Event(), asyncio.Event()
    client = Client(ChildLink(python("say(done(read())); read(); os._exit(3)")))
    async with soon(20):
        async with client:
            await client.call_tool("x")
            with pytest.raises(Disconnected, match="exit code 3"):
                await client.call_tool("x")
            start = client._link.start

            async def start_slowly():
                starting.set()
                await go_on.wait()
                return await start()

            monkeypatch.setattr(client._link, "start", start_slowly)
            calling = asyncio.create_task(client.call_tool("x"))
            await starting.wait()
        go_on.set()
        with pytest.raises(Disconnected, match="closed"):
            await calling


async def test_logs_of_a_child_are_heard_by_a_call_that_is_under_way():
    code = """
for _ in range(2): read()
say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hello"}})
say(done({"id": 1})); say(done({"id": 2}))
serve()
"""
    seen = []
    async with soon(20), Client(ChildLink(python(code)), on_log=lambda *told: seen.append(told)) as client:
        await asyncio.gather(client.call_tool("x"), client.call_tool("y"))
    assert seen == [("info", "hello", None)]


def test_the_pool_keeps_connections_for_less_than_servers_do():
    assert http1.KEPT < 5


# --- messages on a pipe that do not say whose they are ------------------------------------------------------------

LOGS = """
def hint(text): say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": text}})
def told(method, id_, **params):
    meta = {"io.modelcontextprotocol/subscriptionId": id_}
    say({"jsonrpc": "2.0", "method": method, "params": {"_meta": meta, **params}})
def acknowledge(id_): told("notifications/subscriptions/acknowledged", id_, notifications={"toolsListChanged": True})
"""


async def test_log_messages_are_heard_beside_a_subscription():
    code = """
call, listen = read(), read()
hint("before"); acknowledge(listen["id"]); hint("between")
told("notifications/tools/list_changed", listen["id"]); hint("after")
say(done(call))
sys.stdin.read()
"""
    logged, link = [], ChildLink(python(LOGS + code))
    async with soon(20), Client(link, on_log=lambda _level, data, _logger: logged.append(data)) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        async with aclosing(client.subscribe(tools=True)) as subscription:
            assert await anext(subscription) == Change("tools")
            assert (await calling).text == "done"
            await until(lambda: len(logged) == 3)
    assert logged == ["before", "between", "after"]


async def test_a_log_message_is_heard_when_the_newest_request_was_given_up():
    code = """
first, second = read(), read()
hint("one"); hint("two"); hint("three")
read()  # that the second one is cancelled
say(done(first))
sys.stdin.read()
"""
    logged, stuck = [], asyncio.Event()

    async def hear(_level, data, _logger):
        if not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        logged.append(data)

    async with soon(20), Client(ChildLink(python(LOGS + code)), on_log=hear) as client:
        calling = asyncio.create_task(client.call_tool("x"))
        given_up = asyncio.create_task(client.call_tool("x"))
        await stuck.wait()
        given_up.cancel()
        await calling
        await until(lambda: len(logged) == 2)
    assert logged == ["two", "three"]


REFUSED = """
def refuse(): say({"jsonrpc": "2.0", "error": {"code": -32600, "message": "The message is too long"}})
"""


async def test_an_error_without_an_id_is_the_only_requests():
    with pytest.raises(Refused, match="too long") as refused:
        await call_child(REFUSED + "read(); refuse(); sys.stdin.read()")
    assert refused.value.code == -32600


async def test_an_error_without_an_id_is_not_for_a_subscription_that_was_acknowledged():
    code = """
acknowledge(read()["id"]); read(); refuse(); sys.stdin.read()
"""
    async with soon(20), Client(ChildLink(python(LOGS + REFUSED + code))) as client:
        listening = asyncio.ensure_future(anext(client.subscribe(tools=True)))
        await until(lambda: [each for each in client._link._process.waiting.values() if each.understood])
        with pytest.raises(Refused, match="too long"):
            await client.call_tool("x")
        assert not listening.done()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def test_an_error_without_an_id_is_nobodys_where_it_may_be_several_requests(caplog):
    code = "first, second = read(), read(); refuse(); say(done(first)); say(done(second)); sys.stdin.read()"
    async with soon(20), Client(ChildLink(python(REFUSED + code))) as client:
        both = await asyncio.gather(client.call_tool("x"), client.call_tool("x"))
    assert [one.text for one in both] == ["done", "done"]
    assert "too long" in caplog.text


@pytest.mark.parametrize("size", [5 << 20])
async def test_a_request_that_is_too_long_for_a_server_fails_at_once(size):
    server = "from antiphon import Server; app = Server('x'); app.add_tool(lambda text: text, name='echo'); app.run()"
    deep = []
    for _ in range(80):
        deep = [deep]
    async with soon(20), Client([sys.executable, "-c", server]) as client:
        await client.discover()
        holding = asyncio.create_task(anext(client.subscribe(tools=True)))
        for text in ("x" * size, deep):
            with pytest.raises(Refused, match="longer|deeper"):
                await client.call_tool("echo", {"text": text})
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
