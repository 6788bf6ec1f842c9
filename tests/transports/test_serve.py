"""The process that serves HTTP ends when it is told to, whatever its handlers do."""

import json
import re
import signal
import socket
import subprocess
import sys

import pytest

from messages import headers_for, request, tool_call

pytestmark = pytest.mark.heavy

SERVER = """
import asyncio, socket
from antiphon import Server
from antiphon.transports import shutdown as ending, serve

serve.SETTINGS["timeout_graceful_shutdown"] = ending.GRACE = 0.1
app = Server("tests")

@app.tool
async def immortal() -> str:
    print("waiting", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except BaseException:
            pass

listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
serve.run(app.asgi(allowed_hosts=["*"]), sockets=[listening])
"""


def posted(message):
    body = json.dumps(message)
    fields = {**headers_for(message), "content-length": len(body)}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode()


def test_a_handler_that_cannot_be_cancelled_does_not_keep_the_process_and_is_told_by_its_exit_code():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as process:
        try:
            with socket.create_connection(("127.0.0.1", int(process.stdout.readline())), 10) as client:
                client.sendall(posted(tool_call("immortal")))
                assert process.stdout.readline() == "waiting\n"
                process.terminate()
                assert process.wait(8) == 1
            assert "immortal" in process.stderr.read()
        finally:
            process.kill()


SITE = """
from contextlib import asynccontextmanager
from starlette.applications import Starlette
from starlette.routing import Route
from antiphon import Server

app = Server("tests")
plain = app.asgi(allowed_hosts=["*"])

@asynccontextmanager
async def lifespan(site):
    async with app.running():
        yield

mounted = Starlette(routes=[Route("/mcp", app.asgi(allowed_hosts=["*"]))], lifespan=lifespan)
"""


@pytest.mark.parametrize("application", ["plain", "mounted"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_plain_uvicorn_stops_although_a_stream_is_open(tmp_path, application, number):
    (tmp_path / "site_to_stop.py").write_text(SITE)
    command = [sys.executable, "-m", "uvicorn", f"site_to_stop:{application}", "--port", "0", "--no-use-colors"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = next(int(found[1]) for line in process.stderr if (found := re.search(r"127.0.0.1:(\d+)", line)))
            listen = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="l")
            with socket.create_connection(("127.0.0.1", port), 10) as client, client.makefile("rb") as stream:
                client.sendall(posted(listen))
                assert any(b"acknowledged" in line for line in stream)
                process.send_signal(number)
                assert any(b"result" in line for line in stream)
                process.wait(8)
        finally:
            process.kill()
