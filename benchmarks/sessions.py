"""Clients of 2025-11-25: a call in a session. Each connection is a client with a session of its own."""

import calls
from contender import Contender
from goals import Goal
from measuring import CONNECTIONS, Cell, Figures, Plan, interleaved, ratios, running

NAMES = ("ours", "official-sessions", "fastmcp-sessions", "typescript-sessions", "mcp-lite-sessions")


def measure(plan: Plan) -> Figures:
    """By server: rates, latencies and processor time."""
    with running(plan, NAMES) as contenders:
        cells = [
            Cell(
                name=name,
                contender=each,
                load=lambda each=each: calls.in_sessions(each.port, CONNECTIONS, _revision(each)),
            )
            for name, each in contenders.items()
        ]
        return {"cells": interleaved(plan, cells)}


def _revision(contender: Contender) -> str:
    """Ours serves all of them."""
    return calls.OLD_REVISION if contender.program.era == calls.REVISION else contender.program.era


GOALS = (
    Goal(
        title="call in a session of 2025-11-25, rate / official",
        figure=lambda figures: ratios(figures["sessions"]["cells"], "ours", "official-sessions"),
        at_least=5,
        bound=4,
    ),
    Goal(
        title="call in a session of 2025-11-25, CPU / official",
        figure=lambda figures: ratios(figures["sessions"]["cells"], "ours", "official-sessions", "cpu_us"),
        at_most=1 / 5,
    ),
)
