"""The process that serves HTTP ends when it is told to, whatever its handlers do."""

import json
import socket
import subprocess
import sys

from messages import headers_for, tool_call

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


def test_a_handler_that_cannot_be_cancelled_does_not_keep_the_process_and_is_told_by_its_exit_code():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVER], text=True, **pipes) as process:
        try:
            message = tool_call("immortal")
            body = json.dumps(message)
            fields = {**headers_for(message), "content-length": len(body)}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            with socket.create_connection(("127.0.0.1", int(process.stdout.readline())), 10) as client:
                client.sendall(f"POST /mcp HTTP/1.1\r\n{head}\r\n{body}".encode())
                assert process.stdout.readline() == "waiting\n"
                process.terminate()
                assert process.wait(8) == 1
            assert "immortal" in process.stderr.read()
        finally:
            process.kill()
