"""How everything is measured: each cell once per round, so that a slow moment of the machine hits all of them alike."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

from contender import LOAD_CORE, PROGRAMS, Contender, Unavailable, on_core
from load import Load, LoadError, drive

Figures: TypeAlias = dict[str, Any]
Samples: TypeAlias = dict[str, dict[str, list[float]]]
"""By cell and metric: a figure of each round."""

CONNECTIONS = 16
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long to measure, and what could not be measured."""

    rounds: int
    seconds: float
    quick: bool = False
    unavailable: dict[str, str] = field(default_factory=dict)
    kept: dict[str, Contender] = field(default_factory=dict)
    """Servers that run on for the sections that follow: only if it is to be quick."""

    def at_most(self, rounds: int, seconds: float) -> "Plan":
        """The same, for a section that is content with less."""
        return Plan(
            rounds=min(rounds, self.rounds),
            seconds=min(seconds, self.seconds),
            quick=self.quick,
            unavailable=self.unavailable,
            kept=self.kept,
        )

    def cannot(self, what: str, reason: object) -> None:
        """Note what is not measured, and why; the rest goes on."""
        self.unavailable[what] = str(reason) or type(reason).__name__
        print(f"not measured: {what}: {self.unavailable[what]}", file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One load on one server."""

    name: str
    contender: Contender
    load: Callable[[], Load]
    connections: int = CONNECTIONS


@contextmanager
def running(plan: Plan, names: Iterable[str]) -> Generator[dict[str, Contender]]:
    """The servers of these names; those that do not start are noted."""
    found: dict[str, Contender] = {}
    try:
        for name in names:
            try:
                found[name] = plan.kept[name] if name in plan.kept else Contender(name)
            except (Unavailable, OSError) as fault:
                plan.cannot(name, fault)
        yield found
    finally:
        if plan.quick:
            plan.kept.update(found)
        else:
            for each in found.values():
                each.stop()


def interleaved(plan: Plan, cells: Sequence[Cell]) -> Samples:
    """Each cell once per round; one that fails is noted, and left out from then on."""
    samples: Samples = {}
    failed = set[str]()
    for _ in range(plan.rounds):
        for cell in cells:
            if cell.name in failed:
                continue
            try:
                add(samples, cell.name, sample(cell, plan.seconds))
            except (LoadError, OSError) as fault:
                failed.add(cell.name)
                samples.pop(cell.name, None)
                plan.cannot(cell.name, fault)
    return samples


def sample(cell: Cell, seconds: float) -> dict[str, float]:
    """Drive a cell once: rate, latencies, and the server's processor time for a request."""
    drive(cell.load(), connections=cell.connections, seconds=seconds / 6)
    load, server = cell.load(), cell.contender
    before, start = server.cpu_seconds(), perf_counter()
    done = drive(load, connections=cell.connections, seconds=seconds)
    after, took = server.cpu_seconds(), perf_counter() - start
    found = {"rate": done.rate, "p50_ms": done.p50_ms, "p99_ms": done.p99_ms}
    if before is not None and after is not None:
        found["cpu_us"] = (after - before) / done.answered * 1e6
        found["core_share"] = (after - before) / took
    return found


def add(samples: Samples, name: str, found: dict[str, float]) -> None:
    for metric, value in found.items():
        samples.setdefault(name, {}).setdefault(metric, []).append(value)


def in_process(file: str, *arguments: str) -> Figures:
    """What a file of the benchmark prints as JSON, run by itself on the core of the load."""
    with on_core(LOAD_CORE):
        try:
            done = subprocess.run(
                [sys.executable, str(Path(__file__).parent / file), *arguments],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{file} did not end within {TIMEOUT:.0f} s") from None
    if done.returncode:
        raise Unavailable((done.stderr.strip().splitlines() or ["no output"])[-1])
    figures: Figures = json.loads(done.stdout)
    return figures


# --- figures of a run --------------------------------------------------------------------------------------------


def middle(samples: Samples, cell: str, metric: str = "rate") -> float | None:
    """The median of a metric."""
    values = samples.get(cell, {}).get(metric)
    return median(values) if values else None


def ratios(samples: Samples, cell: str, other: str, metric: str = "rate") -> list[float]:
    """The first cell's figure against the other's, in the same round."""
    pair = (samples.get(each, {}).get(metric, []) for each in (cell, other))
    return [one / against for one, against in zip(*pair, strict=False) if against]


def title(name: str) -> str:
    """The name of a server, as the page has it."""
    return PROGRAMS[name].title if name in PROGRAMS else name
