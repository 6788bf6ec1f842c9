"""HTTP as the client speaks it: connections that are kept, bounded, tunnelled and closed."""

import asyncio
import base64
import datetime as dt
import ssl
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from antiphon import Accepted, Client, Context, Disconnected, Server
from antiphon.http import client as http1
from antiphon.transports.http_client import HttpLink

from .hostile import END, STREAM, Hostile, answer, chunk, event, result
from .until import until

FILE = Path(__file__).parent / "server_file.py"


def yes(_question):
    return Accepted({"confirm": True})


async def polite(server, reader, writer):
    """Answers every request, and keeps the connection."""
    while True:
        writer.write(answer(result(await server.request(reader))))
        await writer.drain()


async def call_times(url, times, **options):
    async with Client(url, **options) as client:
        for _ in range(times):
            assert (await client.call_tool("x")).text == "done"


# --- what is sent -------------------------------------------------------------------------------------------------


async def test_a_request_is_a_post_of_one_message_with_its_headers(hostile):
    server = await hostile(polite)
    async with Client(f"{server.url}?a=b c", headers={"X-Key": "k", "user-agent": "me"}) as client:
        await client.call_tool("x")
    ((line, headers),) = server.heads
    assert line == "POST /mcp?a=b%20c HTTP/1.1"
    length = headers.pop("content-length")
    assert int(length) > 0
    assert headers == {
        "host": f"127.0.0.1:{server.port}",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "user-agent": "me",
        "x-key": "k",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "x",
    }


async def test_credentials_of_the_url_are_sent_as_such(hostile):
    server = await hostile(polite)
    await call_times(f"http://ada:p%40ss@127.0.0.1:{server.port}/mcp", 1)
    assert server.heads[0][1]["authorization"] == "Basic " + base64.b64encode(b"ada:p@ss").decode()
    assert "ada" not in server.heads[0][1]["host"]


async def test_a_url_without_a_path_is_the_root(hostile):
    server = await hostile(polite)
    await call_times(f"http://127.0.0.1:{server.port}", 1)
    assert server.heads[0][0] == "POST / HTTP/1.1"


# --- connections are kept -----------------------------------------------------------------------------------------


async def test_one_connection_serves_calls_one_after_the_other(hostile):
    server = await hostile(polite)
    await call_times(server.url, 20)
    assert server.connections == 1


async def test_calls_at_the_same_time_have_connections_of_their_own(hostile):
    server = await hostile(polite)
    async with Client(server.url) as client:
        await asyncio.gather(*[client.call_tool("x") for _ in range(10)])
        assert server.connections <= 10
        await client.call_tool("x")
        assert server.connections <= 10


async def test_a_stream_that_ends_after_its_answer_leaves_the_connection_for_the_next_call(hostile):
    async def behave(server, reader, writer):
        while True:
            writer.write(STREAM + event(result(await server.request(reader))))
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.write(chunk(b": goodbye\n\n") + END)

    server = await hostile(behave)
    async with Client(server.url) as client:
        for _ in range(3):
            await client.call_tool("x")
            await asyncio.sleep(0.05)
    assert server.connections == 1


async def test_the_stream_of_a_real_server_does_too(live):
    app = Server("streaming")
    seen = set()

    @app.tool
    async def count(ctx: Context) -> str:
        await ctx.progress(1, 1)
        return "counted"

    endpoint = app.asgi()

    async def noting(scope, receive, send):
        seen.add(scope.get("client"))
        await endpoint(scope, receive, send)

    async with Client(f"http://127.0.0.1:{live(noting)}/mcp") as client:
        for _ in range(5):
            assert (await client.call_tool("count", progress=lambda *_: None)).text == "counted"
            await asyncio.sleep(0.05)
    assert len(seen - {None}) == 1


async def test_a_stream_that_goes_on_after_its_answer_is_closed(hostile, monkeypatch):
    monkeypatch.setattr(http1, "LINGER", 0.05)
    closed = asyncio.Event()

    async def behave(server, reader, writer):
        writer.write(STREAM + event(result(await server.request(reader))))
        await reader.read()
        closed.set()

    server = await hostile(behave)
    async with Client(server.url) as client:
        await client.call_tool("x")
        async with asyncio.timeout(5):
            await closed.wait()
        await client.call_tool("x")
    assert server.connections == 2


async def test_a_server_that_asks_to_close_is_obeyed(hostile):
    async def behave(server, reader, writer):
        writer.write(answer(result(await server.request(reader)), Connection="close"))
        await reader.read()

    server = await hostile(behave)
    await call_times(server.url, 3)
    assert server.connections == 3


async def test_a_body_without_a_length_ends_with_the_connection(hostile):
    async def behave(server, reader, writer):
        whole = answer(result(await server.request(reader)), Content_Length=None)
        head, _, body = whole.partition(b"\r\n\r\n")
        lines = [line for line in head.split(b"\r\n") if not line.startswith(b"Content-Length")]
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    server = await hostile(behave)
    await call_times(server.url, 2)
    assert server.connections == 2


async def test_bytes_that_nobody_asked_for_cost_the_connection(hostile):
    async def behave(server, reader, writer):
        while True:
            writer.write(answer(result(await server.request(reader))) + answer(b"{}"))
            await writer.drain()

    server = await hostile(behave)
    async with Client(server.url) as client:
        for _ in range(3):
            assert (await client.call_tool("x")).text == "done"
            await asyncio.sleep(0.02)
    assert server.connections == 3


async def test_unused_connections_are_closed_after_a_while(hostile, monkeypatch):
    monkeypatch.setattr(http1, "KEPT", 0.05)
    ended = []

    async def behave(server, reader, writer):
        try:
            await polite(server, reader, writer)
        finally:
            ended.append(1)

    server = await hostile(behave)
    async with Client(server.url) as client:
        await asyncio.gather(*[client.call_tool("x") for _ in range(3)])
        opened = server.connections
        await until(lambda: len(ended) == opened, patience=5)
        await client.call_tool("x")
    assert server.connections == opened + 1


async def test_calls_beyond_the_limit_of_connections_wait_for_one(hostile):
    under_way = most = 0

    async def behave(server, reader, writer):
        nonlocal under_way, most
        while True:
            message = await server.request(reader)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.002)
            under_way -= 1
            writer.write(answer(result(message)))

    server = await hostile(behave)
    async with Client(HttpLink(server.url, max_connections=4)) as client:
        results = await asyncio.gather(*[client.call_tool("x") for _ in range(60)])
    assert len(results) == 60
    assert server.connections == most == 4


async def test_a_call_that_is_cancelled_while_it_waits_gives_its_place_up(hostile):
    go_on = asyncio.Event()

    async def behave(server, reader, writer):
        while True:
            message = await server.request(reader)
            await go_on.wait()
            writer.write(answer(result(message)))

    server = await hostile(behave)
    async with Client(HttpLink(server.url, max_connections=1)) as client:
        first = asyncio.create_task(client.call_tool("x"))
        await until(lambda: server.requests)
        waiting = [asyncio.create_task(client.call_tool("x")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        waiting[2].cancel()
        go_on.set()
        results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert [type(one).__name__ for one in results] == ["CallResult", "CancelledError", "CallResult", "CancelledError"]


async def test_a_connection_that_cannot_be_made_gives_its_place_back():
    async with Client(HttpLink("http://127.0.0.1:9/mcp", max_connections=1)) as client:
        for _ in range(3):
            with pytest.raises(Disconnected):
                await client.call_tool("x", timeout=5)


# --- proxies and TLS ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for localhost that signs itself: its file, with the key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file.write_bytes(private + made.public_bytes(pem))
    return file


@asynccontextmanager
async def secure(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    server = Hostile(polite)
    server._server = await asyncio.start_server(server._serve, "localhost", 0, ssl=context, family=2)
    try:
        yield server
    finally:
        await server.__aexit__()


async def test_https_is_spoken_to_servers_whose_certificate_is_trusted(certificate):
    async with secure(certificate) as server:
        context = ssl.create_default_context(cafile=certificate)
        await call_times(HttpLink(f"https://localhost:{server.port}/mcp", tls=context), 3)
        assert server.connections == 1


async def test_https_to_any_other_server_is_refused(certificate):
    async with secure(certificate) as server:
        async with Client(f"https://localhost:{server.port}/mcp") as client:
            with pytest.raises(Disconnected, match="certificate"):
                await client.call_tool("x")
        async with Client(
            HttpLink(f"https://127.0.0.1:{server.port}/mcp", tls=ssl.create_default_context(cafile=certificate))
        ) as client:
            with pytest.raises(Disconnected, match="certificate"):
                await client.call_tool("x")


async def tunnelling(server, reader, writer):
    """A proxy that connects to wherever it is told."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    server.heads.append(head)
    host, port = head.split()[1].split(":")
    there_reader, there_writer = await asyncio.open_connection(host, int(port), family=2)
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

    async def pump(source, sink):
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(pump(reader, there_writer))
            group.create_task(pump(there_reader, writer))
    except* (ConnectionError, asyncio.CancelledError):
        pass
    finally:
        there_writer.close()


async def test_https_goes_through_a_proxy_by_a_tunnel(certificate, hostile):
    proxy = await hostile(tunnelling)
    async with secure(certificate) as server:
        link = HttpLink(
            f"https://localhost:{server.port}/mcp",
            tls=ssl.create_default_context(cafile=certificate),
            proxy=f"http://ada:secret@127.0.0.1:{proxy.port}",
        )
        await call_times(link, 3)
        assert server.connections == proxy.connections == 1
        (head,) = proxy.heads
        assert head.startswith(f"CONNECT localhost:{server.port} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'ada:secret').decode()}\r\n" in head
    assert "proxy-authorization" not in server.heads[0][1]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n", "HTTP status 407"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n", "HTTP status 502"),
        (b"", "closed the connection"),
    ],
)
async def test_a_proxy_that_refuses_is_an_error(hostile, said, told):
    async def behave(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)

    proxy = await hostile(behave)
    link = HttpLink("https://localhost:9/mcp", proxy=f"http://127.0.0.1:{proxy.port}", tls=ssl.create_default_context())
    async with Client(link) as client:
        with pytest.raises(Disconnected, match=told):
            await client.call_tool("x")


async def test_a_tunnel_to_something_that_speaks_no_tls_is_an_error(hostile):
    async def behave(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await reader.read(1)
        writer.write(b"what?")

    proxy = await hostile(behave)
    link = HttpLink("https://localhost:9/mcp", proxy=f"http://127.0.0.1:{proxy.port}", tls=ssl.create_default_context())
    async with Client(link) as client:
        with pytest.raises(Disconnected, match="Cannot connect"):
            await client.call_tool("x")


async def test_plain_http_is_sent_to_the_proxy_that_the_environment_names(hostile, monkeypatch):
    proxy = await hostile(polite)
    monkeypatch.setenv("HTTP_PROXY", f"http://ada:secret@127.0.0.1:{proxy.port}")
    monkeypatch.setenv("NO_PROXY", "localhost,.example.org")
    await call_times("http://mcp.example.com:8080/mcp", 1)
    ((line, headers),) = proxy.heads
    assert line == "POST http://mcp.example.com:8080/mcp HTTP/1.1"
    assert headers["host"] == "mcp.example.com:8080"
    assert headers["proxy-authorization"].startswith("Basic ")


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "http://a.com/", None),
        ({"http_proxy": "http://p:1"}, "http://a.com/", "http://p:1"),
        ({"http_proxy": "p:1"}, "http://a.com/", "http://p:1"),
        ({"http_proxy": "http://p:1"}, "https://a.com/", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://a.com/", "http://p:1"),
        ({"all_proxy": "http://p:1"}, "https://a.com/", "http://p:1"),
        ({"http_proxy": "http://p:1", "no_proxy": "a.com"}, "http://a.com/", None),
        ({"http_proxy": "http://p:1", "no_proxy": "a.com"}, "http://x.a.com/", None),
        ({"http_proxy": "http://p:1", "no_proxy": "*"}, "http://a.com/", None),
        ({"http_proxy": "http://p:1", "no_proxy": "a.com:81"}, "http://a.com:81/", None),
        ({"http_proxy": "http://p:1", "no_proxy": "a.com:81"}, "http://a.com/", "http://p:1"),
        ({"http_proxy": "http://p:1"}, "http://localhost:8000/mcp", None),
        ({"http_proxy": "http://p:1"}, "http://LOCALHOST./mcp", None),
        ({"http_proxy": "http://p:1"}, "http://app.localhost/mcp", None),
        ({"http_proxy": "http://p:1"}, "http://127.0.0.1:8000/mcp", None),
        ({"http_proxy": "http://p:1"}, "http://127.8.8.8/mcp", None),
        ({"http_proxy": "http://p:1"}, "http://[::1]:8000/mcp", None),
        ({"http_proxy": "http://p:1"}, "http://localhost.example.com/", "http://p:1"),
        ({"http_proxy": "http://p:1"}, "http://10.0.0.1/", "http://p:1"),
        ({"http_proxy": ""}, "http://a.com/", None),
    ],
)
def test_the_proxy_that_the_environment_names(environment, url, proxy):
    assert http1.proxy_for(url, environment) == proxy


@pytest.mark.parametrize("proxy", ["socks5://p:1", "https://p:1", "http://"])
def test_a_proxy_of_another_kind_is_refused_at_once(proxy):
    with pytest.raises(ValueError, match="starts with http"):
        HttpLink("http://localhost/mcp", proxy=proxy)


# --- another event loop -------------------------------------------------------------------------------------------


def test_the_client_works_on_uvloop(live):
    app = Server("loops")

    @app.tool
    async def deploy(ctx: Context) -> str:
        await ctx.progress(1, 1)
        return "deployed" if await ctx.confirm("Sure?") else "left alone"

    async def converse():
        async with Client(f"http://127.0.0.1:{live(app.asgi())}/mcp", elicit=yes) as client:
            results = await asyncio.gather(*[client.call_tool("deploy", progress=lambda *_: None) for _ in range(20)])
            assert [one.text for one in results] == ["deployed"] * 20
        async with Client([sys.executable, str(FILE)], elicit=yes) as client:
            assert (await client.call_tool("deploy", {"env": "prod"})).text == "deployed to prod"

    uvloop.run(converse())
