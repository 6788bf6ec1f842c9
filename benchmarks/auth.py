"""What authorization costs: a server that checks a token it knows, and a client that sends the token of a login.

The server is compared with the same one without protection, the client with one that sends a constant header.
"""

import asyncio
import gc
import json
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import perf_counter, process_time, time

import calls
from contender import Contender, Unavailable
from goals import Goal
from load import LoadError
from measuring import Cell, Figures, Plan, add, in_process, interleaved, ratios

RESOURCE = "http://127.0.0.1/mcp"
TURN = 50
LEAST_TURNS = 30


@contextmanager
def _issuer() -> Generator[tuple[str, str]]:
    """The URL of an authorization server that publishes its key, and a token of it."""
    from antiphon.testing import Issuer

    class Documents(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            about = {"issuer": issuer.url, "jwks_uri": f"{issuer.url}/jwks"}
            body = json.dumps(issuer.public_keys() if self.path == "/jwks" else about).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Documents)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield issuer.url, issuer.token("bench", audience=RESOURCE)
    finally:
        server.shutdown()
        server.server_close()


def measure(plan: Plan) -> Figures:
    """The figures of an echo without protection and with it, and the processor time of a client's call."""
    contenders: list[Contender] = []
    client: dict[str, dict[str, list[float]]] = {}
    with _issuer() as (url, token):
        try:
            contenders += [Contender("ours"), Contender("protected", env={"BENCH_ISSUER": url})]
            cells = []
            for name, each in zip(("open", "protected"), contenders, strict=True):
                load = calls.plain(each, [("Authorization", f"Bearer {token}")])["echo"]
                cells.append(Cell(name=name, contender=each, load=lambda load=load: load))
            figures: Figures = {"cells": interleaved(plan, cells), "client": client}
            for _ in range(plan.rounds):
                address = f"http://127.0.0.1:{contenders[1].port}/mcp"
                for name, value in in_process("auth.py", address, token, str(plan.seconds)).items():
                    add(client, name, {"cpu_us": value})
        except (Unavailable, LoadError) as fault:
            plan.cannot("authorization", fault)
            return {"cells": {}, "client": {}}
        else:
            return figures
        finally:
            for each in contenders:
                each.stop()


async def _drive(url: str, token: str, seconds: float) -> Figures:
    """CPU time of an echo with a constant header and with a login, in turns."""
    from antiphon import Client
    from antiphon.auth import Memory, OAuth
    from antiphon.oauth.account import Account, Token

    keep = Memory()
    held = Token(access=token, expires=time() + 3600, life=3600.0, refresh="none")
    await keep.put(url, Account(issuer=url, resource=url, token=held).to_json())
    constant = Client(url, headers={"Authorization": f"Bearer {token}"})
    login = Client(url, auth=OAuth(visit=None, keep=keep))
    turns = [("constant", constant), ("login", login)]
    spent: dict[str, list[float]] = {name: [] for name, _ in turns}
    async with constant, login:
        end = perf_counter() + seconds
        gc.collect()
        while perf_counter() < end or len(spent["login"]) < LEAST_TURNS:
            turns.reverse()
            for name, client in turns:
                began = process_time()
                for _ in range(TURN):
                    await client.call_tool("echo", {"text": "hello, bench"})
                spent[name].append((process_time() - began) / TURN * 1e6)
    # The lower fifth: what others do on the machine only adds to it.
    return {name: sorted(values)[len(values) // 5] for name, values in spent.items()}


def _client(figures: Figures) -> list[float]:
    found = figures["auth"]["client"]
    return [one - other for one, other in zip(found["login"]["cpu_us"], found["constant"]["cpu_us"], strict=True)]


GOALS = (
    Goal(
        title="a known token, echo, rate / unprotected",
        figure=lambda figures: ratios(figures["auth"]["cells"], "protected", "open"),
        at_least=0.9,
        bound=0.8,
    ),
    Goal(
        title="a known token, echo, CPU / unprotected",
        figure=lambda figures: ratios(figures["auth"]["cells"], "protected", "open", "cpu_us"),
        at_most=1.1,
    ),
    Goal(title="a login, CPU µs of a call more than a header", figure=_client, at_most=10),
)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_drive(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
