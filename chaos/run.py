"""Let conversations run while their servers are killed, paused, restarted, overloaded and cut off from their store.

`python chaos/run.py [--flows N] [--seconds S] [--soak S] [--seed N] [--publish]`. All of it stays on this machine, and
ends by itself. The report is `build/chaos/chaos.md`, with plots, and `build/chaos/report.json`; `--publish` writes it
into the documentation. The exit code is 1 if a flow was lost, a question asked twice, an effect done twice, or if an
instance keeps memory or files.

A conversation of 2026-07-28 survives everything. A call of 2025-11-25 waits in one process, and is lost with it: its
client makes it again, as a new conversation. Harm ends when the new conversations are done, so that the old ones get
their turn; how often calls were made again is in the report.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from report import DRIPPING, SPARE_FILES, faults_of, write  # noqa: E402

from antiphon import Accepted, CallFailed, CallTimeout, Client, Disconnected, Pending, Refused  # noqa: E402
from antiphon.rounds.token import generate_key  # noqa: E402
from legacy.instances.proxy import Proxy  # noqa: E402 -- a helper of the tests
from redis_server import launch, stop  # noqa: E402

INSTANCES = 3
PATIENCE = {"leg": 90.0, "call": 300.0}
"""Seconds for which a client tries one request, or makes one call, again before its flow counts as lost."""
PAUSE = (2.0, 4.0)
"""Seconds between two harms: an instance takes about one to start."""
REPORT = ROOT / "build" / "chaos"
BODY_HEAD = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"


# --- what is shaken --------------------------------------------------------------------------------------------------


class Instance:
    """A server process on a port that stays the same when it is started again."""

    def __init__(self, cluster: "Cluster", skew: float) -> None:
        self.skew = skew
        self._cluster = cluster
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port: int = self._listening.getsockname()[1]
        self.start()

    def start(self) -> None:
        about = [self._listening.fileno(), self._cluster.store, self._cluster.effects, self.skew, self._cluster.most]
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server.py")), *map(str, about)],
            pass_fds=[self._listening.fileno()],
            env={**os.environ, "ANTIPHON_KEYS": ",".join(self._cluster.keys)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._cluster.log,
        )

    def end(self, how: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(how)
            if how == signal.SIGKILL:
                self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)

    def close(self) -> None:
        self.end(signal.SIGKILL)
        self._listening.close()


class Cluster:
    """Instances that share a Redis, whose data survives its death, and a file of effects."""

    def __init__(self, folder: Path, most: int = 10_000) -> None:
        self.keys = [_key()]
        self.effects = folder / "effects"
        self.most = most
        self.log = (folder / "instances.log").open("ab")
        self._folder = folder
        self._socket = Path(tempfile.mkdtemp(prefix="chaos-")) / "redis.sock"
        self.store = f"unix://{self._socket}"
        self.redis = self._launch()
        self.instances = [Instance(self, skew) for skew in (0.0, 20.0, -20.0)[:INSTANCES]]

    def _launch(self) -> "subprocess.Popen[bytes]":
        return launch(self._socket, self._folder, "--appendonly", "yes", "--appendfsync", "always")

    def restart_redis(self) -> None:
        stop(self.redis)
        self._socket.unlink(missing_ok=True)
        self.redis = self._launch()

    def close(self) -> None:
        for instance in self.instances:
            instance.close()
        stop(self.redis)
        self.log.close()

    def done_twice(self) -> dict[str, int]:
        """The effects that were done more than once, and how often."""
        lines = self.effects.read_text().splitlines() if self.effects.exists() else []
        return {line: count for line, count in Counter(lines).items() if count > 1}


def _key() -> str:
    return generate_key(os.urandom(32))


class Monkey:
    """Does one harm after another, until it is told to stop; notes when it did what."""

    def __init__(self, cluster: Cluster, chance: random.Random, began: float) -> None:
        self._cluster = cluster
        self._chance = chance
        self._began = began
        self.done: list[tuple[float, str]] = []

    async def harm(self) -> None:
        deeds = [self._kill, self._pause, self._deploy, self._rotate, self._cut_off]
        while True:
            self._chance.shuffle(deeds)
            for deed in deeds:
                await asyncio.sleep(self._chance.uniform(*PAUSE))
                self.done.append((time.monotonic() - self._began, deed.__name__.strip("_")))
                await deed()

    async def _kill(self) -> None:
        """Kill an instance, and start it again."""
        instance = self._chance.choice(self._cluster.instances)
        await asyncio.to_thread(instance.end, signal.SIGKILL)
        instance.start()

    async def _pause(self) -> None:
        """Stop an instance for a while, so that it answers nothing and holds what it holds."""
        process = self._chance.choice(self._cluster.instances).process
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._chance.uniform(0.5, 2))
        process.send_signal(signal.SIGCONT)

    async def _deploy(self) -> None:
        """Restart one instance after the other in good order."""
        for instance in self._cluster.instances:
            await asyncio.to_thread(instance.end, signal.SIGTERM)
            instance.start()

    async def _rotate(self) -> None:
        """Let all instances know a new key, then let all seal with it. Older keys stay: their tokens still live."""
        new = _key()
        self._cluster.keys.append(new)
        await self._deploy()
        self._cluster.keys.sort(key=lambda key: key != new)
        await self._deploy()

    async def _cut_off(self) -> None:
        """Kill the store, and start it again with its data."""
        await asyncio.to_thread(self._cluster.restart_redis)


# --- who talks -------------------------------------------------------------------------------------------------------


class Tally:
    """What came of the flows."""

    def __init__(self, began: float) -> None:
        self._began = began
        self.finished: list[tuple[float, str]] = []
        self.lost: list[str] = []
        self.asked_twice: list[str] = []
        self.tries: Counter[str] = Counter()

    def finish(self, kind: str) -> None:
        self.finished.append((time.monotonic() - self._began, kind))


def _passes(fault: CallFailed) -> bool:
    """Whether trying again is what a client does: the server was away, busy or without its store."""
    if isinstance(fault, Refused):
        return fault.code == -32603 or (fault.status or 0) >= 500
    return isinstance(fault, Disconnected | CallTimeout)


def _declared(question: Any) -> Any:
    """Declare that forms can be answered; the flow answers them itself."""
    raise AssertionError(question)


class Flow:
    """One conversation: a person who thinks a little before each answer."""

    def __init__(self, number: int, url: str, chance: random.Random, tally: Tally, thinking: float = 1.5) -> None:
        self.name = f"flow-{number}"
        self.questions = chance.randint(1, 5)
        self._url = url
        self._think = [chance.uniform(0, thinking) for _ in range(self.questions)]
        self._tally = tally
        self.expected = " ".join(f"{self.name}/{each}" for each in range(self.questions))

    async def modern(self) -> None:
        """Revision 2026-07-28: each round in a client of its own, with nothing but the Pending in between."""
        pending: Pending | None = None
        next_ = 0
        while True:
            answers = {} if pending is None else {f"q{next_ - 1}": Accepted({"value": f"{self.name}/{next_ - 1}"})}
            outcome = await self._leg(pending, answers)
            if not isinstance(outcome, Pending):
                if outcome.result.text != self.expected:
                    self._tally.lost.append(f"{self.name}: {outcome.result.text!r} instead of {self.expected!r}")
                break
            if list(outcome.questions) != [f"q{next_}"]:
                self._tally.asked_twice.append(f"{self.name}: {list(outcome.questions)} instead of q{next_}")
                break
            pending = Pending.from_json(outcome.to_json())
            await asyncio.sleep(self._think[next_])
            next_ += 1
        self._tally.finish("modern")

    async def _leg(self, pending: Pending | None, answers: dict[str, Any]) -> Any:
        async def leg() -> Any:
            async with Client(self._url, elicit=_declared, auto=False, era="2026-07-28", timeout=20) as client:
                if pending is None:
                    arguments = {"name": self.name, "questions": self.questions}
                    return await client.begin("tools/call", name="interview", arguments=arguments)
                return await client.resume(pending, answers)

        return await self._tried("leg", leg)

    async def old(self) -> None:
        """Revision 2025-11-25: a session, and a call that stays open. An instance that dies takes its calls along."""

        async def answer(question: Any) -> Any:
            number = int(question.key[1:])
            await asyncio.sleep(self._think[number])
            return Accepted({"value": f"{self.name}/{number}"})

        async def call() -> Any:
            async with Client(self._url, elicit=answer, era="legacy", timeout=20) as client:
                result = await client.call_tool("interview", {"name": self.name, "questions": self.questions})
            if result.is_error and result.text.endswith("Call again."):
                raise Disconnected(result.text)  # a server that stops says so to calls that wait
            return result

        result = await self._tried("call", call)
        if result.text != self.expected:
            self._tally.lost.append(f"{self.name}: {result.text!r} instead of {self.expected!r}")
        self._tally.finish("old")

    async def _tried(self, what: str, attempt: Any) -> Any:
        end, wait = time.monotonic() + PATIENCE[what], 0.05
        while True:
            try:
                return await attempt()
            except CallFailed as fault:
                if not _passes(fault) or time.monotonic() > end:
                    raise
                self._tally.tries[what] += 1
            await asyncio.sleep(wait * random.uniform(0.5, 1.5))
            wait = min(wait * 2, 2.0)

    async def run(self, kind: str) -> None:
        try:
            await getattr(self, kind)()
        except (CallFailed, TimeoutError) as fault:
            self._tally.lost.append(f"{self.name} ({kind}): {type(fault).__name__}: {fault}")


@asynccontextmanager
async def _shaken(cluster: Cluster, chance: random.Random, began: float) -> AsyncGenerator[Monkey]:
    monkey = Monkey(cluster, chance, began)
    task = asyncio.create_task(monkey.harm())
    try:
        yield monkey
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def conversations(flows: int, seconds: float, chance: random.Random, folder: Path) -> dict[str, Any]:
    """Begin the flows within so many seconds, half of them in each era, while harm is done."""
    cluster = Cluster(folder)
    try:
        async with Proxy([instance.port for instance in cluster.instances]) as proxy:
            url = f"http://127.0.0.1:{proxy.port}/mcp"
            began = time.monotonic()
            tally = Tally(began)

            async def begin(number: int) -> None:
                await asyncio.sleep(number * seconds / flows)
                await Flow(number, url, chance, tally).run("modern" if number % 2 else "old")

            under_way = [asyncio.create_task(begin(number)) for number in range(flows)]
            async with _shaken(cluster, chance, began) as monkey:
                await asyncio.gather(*under_way[1::2])
            await asyncio.gather(*under_way[::2])
            return {
                "flows": flows,
                "seconds": round(time.monotonic() - began, 1),
                "finished": tally.finished,
                "harm": monkey.done,
                "lost": tally.lost,
                "asked twice": tally.asked_twice,
                "done twice": cluster.done_twice(),
                "tried again": dict(tally.tries),
            }
    finally:
        cluster.close()


async def overload(folder: Path) -> dict[str, Any]:
    """Send one instance several times what it takes at once; then see that it is as quick as before."""
    cluster = Cluster(folder, most=32)
    url = f"http://127.0.0.1:{cluster.instances[0].port}/mcp"
    busy: Counter[str] = Counter()

    async def call() -> None:
        for attempt in range(60):
            try:
                async with Client(url, era="2026-07-28", timeout=30) as client:
                    await client.call_tool("work", {"milliseconds": 20})
            except Refused as fault:
                if fault.status != 503:
                    raise
                busy["refused" if fault.retry_after is not None else "refused without Retry-After"] += 1
                await asyncio.sleep(random.uniform(0.2, 1.0) * (1 + attempt / 4))
            else:
                busy["served"] += 1
                return
        busy["given up"] += 1

    async def quick() -> float:
        began = time.perf_counter()
        async with Client(url, era="2026-07-28") as client:
            await client.call_tool("work", {"milliseconds": 20})
        return time.perf_counter() - began

    try:
        before = sorted([await quick() for _ in range(20)])[10]
        began = time.monotonic()
        await asyncio.gather(*(call() for _ in range(400)))
        took = time.monotonic() - began
        after = sorted([await quick() for _ in range(20)])[10]
    finally:
        cluster.close()
    return {**busy, "seconds": round(took, 1), "ms before": round(before * 1e3, 1), "ms after": round(after * 1e3, 1)}


async def soak(seconds: float, chance: random.Random, folder: Path) -> dict[str, Any]:
    """Give one instance mixed work and hostile peers, and see what it keeps: memory, and open files."""
    cluster = Cluster(folder)
    instance = cluster.instances[0]
    url = f"http://127.0.0.1:{instance.port}/mcp"
    began = time.monotonic()
    tally, done = Tally(began), Counter[str]()
    samples: list[tuple[float, float, int]] = []

    def sample() -> tuple[float, float, int]:
        found = _held(instance.process.pid)
        samples.append((round(time.monotonic() - began, 1), *found))
        return samples[-1]

    async def converse(kind: str) -> None:
        while time.monotonic() - began < seconds:
            flow = Flow(len(tally.finished), url, chance, tally, thinking=0.02)
            await flow.run(kind)
            done[kind] += 1

    async def work() -> None:
        async with Client(url, era="2026-07-28", timeout=30) as client:
            while time.monotonic() - began < seconds:
                await client.call_tool("work", {"milliseconds": 5})
                done["plain"] += 1

    async def drip(head: bytes) -> float:
        """Send a request byte by byte, for as long as the server takes it. Return how many seconds that was."""
        reader, writer = await asyncio.open_connection("127.0.0.1", instance.port)
        start = time.monotonic()
        writer.write(head)
        closed = asyncio.create_task(reader.read())
        while not closed.done() and time.monotonic() - start < DRIPPING:
            with suppress(ConnectionError):
                writer.write(b"x")
            await asyncio.wait([closed], timeout=0.5)
        closed.cancel()
        writer.close()
        return time.monotonic() - start

    async def watch() -> None:
        while True:
            sample()
            await asyncio.sleep(1)

    try:
        await Flow(0, url, chance, tally, thinking=0.0).run("modern")  # the instance is up, and has asked once
        before = sample()
        watching = asyncio.create_task(watch())
        heads = [b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", BODY_HEAD]
        slow = [asyncio.create_task(drip(heads[each % 2])) for each in range(200)]
        await asyncio.gather(*(converse(kind) for kind in ("modern", "old") for _ in range(3)), work(), work())
        dripped = await asyncio.gather(*slow)
        end = time.monotonic() + PATIENCE["leg"]
        while sample()[2] > before[2] + SPARE_FILES and time.monotonic() < end:  # idle connections close by themselves
            await asyncio.to_thread(time.sleep, 0.5)
        watching.cancel()
        after = sample()
    finally:
        cluster.close()
    warm = next((memory for at, memory, _ in samples if at > seconds / 3), before[1])
    return {
        "seconds": round(seconds, 1),
        "work": dict(done),
        "lost": tally.lost + tally.asked_twice,
        "slow connections": len(dripped),
        "slowest closed after s": round(max(dripped), 1),
        "MB at start, after a third, at the end": [before[1], warm, after[1]],
        "open files at start and at the end": [before[2], after[2]],
        "samples": samples,
    }


def _held(process: int) -> tuple[float, int]:
    """The resident memory of a process, in MB, and how many files it has open."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return round(memory / 1024, 1), len(list(Path(f"/proc/{process}/fd").iterdir()))


# --- all of it --------------------------------------------------------------------------------------------------------


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--flows", type=int, default=500)
    options.add_argument("--seconds", type=float, default=60, help="within which the flows begin")
    options.add_argument("--soak", type=float, default=45, help="seconds of mixed load")
    options.add_argument("--publish", action="store_true", help="write docs/chaos.md and its plots")
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    print(f"seed {given.seed}", flush=True)
    chance = random.Random(given.seed)
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        first, second, third = Path(name, "flows"), Path(name, "load"), Path(name, "soak")
        for folder in (first, second, third):
            folder.mkdir()
        seen = {
            "seed": given.seed,
            "conversations": asyncio.run(conversations(given.flows, given.seconds, chance, first)),
            "overload": asyncio.run(overload(second)),
            "soak": asyncio.run(soak(given.soak, chance, third)),
        }
    faults = faults_of(seen)
    for report in [REPORT, *([ROOT / "docs"] if given.publish else [])]:
        write(seen, faults, report)
    (REPORT / "report.json").write_text(json.dumps(seen, indent=1))
    flows = seen["conversations"]
    print(f"{len(flows['finished'])} of {flows['flows']} flows ended in {flows['seconds']} s;", end=" ")
    print(f"harm: {dict(Counter(what for _, what in flows['harm']))}; made again: {flows['tried again']}")
    print(f"overload: {seen['overload']}")
    print(f"soak: { {name: value for name, value in seen['soak'].items() if name != 'samples'} }")
    print("\n".join(faults[:20]) or "nothing lost, nothing asked twice, nothing done twice")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
