"""Several processes, one key, one store: legs alternate, a process dies, and nobody notices."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.rounds.token import generate_key

KEY = generate_key(b"i" * 32)
INSTANCE = Path(__file__).parent / "instance.py"
pytestmark = pytest.mark.heavy
FLOWS = 200
AT_ONCE = 20
SENDS = 100
PATIENCE = 30.0

Json = dict[str, Any]


class Instance:
    """A server process, and the socket that it was given."""

    def __init__(self, store: Path, effects: Path, *options: str) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        command = [sys.executable, str(INSTANCE), str(listening.fileno()), str(store), str(effects), *options]
        environment = {**os.environ, "ANTIPHON_KEYS": KEY}
        with listening, (store.parent / "instances.log").open("a") as log:
            self.process = subprocess.Popen(command, env=environment, pass_fds=[listening.fileno()], stderr=log)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Instance]]:
    started: list[Instance] = []

    def start(*options: str) -> Instance:
        started.append(Instance(tmp_path / "store.db", tmp_path / "effects", *options))
        return started[-1]

    yield start
    for instance in started:
        instance.kill()


def effects(tmp_path: Path) -> Counter[str]:
    written = tmp_path / "effects"
    return Counter(written.read_text().split() if written.exists() else [])


def accept(**content: Any) -> Json:
    return {"action": "accept", "content": content}


class Caller:
    """Sends legs to instances in turn, and can hold them all back for a moment."""

    def __init__(self, client: httpx.AsyncClient, instances: list[Instance]) -> None:
        self.instances = instances
        self.sent = 0
        self._client = client
        self._ids = count(1)
        self._under_way = 0
        self._open = asyncio.Event()
        self._open.set()
        self._quiet = asyncio.Event()

    async def send(self, name: str, arguments: Json, state: str | None = None, responses: Json | None = None) -> Json:
        await self._open.wait()
        url = self.instances[self.sent % len(self.instances)].url
        self.sent += 1
        self._under_way += 1
        self._quiet.clear()
        try:
            return await self.post(url, name, arguments, state, responses)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._quiet.set()

    async def between_legs(self, act: Callable[[], None]) -> None:
        """Do something while no request is under way."""
        self._open.clear()
        if self._under_way:
            await self._quiet.wait()
        act()
        self._open.set()

    async def post(self, url: str, name: str, arguments: Json, state: str | None, responses: Json | None) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        params: Json = {"name": name, "arguments": arguments, "_meta": meta}
        if state is not None:
            params["requestState"] = state
        if responses is not None:
            params["inputResponses"] = responses
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
        reply = (await self._client.post(url, json=body, headers=headers)).json()
        assert reply["id"] == body["id"]
        return reply


@pytest.fixture
async def client():
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=2 * AT_ONCE)
    async with httpx.AsyncClient(timeout=PATIENCE, limits=limits) as client:
        yield client


async def test_flows_outlive_the_process_that_began_them(
    client: httpx.AsyncClient, start: Callable[..., Instance], tmp_path: Path
) -> None:
    doomed, survivor = start(), start()
    caller = Caller(client, [doomed, survivor])
    answers = {"where": accept(value="eu"), "sure": accept(confirm=True)}
    asked: Counter[tuple[str, str]] = Counter()
    finished: dict[str, str] = {}
    half_done = asyncio.Event()
    begun_before_the_end: set[str] = set()
    finished_before_the_end: set[str] = set()

    async def flow(name: str) -> None:
        state, responses = None, None
        while True:
            result = (await caller.send("order", {"name": name}, state, responses))["result"]
            if result["resultType"] == "complete":
                finished[name] = result["content"][0]["text"]
                if len(finished) == FLOWS // 2:
                    half_done.set()
                return
            state = result["requestState"]
            responses = {key: answers[key] for key in result["inputRequests"]}
            asked.update((name, key) for key in result["inputRequests"])

    async def worker(names: Iterator[str]) -> None:
        for name in names:
            await flow(name)

    async def end_one() -> None:
        await half_done.wait()

        def act() -> None:
            begun_before_the_end.update(name for name, _ in asked)
            finished_before_the_end.update(finished)
            doomed.kill()
            caller.instances = [survivor]

        await caller.between_legs(act)

    names = iter([f"flow-{number}" for number in range(FLOWS)])
    async with asyncio.timeout(2 * PATIENCE), asyncio.TaskGroup() as group:
        group.create_task(end_one())
        for _ in range(AT_ONCE):
            group.create_task(worker(names))

    everything = [f"flow-{number}" for number in range(FLOWS)]
    assert doomed.process.returncode == -signal.SIGKILL
    assert survivor.process.poll() is None
    assert begun_before_the_end - finished_before_the_end, "the process did not die in the middle of a flow"
    assert len(finished_before_the_end) < FLOWS
    assert sorted(finished) == sorted(everything)
    assert all(text.startswith(f"{name} eu True ") for name, text in finished.items())
    assert asked == Counter((name, key) for name in everything for key in ("where", "sure"))
    assert effects(tmp_path) == Counter(everything)
    pids = Counter(text.rsplit(" ", 1)[1] for text in finished.values())
    assert set(pids) == {str(doomed.process.pid), str(survivor.process.pid)}


async def test_a_leg_that_is_sent_to_both_processes_runs_its_step_once(
    client: httpx.AsyncClient, start: Callable[..., Instance], tmp_path: Path
) -> None:
    one, other = start(), start()
    caller = Caller(client, [one, other])
    first = (await caller.send("order", {"name": "twice"}))["result"]
    sends = [
        caller.send("order", {"name": "twice"}, first["requestState"], {"where": accept(value="eu")}) for _ in range(10)
    ]
    async with asyncio.timeout(PATIENCE):
        replies = await asyncio.gather(*sends)
    assert effects(tmp_path) == Counter(["twice"])
    lasts = [
        await caller.send("order", {"name": "twice"}, reply["result"]["requestState"], {"sure": accept(confirm=True)})
        for reply in replies
    ]
    assert len({last["result"]["content"][0]["text"] for last in lasts}) == 1


async def test_of_a_hundred_simultaneous_sends_over_two_processes_exactly_one_runs(
    client: httpx.AsyncClient, start: Callable[..., Instance], tmp_path: Path
) -> None:
    instances = [start("once"), start("once")]
    caller = Caller(client, instances)
    for code in ("A", "B"):
        # Both processes are up and warm before it counts, so that neither comes late.
        firsts = [(await caller.send("redeem", {"code": code}))["result"] for _ in instances]
        token = firsts[0]["requestState"]
        sends = [caller.send("redeem", {"code": code}, token, {"confirm": accept(confirm=True)}) for _ in range(SENDS)]
        async with asyncio.timeout(PATIENCE):
            replies = await asyncio.gather(*sends)
        errors = [reply["error"] for reply in replies if "error" in reply]
        assert errors == [{"code": -32602, "message": "Invalid or expired requestState"}] * (SENDS - 1)
        assert effects(tmp_path)[code] == 1


async def test_a_process_that_stood_still_gives_back_what_another_one_recorded_in_its_place(
    client: httpx.AsyncClient, start: Callable[..., Instance], tmp_path: Path
) -> None:
    one, other = start("brief"), start("brief")
    caller = Caller(client, [one])
    token = (await caller.send("hold", {}))["result"]["requestState"]

    def hold(instance: Instance) -> asyncio.Task[Json]:
        return asyncio.create_task(caller.post(instance.url, "hold", {}, token, {"confirm": accept(confirm=True)}))

    async def holds(instance: Instance) -> None:
        while not effects(tmp_path)[str(instance.process.pid)]:  # noqa: ASYNC110 -- another process writes it
            await asyncio.sleep(0.01)

    async with asyncio.timeout(PATIENCE):
        asleep = hold(one)
        await holds(one)
        one.process.send_signal(signal.SIGSTOP)
        awake = hold(other)
        await holds(other)
        (tmp_path / f"effects-{other.process.pid}").touch()
        told = [await awake]
        (tmp_path / f"effects-{one.process.pid}").touch()
        one.process.send_signal(signal.SIGCONT)
        told += [await asleep, await hold(one), await hold(other)]
    assert {reply["result"]["content"][0]["text"] for reply in told} == {str(other.process.pid)}
    assert effects(tmp_path) == Counter([str(one.process.pid), str(other.process.pid)])
