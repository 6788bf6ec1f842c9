"""Requests over HTTP: an echo and both legs of a confirmed deploy, at 1, 16 and 64 connections."""

from collections.abc import Callable, Sequence

import calls
from goals import Goal
from load import LoadError, exchange
from measuring import Cell, Figures, Plan, Samples, interleaved, ratios, running

NAMES = (
    "ours",
    "ours-uvicorn",
    "official",
    "official-sse",
    "fastmcp",
    "typescript",
    "mcp-lite",
    "mcp-lite-sse",
    "bare",
    "bare-front",
)
PEERS = ("official", "official-sse", "fastmcp", "typescript", "mcp-lite", "mcp-lite-sse")
WORK = ("echo", "leg 1", "leg 2")
CONNECTIONS = (1, 16, 64)


def measure(plan: Plan) -> Figures:
    """By server, work and connections: rates, latencies and processor time; by server, the memory before it all."""
    memory: dict[str, float | None] = {}
    cells: list[Cell] = []
    with running(plan, NAMES) as contenders:
        for name, each in contenders.items():
            try:
                loads = calls.plain(each)
                exchange(loads["echo"])
            except (LoadError, OSError) as fault:
                plan.cannot(name, fault)
                continue
            memory[name] = each.rss_mb()
            cells += [
                Cell(
                    name=f"{name}|{work}|{connections}",
                    contender=each,
                    load=lambda load=load: load,
                    connections=connections,
                )
                for work, load in loads.items()
                for connections in (CONNECTIONS[1:2] if plan.quick else CONNECTIONS)
            ]
        # Each work in turn on all servers: what is compared is measured close together.
        cells.sort(key=lambda cell: (cell.connections, WORK.index(cell.name.split("|")[1])))
        return {"cells": interleaved(plan, cells), "idle_mb": memory}


# --- judging -----------------------------------------------------------------------------------------------------


def _cells(figures: Figures) -> Samples:
    cells: Samples = figures["http"]["cells"]
    return cells


def _against(one: str, other: str, metric: str = "rate") -> Callable[[Figures], Sequence[float]]:
    return lambda figures: ratios(_cells(figures), one, other, metric)


def _spread(figures: Figures) -> list[float]:
    cell = _cells(figures)["ours|echo|16"]
    return [high / half for high, half in zip(cell["p99_ms"], cell["p50_ms"], strict=True)]


def _slowest_against_peers(figures: Figures) -> list[float]:
    cells = _cells(figures)
    ours = cells["ours|echo|16"]["p99_ms"]
    peers = [cells[f"{peer}|echo|16"]["p50_ms"] for peer in ("official", "fastmcp", "typescript")]
    return [high / min(halves) for high, halves in zip(ours, zip(*peers, strict=True), strict=True)]


def _idle(figures: Figures) -> list[float]:
    return [figures["http"]["idle_mb"]["ours"]]


GOALS = (
    Goal(title="echo, rate / official, JSON", figure=_against("ours|echo|16", "official|echo|16"), at_least=8, bound=5),
    Goal(title="echo, rate / TypeScript SDK", figure=_against("ours|echo|16", "typescript|echo|16"), at_least=8),
    Goal(title="echo, rate / mcp-lite, JSON", figure=_against("ours|echo|16", "mcp-lite|echo|16"), at_least=1.2),
    Goal(
        title="echo, rate / bare ASGI, both under uvicorn",
        figure=_against("ours-uvicorn|echo|16", "bare|echo|16"),
        at_least=0.7,
        bound=0.5,
    ),
    Goal(title="leg 1, rate / official", figure=_against("ours|leg 1|16", "official|leg 1|16"), at_least=9, bound=6),
    Goal(title="leg 2, rate / official", figure=_against("ours|leg 2|16", "official|leg 2|16"), at_least=9, bound=6),
    Goal(title="leg 1, rate / bare ASGI", figure=_against("ours|leg 1|16", "bare|echo|16"), at_least=0.45),
    Goal(title="leg 2, rate / bare ASGI", figure=_against("ours|leg 2|16", "bare|echo|16"), at_least=0.45),
    Goal(
        title="echo, CPU / official",
        figure=_against("ours|echo|16", "official|echo|16", "cpu_us"),
        at_most=1 / 8,
        bound=1 / 5,
    ),
    Goal(
        title="leg 1, CPU / official", figure=_against("ours|leg 1|16", "official|leg 1|16", "cpu_us"), at_most=1 / 10
    ),
    Goal(
        title="leg 2, CPU / official", figure=_against("ours|leg 2|16", "official|leg 2|16", "cpu_us"), at_most=1 / 10
    ),
    Goal(
        title="echo, CPU / bare ASGI, both under our HTTP",
        figure=_against("ours|echo|16", "bare-front|echo|16", "cpu_us"),
        at_most=1.6,
    ),
    Goal(title="echo, p99 / p50", figure=_spread, at_most=2),
    Goal(title="echo, p99 / the quickest peer's p50", figure=_slowest_against_peers, at_most=1),
    Goal(title="idle memory, MB", figure=_idle, at_most=45, bound=60),
)
