"""Compare antiphon with the official `mcp` server and a bare ASGI app, in one run. Only the ratios are comparable.

`python benchmarks/run.py [--full | --quick] [--rounds N] [--seconds S] [--strict]`
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median

import auth
import clients
import startup
from contender import Contender, Unavailable
from load import drive
from threshold import Figures, Threshold, judge, save

import asking
import bridge
import legacy

sys.path.insert(0, str(Path(__file__).parent / "servers"))
from serving import pin

HERE = Path(__file__).parent
NAMES = ("bare", "official", "ours")
AS_RUN = "as_run"
"""Ours as `app.run("http")` serves it, to compare with the official server. The bare app is compared with ours under
the same uvicorn, so that they differ only in the application."""
SCENARIOS = ("echo", "leg 1", "leg 2")
PACKAGES = {"ours": "antiphon", "official": "mcp"}
# The import that every server needs, even if the package imports lazily.
SERVER_IMPORTS = {"ours": "from antiphon import Server", "official": "from mcp.server.mcpserver import MCPServer"}
LOAD_CORE = 1
WARM_UP = 0.25
BUSY = 0.8  # a server under full load that gets less of its core shared it with another process


def _rate_ratio(scenario: str, other: str, ours: str = AS_RUN) -> Callable[[Figures], float | None]:
    """The median over the rounds of ours against another's rate in the same round, at 16 connections."""

    def figure(figures: Figures) -> float | None:
        mine, theirs = (figures["http"].get(f"{name}|{scenario}|16") for name in (ours, other))
        if not mine or not theirs:
            return None
        return median(own / other for own, other in zip(mine["rates"], theirs["rates"], strict=True))

    return figure


def _cpu_ratio(scenario: str, other: str, ours: str = AS_RUN) -> Callable[[Figures], float | None]:
    """Another's CPU time per request against ours: what is left of the rate ratio when the machine is busy."""

    def figure(figures: Figures) -> float | None:
        mine, theirs = (figures["http"].get(f"{name}|{scenario}|16", {}).get("cpu_us") for name in (ours, other))
        return theirs / mine if mine and theirs else None

    return figure


def _ratio(section: str, ours: str = "ours", other: str = "official") -> Callable[[Figures], float | None]:
    def figure(figures: Figures) -> float | None:
        values = figures[section]
        return values[ours] / values[other] if values.get(ours) and values.get(other) else None

    return figure


def _latency_spread(figures: Figures) -> float | None:
    cell = figures["http"].get(f"{AS_RUN}|echo|16")
    return cell["p99_ms"] / cell["p50_ms"] if cell else None


def _import_ms(figures: Figures) -> float | None:
    return figures["import_ms"].get("ours")


def _alone(scenario: str) -> Callable[[Figures], float | None]:
    return _ratio("in_process_us", f"ours|{scenario}", f"official|{scenario}")


THRESHOLDS = (
    Threshold(title="echo, rate / official", figure=_rate_ratio("echo", "official"), bound=6, goal=10),
    Threshold(title="echo, rate / bare ASGI", figure=_rate_ratio("echo", "bare", "ours"), bound=0.55, goal=0.8),
    Threshold(title="import antiphon, ms, best of five", figure=_import_ms, bound=100, goal=60, less_is_better=True),
    Threshold(title="import, ours / mcp", figure=_ratio("import_ms"), bound=0.125, goal=0.1, less_is_better=True),
    Threshold(
        title="idle memory, ours / official",
        figure=_ratio("idle_rss_mb", AS_RUN),
        bound=0.6,
        goal=0.6,
        less_is_better=True,
    ),
    Threshold(title="echo, requests per CPU second / official", figure=_cpu_ratio("echo", "official"), goal=10),
    Threshold(title="echo, requests per CPU second / bare", figure=_cpu_ratio("echo", "bare", "ours"), goal=0.8),
    Threshold(title="echo, as it is run / under uvicorn's HTTP", figure=_rate_ratio("echo", "ours"), goal=1.4),
    Threshold(title="echo, the same per CPU second", figure=_cpu_ratio("echo", "ours"), goal=1.4),
    Threshold(title="deploy leg 1, rate / official", figure=_rate_ratio("leg 1", "official"), goal=9),
    Threshold(title="deploy leg 2, rate / official", figure=_rate_ratio("leg 2", "official"), goal=9),
    Threshold(
        title="import of the server class, ours / official",
        figure=_ratio("import_server_ms"),
        goal=0.125,
        less_is_better=True,
    ),
    Threshold(title="echo, p99 / p50", figure=_latency_spread, goal=2, less_is_better=True),
    Threshold(
        title="stdio, start to first result, ours / official", figure=_ratio("stdio_ms"), goal=0.25, less_is_better=True
    ),
    Threshold(
        title="protocol work alone, echo, ours / official", figure=_alone("echo"), goal=0.067, less_is_better=True
    ),
    Threshold(
        title="protocol work alone, leg 1, ours / official", figure=_alone("leg 1"), goal=0.067, less_is_better=True
    ),
    Threshold(
        title="protocol work alone, leg 2, ours / official", figure=_alone("leg 2"), goal=0.067, less_is_better=True
    ),
    *asking.THRESHOLDS,
    *clients.THRESHOLDS,
    *legacy.THRESHOLDS,
    *bridge.THRESHOLDS,
    *auth.THRESHOLDS,
)


def main() -> int:
    options = _options()
    cores = {"server": 0, "load": LOAD_CORE} if pin(LOAD_CORE) else None
    if cores is None:
        print("This system does not pin processes to cores: server and load generator may disturb each other.")
    began = time.monotonic()
    figures: Figures = {"run": _run_facts(options, cores), "unavailable": {}}
    figures |= _measure_http(options, figures["unavailable"])
    figures["in_process_us"] = _measure_in_process(options, figures["unavailable"])
    figures |= _measure_startup(options, figures["unavailable"])
    figures["asking"] = asking.measure(
        rounds=min(3, options.rounds), seconds=min(0.4, options.seconds), unavailable=figures["unavailable"]
    )
    figures["clients"] = clients.measure(
        rounds=min(3, options.rounds), seconds=min(1.0, options.seconds), unavailable=figures["unavailable"]
    )
    figures["legacy"] = legacy.measure(
        rounds=options.rounds, seconds=min(1.0, options.seconds), unavailable=figures["unavailable"]
    )
    figures["bridge"] = bridge.measure(
        rounds=min(3, options.rounds), seconds=min(1.0, options.seconds), unavailable=figures["unavailable"]
    )
    figures["auth"] = auth.measure(
        rounds=min(3, options.rounds), seconds=min(1.0, options.seconds), unavailable=figures["unavailable"]
    )
    figures["run"]["seconds"] = round(time.monotonic() - began, 1)
    below = _report(figures)
    save(figures)
    return 1 if options.strict and below else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="1, 16 and 64 connections instead of 16")
    parser.add_argument("--quick", action="store_true", help="two short rounds: to see that it works")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a figure is below its threshold")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 0.5
    options.connections = (1, 16, 64) if options.full else (16,)
    return options


def _run_facts(options: argparse.Namespace, cores: dict[str, int] | None) -> Figures:
    packages = ("antiphon", "mcp", "uvicorn", "uvloop", "httptools", "msgspec")
    return {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "pinned": cores,
        "rounds": options.rounds,
        "seconds_each": options.seconds,
        "versions": {package: version(package) for package in packages},
    }


def _measure_http(options: argparse.Namespace, unavailable: dict[str, str]) -> Figures:
    contenders: list[Contender] = []
    try:
        for name in (*NAMES, AS_RUN):
            try:
                contenders.append(Contender(name))
            except Unavailable as error:
                unavailable[name] = str(error)
        return {
            "idle_rss_mb": {each.name: each.idle_rss_mb for each in contenders},
            "http": _rounds(contenders, options),
        }
    finally:
        for each in contenders:
            each.stop()


def _rounds(contenders: list[Contender], options: argparse.Namespace) -> Figures:
    """Every cell once per round, so that a slow moment of the machine hits all of them alike."""
    cells: dict[str, dict[str, list[float]]] = {}
    for number in range(options.rounds):
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        for connections in options.connections:
            for scenario in SCENARIOS:
                for each in contenders:
                    if scenario in each.loads and not (each.name == "bare" and scenario != "echo"):
                        key = f"{each.name}|{scenario}|{connections}"
                        _one(each, scenario, connections, options.seconds, cells.setdefault(key, {}))
    return {key: _medians(samples) for key, samples in cells.items()}


def _one(
    contender: Contender, scenario: str, connections: int, seconds: float, samples: dict[str, list[float]]
) -> None:
    load = contender.loads[scenario]
    drive(load, connections=connections, seconds=WARM_UP)
    before = contender.cpu_seconds()
    measure = drive(load, connections=connections, seconds=seconds)
    after = contender.cpu_seconds()
    samples.setdefault("rate", []).append(measure.rate)
    samples.setdefault("p50_ms", []).append(measure.p50_ms)
    samples.setdefault("p99_ms", []).append(measure.p99_ms)
    if before is not None and after is not None:
        samples.setdefault("cpu_us", []).append((after - before) / measure.requests * 1e6)
        samples.setdefault("core_share", []).append((after - before) / measure.seconds)


def _medians(samples: dict[str, list[float]]) -> Figures:
    return {name: median(values) for name, values in samples.items()} | {"rates": samples["rate"]}


def _measure_in_process(options: argparse.Namespace, unavailable: dict[str, str]) -> dict[str, float]:
    samples: dict[str, list[float]] = {}
    for _ in range(min(3, options.rounds)):
        for name in NAMES:
            if name in unavailable:
                continue
            done = subprocess.run(
                [sys.executable, str(HERE / "inprocess.py"), name],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            if done.returncode:
                unavailable[f"{name}, in process"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
                continue
            for scenario, microseconds in json.loads(done.stdout).items():
                samples.setdefault(f"{name}|{scenario}", []).append(microseconds)
    return {key: median(values) for key, values in samples.items()}


def _measure_startup(options: argparse.Namespace, unavailable: dict[str, str]) -> Figures:
    times = 2 if options.quick else 5
    figures: Figures = {"import_ms": {}, "import_server_ms": {}, "modules": {}, "stdio_ms": {}}
    try:
        figures["import_ms"] = startup.imports({name: f"import {package}" for name, package in PACKAGES.items()}, times)
        figures["import_server_ms"] = startup.imports(SERVER_IMPORTS, times)
        figures["modules"] = {name: startup.loaded(package) for name, package in PACKAGES.items()}
    except Unavailable as error:
        unavailable["imports"] = str(error)
    samples: dict[str, list[float]] = {}
    for _ in range(times):
        for name in PACKAGES:
            if name in unavailable or f"{name}, stdio" in unavailable:
                continue
            try:
                taken = startup.stdio(name)
            except Unavailable as error:
                unavailable[f"{name}, stdio"] = str(error)
            else:
                samples.setdefault(name, []).append(taken)
    figures["stdio_ms"] = {name: median(values) for name, values in samples.items()}
    return figures


def _report(figures: Figures) -> int:
    facts = figures["run"]
    rounds = f"{facts['rounds']} rounds of {facts['seconds_each']} s"
    print(f"\nPython {facts['python']}, medians of {rounds}, {facts['seconds']} s in all")
    print(f"{'server':<10}{'work':<8}{'conns':>6}{'req/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'CPU us':>9}")
    for key, cell in figures["http"].items():
        name, scenario, connections = key.split("|")
        cpu = f"{cell['cpu_us']:.0f}" if "cpu_us" in cell else "-"
        print(
            f"{name:<10}{scenario:<8}{connections:>6}{cell['rate']:>9.0f}"
            f"{cell['p50_ms']:>9.2f}{cell['p99_ms']:>9.2f}{cpu:>9}"
        )
    _print_section("idle memory, MB", figures["idle_rss_mb"])
    _print_section("protocol work alone, CPU us", figures["in_process_us"])
    _print_section("import, ms over a bare Python", figures["import_ms"])
    _print_section("import of the server class, ms over a bare Python", figures["import_server_ms"])
    _print_section("modules loaded by the import", figures["modules"])
    _print_section("stdio, ms from start to first result", figures["stdio_ms"])
    asking.report(figures["asking"])
    clients.report(figures["clients"])
    legacy.report(figures["legacy"])
    bridge.report(figures["bridge"])
    auth.report(figures["auth"])
    share = min((cell["core_share"] for cell in figures["http"].values() if "core_share" in cell), default=1.0)
    if share < BUSY:
        print(
            f"The machine was busy: a server had {share:.0%} of its core. Trust the ratios per CPU second, or repeat."
        )
    for name, reason in figures["unavailable"].items():
        print(f"not measured: {name}: {reason}")
    return judge(THRESHOLDS, figures)


def _print_section(title: str, values: dict[str, float | None]) -> None:
    shown = ", ".join(f"{name} {value:.0f}" for name, value in values.items() if value is not None)
    print(f"{title}: {shown or '-'}")


if __name__ == "__main__":
    sys.exit(main())
