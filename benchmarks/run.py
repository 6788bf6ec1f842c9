"""Compare Antiphon with the official SDKs, FastMCP, mcp-lite and a bare ASGI application, in one run.

`python benchmarks/run.py [--quick] [--only SECTION,...] [--rounds N] [--seconds S] [--strict] [--publish]`. Each server
is alone on a core, the load on another, and all take turns. Only the ratios within one run are comparable. The figures
are saved in `benchmarks/results/latest.json`; `--publish` writes them into the documentation, too.
"""

import argparse
import json
import os
import platform
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import alone
import auth
import bodies
import clients
import over_http
import publish
import sessions
import startup
import streams
import suites
from contender import LOAD_CORE, on_core, stop_all
from goals import Goal, Judged
from measuring import Figures, Plan, Samples

import asking
import bridge

RESULTS = Path(__file__).parent / "results"
PYTHON_PACKAGES = ("antiphon", "mcp", "fastmcp-slim", "uvicorn", "uvloop", "httptools", "msgspec")
NODE_PACKAGES = (
    "@modelcontextprotocol/server",
    "@modelcontextprotocol/sdk",
    "@modelcontextprotocol/client",
    "mcp-lite",
)
BUSY = 0.8
"""A server under full load that gets less of its core shared it with another process."""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the run: its module, and with how many rounds of how many seconds it is content."""

    module: Any
    rounds: int
    seconds: float


SECTIONS = {
    "http": Section(over_http, 5, 0.5),
    "bodies": Section(bodies, 3, 0.4),
    "asking": Section(asking, 3, 0.6),
    "streams": Section(streams, 3, 0.6),
    "sessions": Section(sessions, 5, 0.8),
    "alone": Section(alone, 3, 0.6),
    "start": Section(startup, 4, 0.6),
    "clients": Section(clients, 3, 1.0),
    "bridge": Section(bridge, 3, 1.0),
    "auth": Section(auth, 3, 1.0),
    "suites": Section(suites, 2, 1.0),
}
QUICK = (1, 0.1)


def main() -> int:
    options = _options()
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, lambda *_: sys.exit(1))  # by way of `finally`, which ends the servers
    figures = measure(options)
    report(figures)
    judged = judge(figures)
    save(figures, options.results)
    if options.publish is not None:
        print("\n".join(f"written: {file}" for file in publish.write(figures, options.publish)))
    return 1 if options.strict and any(each.fails for each in judged) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round: to see that it works")
    parser.add_argument("--only", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--rounds", type=int, default=5, help="at most so many")
    parser.add_argument("--seconds", type=float, default=1.0, help="a measurement takes at most so many")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a figure is far below its goal")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="where the JSON is saved")
    parser.add_argument(
        "--publish",
        type=Path,
        nargs="?",
        const=publish.ROOT,
        metavar="FOLDER",
        help="write docs/performance.md, docs/scale.md, their figures and pictures, and the table in README.md",
    )
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = QUICK
    options.only = options.only.split(",") if options.only else list(SECTIONS)
    if unknown := set(options.only) - SECTIONS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if options.publish is not None and set(options.only) != SECTIONS.keys():
        parser.error("--publish needs all sections")
    return options


def measure(options: argparse.Namespace) -> Figures:
    """Run the sections in turn. What fails is noted, and the others go on."""
    began = time.monotonic()
    plan = Plan(rounds=options.rounds, seconds=options.seconds, quick=options.quick)
    figures: Figures = {"run": _facts(options)}
    try:
        with on_core(LOAD_CORE):
            for name in options.only:
                section = SECTIONS[name]
                print(f"{name} ...", file=sys.stderr, flush=True)
                start = time.monotonic()
                try:
                    figures[name] = section.module.measure(plan.at_most(section.rounds, section.seconds))
                except Exception as fault:
                    plan.cannot(name, f"{type(fault).__name__}: {fault}")
                figures["run"]["sections"][name] = round(time.monotonic() - start, 1)
    finally:
        stop_all()
    figures["run"]["seconds"] = round(time.monotonic() - began, 1)
    figures["unavailable"] = plan.unavailable
    return figures


def _facts(options: argparse.Namespace) -> Figures:
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": _machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "quick": options.quick,
        "versions": {**_python_versions(), **_node_versions()},
        "sections": {},
    }


def _machine() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _python_versions() -> dict[str, str]:
    found = {}
    for package in PYTHON_PACKAGES:
        with suppress(ModuleNotFoundError):
            found[package] = version(package)
    return found


def _node_versions() -> dict[str, str]:
    modules = publish.ROOT / ".cache" / "node" / "node_modules"
    found = {}
    for package in NODE_PACKAGES:
        with suppress(OSError):
            found[package] = str(json.loads((modules / package / "package.json").read_text())["version"])
    return found


def report(figures: Figures) -> None:
    """Print all medians."""
    facts = figures["run"]
    print(f"\n{facts['machine']}, {facts['cores']} cores, Python {facts['python']}; {facts['seconds']} s in all")
    for name in SECTIONS:
        cells: Samples = figures.get(name, {}).get("cells", {})
        print(f"\n{name}: {', '.join(f'{metric}' for metric in _metrics(cells))}; medians")
        for cell, metrics in cells.items():
            print(f"  {cell:<34}" + "".join(f"{median(metrics[each]):>11.5g}" for each in metrics))
    for thing, found in figures.get("streams", {}).get("kb", {}).items():
        print(f"KB for each {thing}: {', '.join(f'{name} {kb:.1f}' for name, kb in found.items())}")
    shares = [
        share
        for metrics in figures.get("http", {}).get("cells", {}).values()
        for share in metrics.get("core_share", [])
    ]
    if shares and (least := min(shares)) < BUSY:
        print(f"The machine was busy: a server had {least:.0%} of its core. Trust CPU ratios, or repeat.")
    for name, reason in figures["unavailable"].items():
        print(f"not measured: {name}: {reason}")


def _metrics(cells: Samples) -> list[str]:
    return list(next(iter(cells.values()), {}))


def judge(figures: Figures) -> list[Judged]:
    """Judge and print all goals."""
    print()
    goals: list[Goal] = [goal for section in SECTIONS.values() for goal in section.module.GOALS]
    judged = [goal.judged(figures) for goal in goals]
    for each in judged:
        value = "-" if each.value is None else f"{each.value:.3g} ({each.low:.3g} to {each.high:.3g})"
        print(f"{each.verdict:<13}{each.title:<62}{each.wanted:<10}{value}{'  FAILS' if each.fails else ''}")
    met = sum(each.verdict == "met" for each in judged)
    print(f"{met} of {len(judged)} goals met")
    figures["goals"] = [asdict(each) for each in judged]
    return judged


def save(figures: Figures, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    text = publish.as_json(figures)
    stamp = figures["run"]["when"].replace(":", "")
    for name in (stamp, "latest"):
        (folder / f"{name}.json").write_text(text)
    print(f"saved: {folder / 'latest.json'}")


if __name__ == "__main__":
    sys.exit(main())
