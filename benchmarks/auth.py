"""What authorization costs: a server that checks a token it knows, and a client that sends the token of a login.

`python benchmarks/auth.py [--quick] [--strict]`, and a section of run.py. The server is compared with the same one
without protection, the client with one that sends the same token as a constant header.
"""

import asyncio
import gc
import json
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, time

from contender import Contender, Unavailable
from load import drive
from section import run_alone
from threshold import Figures, Threshold

sys.path.insert(0, str(Path(__file__).parent / "servers"))
from serving import pin

RESOURCE = "http://127.0.0.1/mcp"
CONNECTIONS = 16
CLIENT_CORE = 1
WARM_UP = 0.25
TURN = 50
LEAST_TURNS = 30
TIMEOUT = 120.0
MOST_US = 10.0


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


# --- measuring ---------------------------------------------------------------------------------------------------


def measure(*, rounds: int, seconds: float, unavailable: dict[str, str]) -> Figures:
    """Rates and CPU time of an echo each round, interleaved; and the CPU time of a client's call."""
    figures: Figures = {"rate": {}, "cpu_us": {}, "client_us": {}}
    contenders: dict[str, Contender] = {}
    with _issuer() as (url, token):
        try:
            contenders["open"] = Contender("ours")
            header = ("Authorization", f"Bearer {token}")
            contenders["protected"] = Contender("protected", headers=(header,), env={"BENCH_ISSUER": url})
            for _ in range(rounds):
                for name, each in contenders.items():
                    rate, cpu = _one(each, seconds)
                    figures["rate"].setdefault(name, []).append(rate)
                    if cpu is not None:
                        figures["cpu_us"].setdefault(name, []).append(cpu)
                for name, value in _clients(contenders["protected"].port, token, seconds).items():
                    figures["client_us"].setdefault(name, []).append(value)
        except Unavailable as error:
            unavailable["authorization"] = str(error)
        finally:
            for each in contenders.values():
                each.stop()
    return figures


def _one(contender: Contender, seconds: float) -> tuple[float, float | None]:
    drive(contender.loads["echo"], connections=CONNECTIONS, seconds=WARM_UP)
    before = contender.cpu_seconds()
    measured = drive(contender.loads["echo"], connections=CONNECTIONS, seconds=seconds)
    after = contender.cpu_seconds()
    cpu = None if before is None or after is None else (after - before) / measured.requests * 1e6
    return measured.rate, cpu


def _clients(port: int, token: str, seconds: float) -> Figures:
    command = [sys.executable, __file__, "--drive", f"http://127.0.0.1:{port}/mcp", token, str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["no output"])[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


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


# --- judging -----------------------------------------------------------------------------------------------------


def _rate(figures: Figures) -> float | None:
    rates = figures["auth"]["rate"]
    if not rates.get("open") or not rates.get("protected"):
        return None
    return median(ours / plain for ours, plain in zip(rates["protected"], rates["open"], strict=True))


def _cpu(figures: Figures) -> float | None:
    cpu = figures["auth"]["cpu_us"]
    return median(cpu["open"]) / median(cpu["protected"]) if cpu.get("open") and cpu.get("protected") else None


def _client(figures: Figures) -> float | None:
    spent = figures["auth"]["client_us"]
    if not spent.get("login"):
        return None
    return median(login - plain for login, plain in zip(spent["login"], spent["constant"], strict=True))


THRESHOLDS = (
    Threshold(title="known token, echo, rate / unprotected", figure=_rate, bound=0.9, goal=0.95),
    Threshold(title="known token, echoes per CPU second / unprotected", figure=_cpu, bound=0.9, goal=0.95),
    Threshold(
        title="login, CPU us of a leg more than a header", figure=_client, bound=MOST_US, goal=5, less_is_better=True
    ),
)


def report(figures: Figures) -> None:
    for name, rates in figures["rate"].items():
        cpu = figures["cpu_us"].get(name)
        print(
            f"authorization, {name}: {median(rates):.0f} echoes/s, {f'{median(cpu):.1f}' if cpu else '-'} CPU us each"
        )
    for name, spent in figures["client_us"].items():
        print(f"authorization, client with a {name}: {median(spent):.1f} CPU us a call")


def main() -> int:
    pin(CLIENT_CORE)
    if "--drive" in sys.argv:
        url, token, seconds = sys.argv[2:]
        print(json.dumps(asyncio.run(_drive(url, token, float(seconds)))))
        return 0
    return run_alone(
        "auth", about=__doc__, measure=measure, report=report, thresholds=THRESHOLDS, usual=(5, 2.0), quick=(2, 0.5)
    )


if __name__ == "__main__":
    sys.exit(main())
