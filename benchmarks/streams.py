"""What waits and what streams: 500 calls with progress at once, and the memory of sessions, streams and open flows."""

import socket
from collections.abc import Callable, Iterator

import calls
from contender import Contender
from goals import Goal
from load import Load, LoadError, burst, exchange, hold
from measuring import Figures, Plan, Samples, add, ratios, running

WITH_PROGRESS = ("ours", "official-sse", "fastmcp-sse", "typescript")
LISTENING = ("ours", "official", "typescript")
ASKING = ("ours", "official")
OLD = ("ours", "official-sessions", "fastmcp-sessions", "typescript-sessions")
STREAMS, STEPS = 500, 10
WAITING = ("ours", "official-waiting", "fastmcp-waiting")
SESSIONS = 1000


def measure(plan: Plan) -> Figures:
    """By server: the figures of a burst of calls with progress; and by server and thing, the KB that one takes."""
    streams, sessions = (50, 50) if plan.quick else (STREAMS, SESSIONS)
    figures: Figures = {
        "streams": streams,
        "steps": STEPS,
        "cells": _bursts(plan, streams),
        "kb": {
            "listen stream": _kept(plan, LISTENING, _listening, streams),
            "pending flow": _kept(plan, ASKING, _pending, sessions),
            "session": _kept(plan, (*OLD, "mcp-lite-sessions"), _sessions, sessions),
            "waiting call": _kept(plan, WAITING, _waiting_calls, streams),
            "session with its stream": _kept(plan, OLD, _session_streams, streams),
        },
    }
    return figures


def _bursts(plan: Plan, streams: int) -> Samples:
    samples: Samples = {}
    failed = set[str]()
    with running(plan, WITH_PROGRESS) as contenders:
        for _ in range(plan.rounds):
            for name, each in contenders.items():
                if name in failed:
                    continue
                try:
                    add(samples, name, _burst(each, streams))
                except (LoadError, OSError) as fault:
                    failed.add(name)
                    samples.pop(name, None)
                    plan.cannot(f"{name}, {streams} streams", fault)
    return samples


def _burst(contender: Contender, streams: int) -> dict[str, float]:
    load = calls.progress(contender.port, STEPS)
    told = exchange(load).count(b"notifications/progress")
    if told != STEPS:
        raise LoadError(f"{told} notifications instead of {STEPS}")
    burst(load, connections=streams // 10)
    before = contender.cpu_seconds()
    done = burst(load, connections=streams)
    after = contender.cpu_seconds()
    found = {"seconds": done.seconds, "notifications": streams * STEPS / done.seconds, "p99_ms": done.p99_ms}
    if before is not None and after is not None:
        found["cpu_us"] = (after - before) / streams * 1e6
    return found


# --- memory ------------------------------------------------------------------------------------------------------

Kept = Callable[[Contender, int], Iterator[list[socket.socket]]]


def _kept(plan: Plan, names: tuple[str, ...], make: Kept, number: int) -> dict[str, float]:
    """By server: the KB by which its process grows for each of so many things that then do nothing."""
    found: dict[str, float] = {}
    for name in names:
        with running(plan, (name,)) as contenders:
            for each in contenders.values():
                try:
                    for held in make(each, max(1, number // 10)):  # the first also pay for caches
                        _close(held)
                    before = each.rss_mb()
                    for held in make(each, number):
                        after = each.rss_mb()
                        _close(held)
                    if before is not None and after is not None:
                        found[name] = (after - before) * 1024 / number
                except (LoadError, OSError, StopIteration) as fault:
                    plan.cannot(f"{name}, {make.__name__.strip('_').replace('_', ' ')}", fault)
    return found


def _close(held: list[socket.socket]) -> None:
    for each in held:
        each.close()


def _listening(contender: Contender, number: int) -> Iterator[list[socket.socket]]:
    load = Load(port=contender.port, request=calls.http(calls.listen(), contender.port), marker=b"")
    yield hold(load, connections=number, until=b"acknowledged")


def _pending(contender: Contender, number: int) -> Iterator[list[socket.socket]]:
    """Questions that nobody answers: the server has answered, and need keep nothing."""
    load = calls.plain(contender)["leg 1"]
    for _ in range(number):
        exchange(load)
    yield []


def _sessions(contender: Contender, number: int) -> Iterator[list[socket.socket]]:
    revision = calls.OLD_REVISION if contender.program.era == calls.REVISION else contender.program.era
    for _ in range(number):
        calls.open_session(contender.port, revision)
    yield []


def _session_streams(contender: Contender, number: int) -> Iterator[list[socket.socket]]:
    yield hold(calls.session_streams(contender.port, number), connections=number, until=b"\r\n\r\n")


def _waiting_calls(contender: Contender, number: int) -> Iterator[list[socket.socket]]:
    """Calls of 2025-11-25 that have asked, and wait for the answer."""
    yield hold(calls.waiting_calls(contender.port, number), connections=number, until=b"elicitation/create")


# --- judging -----------------------------------------------------------------------------------------------------


def _memory(thing: str, other: str) -> Callable[[Figures], list[float]]:
    def figure(figures: Figures) -> list[float]:
        found = figures["streams"]["kb"][thing]
        return [max(0.0, found["ours"]) / found[other]] if found[other] > 0 else []

    return figure


GOALS = (
    Goal(
        title="500 calls with progress, CPU / official",
        figure=lambda figures: ratios(figures["streams"]["cells"], "ours", "official-sse", "cpu_us"),
        at_most=1 / 4,
    ),
    Goal(
        title="idle session of 2025-11-25, memory / official",
        figure=_memory("session", "official-sessions"),
        at_most=1 / 5,
        bound=1 / 2,
    ),
    Goal(title="listen stream, memory / official", figure=_memory("listen stream", "official"), at_most=1 / 2),
    Goal(
        title="a flow that waits, KB in the server",
        figure=lambda figures: [figures["streams"]["kb"]["pending flow"]["ours"]],
        at_most=0.1,
    ),
)
