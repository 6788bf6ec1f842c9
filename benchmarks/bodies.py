"""Calls with large arguments: a text, the same with escapes, a table with spaces, and a matrix."""

import calls
from goals import Goal
from load import LoadError
from measuring import Cell, Figures, Plan, interleaved, ratios, running

NAMES = ("ours", "official", "fastmcp", "typescript")
SIZES = {"1 KB": 1_000, "10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000}
CONNECTIONS = 4


def measure(plan: Plan) -> Figures:
    """By server, form and size: rates, latencies and processor time."""
    sizes = {name: size for name, size in SIZES.items() if not plan.quick or name != "10 KB"}
    cells: list[Cell] = []
    with running(plan, NAMES) as contenders:
        for size, number in sizes.items():
            for form in calls.FORMS:
                for name, each in contenders.items():
                    if name == "fastmcp" and number > 100_000:
                        continue
                    try:
                        load = calls.sized(each.port, form, number)
                    except LoadError as fault:
                        plan.cannot(f"{name}|{form}|{size}", fault)
                        continue
                    cells.append(
                        Cell(
                            name=f"{name}|{form}|{size}",
                            contender=each,
                            load=lambda load=load: load,
                            connections=CONNECTIONS,
                        )
                    )
        return {"cells": interleaved(plan, cells)}


def _goal(form: str, size: str) -> Goal:
    return Goal(
        title=f"{size}, {form}, rate / official",
        figure=lambda figures: ratios(figures["bodies"]["cells"], f"ours|{form}|{size}", f"official|{form}|{size}"),
        at_least=4,
    )


GOALS = tuple(_goal(form, size) for size in ("100 KB", "1 MB") for form in calls.FORMS)
