"""What the chaos run saw: what must not have happened, and the page with its plots."""

import html
import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

DRIPPING = 60.0
"""Seconds for which a hostile peer sends its request, if the server lets it."""
SPARE_FILES = 5
SPARE_MEMORY = 15.0
"""Open files and MB by which an instance may end above where it was: its idle connections, its allocator."""


def write(seen: dict[str, Any], faults: list[str], folder: Path) -> None:
    """Write the page and its plots into the folder."""
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    (folder / "chaos.md").write_text(page(seen, faults))
    (images / "chaos-flows.svg").write_text(flows_plot(seen))
    (images / "chaos-memory.svg").write_text(memory_plot(seen))


def faults_of(seen: dict[str, Any]) -> list[str]:
    """What must not have happened."""
    flows, load = seen["conversations"], seen["overload"]
    faults = [f"lost: {each}" for each in flows["lost"]]
    faults += [f"asked twice: {each}" for each in flows["asked twice"]]
    faults += [f"done twice: {each}" for each in flows["done twice"]]
    if len(flows["finished"]) + len(flows["lost"]) != flows["flows"]:
        faults.append(f"{len(flows['finished'])} of {flows['flows']} flows ended")
    if load.get("given up") or load.get("refused without Retry-After") or not load.get("refused"):
        faults.append(f"overload: {load}")
    kept = seen["soak"]
    faults += [f"soak: {each}" for each in kept["lost"]]
    _, warm, memory = kept["MB at start, after a third, at the end"]
    if memory > warm + SPARE_MEMORY:
        faults.append(f"memory: {warm} MB after a third of the time, {memory} MB at the end")
    first, last = kept["open files at start and at the end"]
    if last > first + SPARE_FILES:
        faults.append(f"open files: {first} at first, {last} at the end")
    if kept["slowest closed after s"] >= DRIPPING:
        faults.append(f"a request that drips is taken for {DRIPPING:g} s and more")
    if load["ms after"] > 3 * load["ms before"] + 5:
        faults.append(f"overload: {load['ms before']} ms before, {load['ms after']} ms after")
    return faults


def flows_plot(seen: dict[str, Any]) -> str:
    """The flows that ended over time, and what was done to them meanwhile."""
    flows = seen["conversations"]
    end, most = flows["seconds"], max(len(flows["finished"]) / 2, 1)
    drawn = "".join(
        f'<path d="M{50 + 700 * at / end:.1f} 30V260" stroke="#c33" opacity=".35"/>'
        f'<text x="{52 + 700 * at / end:.1f}" y="{28 - 9 * (n % 3)}" font-size="8" fill="#c33">{what}</text>'
        for n, (at, what) in enumerate(flows["harm"])
    )
    for row, (kind, revision) in enumerate({"modern": "2026-07-28", "old": "2025-11-25"}.items()):
        times = sorted(at for at, each in flows["finished"] if each == kind)
        points = [(50 + 700 * at / end, 260 - 220 * n / most) for n, at in enumerate(times, 1)]
        drawn += _line(points, COLOURS[row]) + _label(60, 50 + 16 * row, revision, COLOURS[row])
    return _plot("Conversations that ended, over time", end, drawn)


def memory_plot(seen: dict[str, Any]) -> str:
    """The memory and the open files of an instance under mixed load."""
    samples = seen["soak"]["samples"]
    end = max(samples[-1][0], 1.0)
    drawn = ""
    for row, (unit, at) in enumerate({"MB resident": 1, "open files": 2}.items()):
        most = max(sample[at] for sample in samples)
        points = [(50 + 700 * sample[0] / end, 260 - 200 * sample[at] / most) for sample in samples]
        drawn += _line(points, COLOURS[row]) + _label(60, 46 + 16 * row, f"{unit}, at most {most:g}", COLOURS[row])
    return _plot("Memory and open files of one instance under mixed load", end, drawn)


COLOURS = ("#3b6fe0", "#9a55c8")


def _line(points: list[tuple[float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _label(x: float, y: float, text: str, colour: str = "#777") -> str:
    return f'<text x="{x}" y="{y}" font-size="12" fill="{colour}">{html.escape(text)}</text>'


def _plot(title: str, end: float, drawn: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 290" font-family="sans-serif" role="img">'
        f'<title>{title}</title><rect x="50" y="30" width="700" height="230" fill="none" stroke="#999"/>{drawn}'
        f"{_label(50, 280, '0 s')}{_label(700, 280, f'{end:.0f} s')}</svg>\n"
    )


def page(seen: dict[str, Any], faults: list[str]) -> str:
    """The report as a page of the documentation."""
    flows, kept, load = seen["conversations"], seen["soak"], seen["overload"]
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    harm = ", ".join(f"{what} {n}" for what, n in sorted(Counter(what for _, what in flows["harm"]).items()))
    memory = " / ".join(f"{each:g} MB" for each in kept["MB at start, after a third, at the end"])
    verdict = "Nothing was lost, asked twice or done twice." if not faults else "Faults: " + "; ".join(faults)
    rows = {
        "conversations of 1 to 5 questions, half of them of 2025-11-25": flows["flows"],
        "seconds": flows["seconds"],
        "harm": harm.replace("_", " "),
        "lost / asked twice / done twice": " / ".join(
            str(len(flows[each])) for each in ("lost", "asked twice", "done twice")
        ),
        "requests sent again": flows["tried again"].get("leg", 0),
        "calls of 2025-11-25 made again": flows["tried again"].get("call", 0),
        "overload: served / refused with `Retry-After` / given up": f"{load['served']} / {load.get('refused', 0)} / "
        f"{load.get('given up', 0)}",
        "a call before and after the overload": f"{load['ms before']} ms / {load['ms after']} ms",
        f"mixed load for {kept['seconds']:g} s": ", ".join(f"{n} {what}" for what, n in kept["work"].items()),
        "memory at the start / after a third / at the end": memory,
        "open files at the start / at the end": " / ".join(map(str, kept["open files at start and at the end"])),
        "connections that send their request byte by byte": kept["slow connections"],
        "the last of them closed after": f"{kept['slowest closed after s']} s",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return PAGE.format(verdict=verdict, table=table, machine=machine, seed=seen["seed"])


PAGE = """# Chaos

`make chaos` runs conversations of both revisions against three instances with one Redis. Meanwhile it kills instances,
pauses them (`SIGSTOP`), redeploys all of them, rotates their keys, and kills Redis. Two of the three clocks are wrong
by 20 seconds. Then it sends one instance more than it takes at once. Last, it gives one instance mixed load, beside
peers that send their requests byte by byte. CI runs it; `python chaos/run.py --publish` writes this page.

**{verdict}**

![Conversations that ended, over time](images/chaos-flows.svg)

A red line is a harm. A conversation of 2026-07-28 goes on after each of them. A call of 2025-11-25 waits in one
process: if that process dies, its client has to make the call again. That is the protocol's limit, and
[several instances](several-instances.md) says what follows from it.

| | |
|---|---|
{table}

![Memory and open files of one instance under mixed load](images/chaos-memory.svg)

Machine: {machine}. Seed {seed}: `python chaos/run.py --seed {seed}` does the same harm in the same order. An hour:
`python chaos/run.py --flows 20000 --seconds 3000 --soak 600`.
"""
