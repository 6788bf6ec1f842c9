"""What a million waiting conversations and 10,000 answers a second cost, with tokens and with sessions held open.

`python benchmarks/scale.py [FIGURES]` computes it from the JSON of run.py, and prints the page that `--publish` there
writes. A small simulation says what deploys and instances that die do to conversations in both designs. Its rules are
compared with what `make chaos` saw, if its report is in build/chaos.
"""

import argparse
import asyncio
import json
import math
import random
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

Figures = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
WAITING, ANSWERS = 1_000_000, 10_000
"""Conversations that wait for a person, and answers a second. Together they say how long one waits: 100 seconds."""
BUSY = 0.6
"""The share of its core that an instance may use."""
MEMORY_GB, CONNECTIONS = 4.0, 50_000
"""Of one instance that holds sessions."""
TOKEN_SECONDS = 600
"""For how long a token is valid, and an entry of the store is kept, unless the server says otherwise."""
FLOWS = 20_000


# --- the simulation: pure ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What happens to some instances in a span of seconds, and who talks to them."""

    seconds: float = 86_400.0
    instances: int = 12
    deploys: int = 0
    """In the whole span; each restarts one instance after the other."""
    crashes: int = 0
    drain: float = 30.0
    """Seconds for which an instance that is told to stop lets its calls go on."""
    restart: float = 10.0
    request: float = 0.02
    """Seconds that a request takes."""
    questions: tuple[int, int] = (1, 5)
    think: float = 60.0
    """Seconds in which half of the answers come; a tenth take more than five times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of the conversations."""

    flows: int
    lost: int = 0
    """Calls that ended because an instance did: the client calls again."""
    asked_again: int = 0
    """Answers of people that were lost with them."""
    sent_again: int = 0
    """Requests that a client had to send again, mostly to another instance; no person notices."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of an instance in order: when it refuses new work, when it ends what it holds, when it is back."""

    stops: list[float]
    ends: list[float]
    backs: list[float]

    def next(self, at: float) -> float:
        """When it next ends what it holds."""
        place = bisect_right(self.ends, at)
        return self.ends[place] if place < len(self.ends) else math.inf

    def takes_work(self, at: float) -> bool:
        place = bisect_right(self.ends, at)
        comes_back = place > 0 and at < self.backs[place - 1]
        goes = place < len(self.ends) and self.stops[place] <= at
        return not comes_back and not goes


def ends_of(world: World, chance: random.Random) -> list[Ends]:
    """What happens to each instance."""
    found: list[list[tuple[float, float, float]]] = [[] for _ in range(world.instances)]
    for _ in range(world.deploys):
        at = chance.uniform(0, world.seconds)
        for each in found:
            each.append((at + world.drain, at, at + world.drain + world.restart))
            at += world.drain + world.restart
    for _ in range(world.crashes):
        at = chance.uniform(0, world.seconds)
        found[chance.randrange(world.instances)].append((at, at, at + world.restart))
    rows = [sorted(each) for each in found]
    return [
        Ends([stop for _, stop, _ in row], [end for end, _, _ in row], [back for _, _, back in row]) for row in rows
    ]


def thinking(world: World, chance: random.Random) -> list[float]:
    """The seconds that the person of one conversation takes for each answer."""
    # Of a log-normal distribution: a tenth is above the median times e to the 1.28 sigma.
    sigma = math.log(5) / 1.2816
    return [chance.lognormvariate(math.log(world.think), sigma) for _ in range(chance.randint(*world.questions))]


Think = Callable[[World, random.Random], list[float]]


def with_sessions(world: World, flows: int, seed: int, think: Think = thinking) -> Outcome:
    """Each conversation lives in the instance where it began. If that ends, the call is lost, and made again."""
    chance = random.Random(seed)
    instances = ends_of(world, chance)
    lost = asked_again = 0
    for _ in range(flows):
        at, thoughts = chance.uniform(0, world.seconds), think(world, chance)
        while True:
            answers = list(accumulate(thoughts, initial=at))[1:]
            end = _up(instances, at, chance).next(at)
            if answers[-1] < end:
                break
            lost += 1
            asked_again += sum(answer <= end for answer in answers)
            at = end + world.request
    return Outcome(flows=flows, lost=lost, asked_again=asked_again)


def with_tokens(world: World, flows: int, seed: int, think: Think = thinking) -> Outcome:
    """Each request goes to any instance that is up, and nothing is held between two of them."""
    chance = random.Random(seed)
    instances = ends_of(world, chance)
    sent_again = 0
    for _ in range(flows):
        at, thoughts = chance.uniform(0, world.seconds), think(world, chance)
        for wait in (0.0, *thoughts):
            at += wait
            while at + world.request > (end := _up(instances, at, chance).next(at)):
                # The instance ended in the middle: the same request, with the same token, goes to another one.
                sent_again += 1
                at = end + world.request
            at += world.request
    return Outcome(flows=flows, sent_again=sent_again)


def _up(instances: Sequence[Ends], at: float, chance: random.Random) -> Ends:
    """An instance that takes new work; any, if all that were tried are on their way out or in."""
    found = instances[0]
    for _ in range(8 * len(instances)):
        found = instances[int(chance.random() * len(instances))]
        if found.takes_work(at):
            break
    return found


# --- the chaos run ------------------------------------------------------------------------------------------------

CHAOS = World(seconds=60, instances=3, drain=0.0, restart=1.0, request=0.05, questions=(1, 5), think=1.5)
RESTARTS = {"kill": 1, "deploy": 3, "rotate": 6}
"""How many instances each harm ends."""


def _quick(world: World, chance: random.Random) -> list[float]:
    return [chance.uniform(0, world.think) for _ in range(chance.randint(*world.questions))]


def as_chaos(seen: Figures, seed: int) -> tuple[Outcome, Outcome]:
    """The conversations of a chaos run, half with tokens and half with sessions, under as much harm."""
    conversations = seen["conversations"]
    ended = sum(RESTARTS.get(what, 0) for _, what in conversations["harm"])
    seconds = max((at for at, _ in conversations["harm"]), default=0.0) + 1
    world = replace(CHAOS, seconds=seconds, crashes=ended)
    half = conversations["flows"] // 2
    return with_tokens(world, half, seed, _quick), with_sessions(world, half, seed, _quick)


# --- store operations: counted ------------------------------------------------------------------------------------


async def _operations() -> dict[str, float]:
    """By kind of server: operations of its store for each answer of a conversation with one question."""
    from antiphon import Accepted, Client, Context, MemoryStore, Seal, Server
    from antiphon.rounds.token import generate_key

    class Counting(MemoryStore):
        count = 0

        async def get(self, key: str) -> bytes | None:
            self.count += 1
            return await super().get(key)

        async def put(self, key: str, value: bytes, *, ttl: float | None = None) -> None:
            self.count += 1
            await super().put(key, value, ttl=ttl)

        async def add(
            self, key: str, value: bytes = b"", *, ttl: float | None = None, replacing: bytes | None = None
        ) -> bool:
            self.count += 1
            return await super().add(key, value, ttl=ttl, replacing=replacing)

        async def take(self, key: str) -> bytes | None:
            self.count += 1
            return await super().take(key)

    async def agree(_question: Any) -> Any:
        return Accepted({"confirm": True})

    async def ship() -> str:
        return "shipped"

    async def counted(*, single_use: bool, step: bool) -> float:
        store = Counting()
        app = Server("scale", version="1", store=store, seal=Seal([generate_key(b"k" * 32)], single_use=single_use))

        @app.tool
        async def deploy(ctx: Context) -> str:
            if not await ctx.confirm("Go?"):
                return "Left alone"
            return await ctx.step("ship", ship) if step else "shipped"

        async with Client(app, elicit=agree) as client:
            await client.call_tool("deploy", {})
            store.count = 0
            for _ in range(20):
                await client.call_tool("deploy", {})
        return store.count / 20

    return {
        "asking": await counted(single_use=False, step=False),
        "single use": await counted(single_use=True, step=False),
        "a step": await counted(single_use=False, step=True),
        "both": await counted(single_use=True, step=True),
    }


def operations() -> dict[str, float]:
    return asyncio.run(_operations())


# --- the arithmetic ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a design needs for the waiting conversations and the answers a second."""

    held_gb: float
    """In the memory of the servers, for what waits."""
    cores: float
    """Busy with questions and answers."""
    instances: int
    wire_mb: float
    """A second, both ways, questions and answers."""


def with_tokens_cost(figures: Figures, name: str = "ours") -> Cost:
    """Questions and answers as two requests each; nothing is held."""
    cells = figures["http"]["cells"]
    cpu = sum(median(cells[f"{name}|{leg}|16"]["cpu_us"]) for leg in ("leg 1", "leg 2"))
    cores = ANSWERS * cpu / 1e6
    return Cost(
        held_gb=0.0,
        cores=cores,
        instances=math.ceil(cores / BUSY),
        wire_mb=ANSWERS * figures["asking"]["wire_bytes"][name]["1"] / 1e6,
    )


def with_sessions_cost(figures: Figures, waiting: str, session: str) -> Cost:
    """Each conversation a session with a call that waits. Of the processor time, only that of a plain call is known."""
    held = figures["streams"]["kb"]["waiting call"][waiting] * WAITING / 1e6
    cpu = median(figures["sessions"]["cells"][session]["cpu_us"])
    cores = 2 * ANSWERS * cpu / 1e6
    instances = max(held / MEMORY_GB, WAITING / CONNECTIONS, cores / BUSY)
    return Cost(held_gb=held, cores=cores, instances=math.ceil(instances), wire_mb=math.nan)


# --- the page ----------------------------------------------------------------------------------------------------

DAYS = {
    "nothing happens": World(),
    "2 instances die": World(crashes=2),
    "1 deploy": World(deploys=1),
    "10 deploys, 2 instances die": World(deploys=10, crashes=2),
    "10 deploys with 5 minutes to drain": World(deploys=10, crashes=2, drain=300.0),
}


def with_chaos(figures: Figures, root: Path = ROOT) -> Figures:
    """The figures, with what this page needs of the chaos run's report, if there is one."""
    file = root / "build" / "chaos" / "report.json"
    if not file.exists():
        return figures
    seen = json.loads(file.read_text("utf-8"))["conversations"]
    kept = ("flows", "harm", "lost", "tried again")
    return {**figures, "chaos": {"conversations": {name: seen[name] for name in kept}}}


def page(figures: Figures, seed: int = 2026) -> str:
    chaos = figures.get("chaos")
    tokens, token_bytes = with_tokens_cost(figures), figures["asking"]["token_bytes"]["ours"]
    free = {"Antiphon": tokens, "`mcp`": with_tokens_cost(figures, "official")}
    held = {
        "Antiphon": with_sessions_cost(figures, "ours", "ours"),
        "`mcp`": with_sessions_cost(figures, "official-waiting", "official-sessions"),
    }
    costs = [*free.values(), *held.values()]
    columns = [*(f"tokens, {name}" for name in free), *(f"sessions, {name}" for name in held)]
    rows = {
        "memory for what waits": [_memory(each.held_gb) for each in costs],
        "open connections": [*["those of requests"] * 2, *[f"{WAITING:,}"] * 2],
        "busy cores": [
            *(f"{each.cores:.1f}" for each in free.values()),
            *(f"over {each.cores:.1f}" for each in held.values()),
        ],
        "instances": [f"{each.instances}" for each in costs],
        "an answer goes to": [*["any instance"] * 2, "any, by the store", "the one that asked"],
        "lost with an instance": [
            *["nothing"] * 2,
            *(f"{WAITING // each.instances:,} calls" for each in held.values()),
        ],
    }
    head = f"| | {' | '.join(columns)} |\n|---{'|--:' * len(columns)}|\n"
    table = head + "".join(f"| {name} | {' | '.join(cells)} |\n" for name, cells in rows.items())
    counted = operations()
    store = "".join(
        f"| {what} | {count:g} | {count * ANSWERS:,.0f} |\n"
        for what, count in {
            "asking": counted["asking"],
            "single-use tokens": counted["single use"],
            "a step that runs once": counted["a step"],
            "both": counted["both"],
        }.items()
    )
    days = ""
    for name, world in DAYS.items():
        one, other = with_sessions(world, FLOWS, seed), with_tokens(world, FLOWS, seed)
        share = f"{one.lost:,} ({one.lost / one.flows:.1%})"
        days += f"| {name} | {share} | {one.asked_again:,} | {other.lost} | {other.sent_again} |\n"
    return PAGE.format(
        wait=WAITING // ANSWERS,
        under_way=f"{2 * ANSWERS * World().request / tokens.instances:.0f}",
        table=table,
        token=f"{token_bytes['1']:,}",
        growth=_growth(token_bytes),
        held=f"{token_bytes['1'] * WAITING / 1e9:.2g} GB",
        wire=f"{tokens.wire_mb:.0f} MB",
        busy=f"{BUSY:.0%}",
        memory=f"{MEMORY_GB:g} GB",
        connections=f"{CONNECTIONS:,}",
        pending=_pending(figures),
        store=store,
        kept=f"{ANSWERS * TOKEN_SECONDS / 1e6:g} million",
        days=days,
        flows=f"{FLOWS:,}",
        seed=seed,
        chaos=_compared(chaos, seed),
        when=figures["run"]["when"][:10],
    )


def _memory(gigabytes: float) -> str:
    return f"{gigabytes:.1f} GB" if gigabytes else "0"


def _growth(tokens: dict[str, int]) -> str:
    most = max(tokens, key=int)
    return f"after {most} questions it has {tokens[most]:,}" if most != "1" else "it grows with every answer"


def _pending(figures: Figures) -> str:
    kilobytes = figures["streams"]["kb"]["pending flow"].get("ours", math.nan)
    return f"{abs(kilobytes) * 1024:.0f} bytes"


def _compared(chaos: Figures | None, seed: int) -> str:
    if chaos is None:
        return "There was no report of `make chaos` when this page was written.\n"
    seen = chaos["conversations"]
    runs = [as_chaos(chaos, seed + each) for each in range(20)]
    again = sorted(held.lost for _, held in runs)
    sent = sorted(free.sent_again for free, _ in runs)
    told = seen["tried again"]
    return (
        f"| {seen['flows']} conversations, {len(seen['harm'])} harms | simulated, 20 seeds | `make chaos` |\n"
        "|---|--:|--:|\n"
        f"| lost, 2026-07-28 | 0 | {sum('modern' in each for each in seen['lost'])} |\n"
        f"| requests sent again | {sent[0]} to {sent[-1]} | {told.get('leg', 0)} |\n"
        f"| calls of 2025-11-25 made again | {again[0]} to {again[-1]} | {told.get('call', 0)} |\n"
    )


PAGE = """# At scale

What do {wait} seconds of thinking cost? Take a million conversations that wait for a person, and 10,000 answers a
second, with one question each. `benchmarks/scale.py` computes this page from the [figures](performance.md) of {when}.

## Tokens and sessions

With tokens, a question ends the request, and what is needed to go on travels with the client (revision 2026-07-28).
With sessions, the call stays open in one process while the person thinks (revision 2025-11-25).

{table}
* **Tokens.** Antiphon's has {token} bytes after one question; {growth}. Clients hold them, {held} in all. Questions
  and answers together are {wire} a second on the wire, headers included. In the measurement, the server grew by
  {pending} for each open question, which is what its memory varies by.
* **Sessions.** Memory is that of a session with a call that waits, as measured. An instance takes {memory} and
  {connections} connections. The processor time counts two plain calls for each conversation, which is less than it
  takes.
* An instance has one core, of which it may use {busy}.

## The store

Without a store, any instance can go on, with nothing but a shared key. A store is needed where something may happen
only once. These are its operations for each answer, as counted:

| | for one answer | a second |
|---|--:|--:|
{store}
Each entry is kept for as long as a token lives: {kept} entries at 10 minutes. The keys can be spread over several
Redis processes.

## Deploys and instances that die

Twelve instances serve {flows} conversations a day, with one to five questions each. Half of the answers come within a
minute, a tenth take more than five. A deploy stops one instance after the other, and gives each 30 seconds to end its
calls. A session ends with its instance: the call is lost, and its answers have to be given again. With tokens, a
request that was under way is sent again, and no person notices.

| a day | calls lost, sessions | answers to give again | lost, tokens | requests sent again |
|---|--:|--:|--:|--:|
{days}
A request takes 20 ms, so at 20,000 conversations a day hardly one is under way when an instance dies. At 10,000
answers a second, it would be {under_way} requests of each instance, which their clients send again. The simulation
has seed {seed}, and no clock but its own.

## Compared with the chaos run

`make chaos` does the same to real servers, at small size: three instances that share a Redis, answers within 1.5
seconds, and harm every few seconds. Simulated are as many conversations and ends of instances. Not simulated:
instances that stand still, a Redis that is restarted (requests wait for it), and a machine that is slow, where more
attempts fail than this.

{chaos}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, nargs="?", default=ROOT / "docs" / "performance.json")
    options = parser.parse_args()
    print(page(with_chaos(json.loads(options.figures.read_text("utf-8")))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
