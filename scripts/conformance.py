"""Run the official conformance suite against our programs, and judge it more strictly than it judges itself.

`python scripts/conformance.py [server|bridge|client|all] [--requirements 2026-07-28] [--scenario NAME] [--results DIR]`

A bridge is our own, in front of a server to which it speaks the era that its leg names.

A warning fails, and so does a scenario without a successful check, or one that did not run. A client is run once per
scenario, because only then does the suite look at its exit code.
"""

import argparse
import atexit
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

import node

ROOT = Path(__file__).resolve().parent.parent
SUITE = "@modelcontextprotocol/conformance/dist/index.js"
START_TIMEOUT = 30.0
SUITE_TIMEOUT = 300.0
SCENARIO_TIMEOUT = 60.0
GRACE = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One side of the protocol at one revision, and what of the suite it must pass."""

    side: str
    revision: str
    program: str
    required: int  # how many scenarios the suite requires here: a list that shrinks is a failure, not a success
    also: tuple[str, ...] = ()  # not scored by the suite, judged by us
    behind: str = ""  # of a bridge: the era that it speaks to the program
    without: tuple[str, ...] = ()  # required by the suite, and not judged here

    @property
    def tested(self) -> str:
        """What the suite tests."""
        return "server" if self.side == "bridge" else self.side

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.side, self.revision, self.behind and f"before {self.behind}")))

    def judges(self, scenario: str, required: Sequence[str]) -> bool:
        return scenario in self.also or (scenario in required and scenario not in self.without)


EXTENSIONS = tuple(
    f"auth/{name}"
    for name in (
        "client-credentials-jwt",
        "client-credentials-basic",
        "enterprise-managed-authorization",
        "dpop",
        "dpop-nonce",
        "wif-jwt-bearer",
    )
)
# In the suite, and on neither list.
OLDER = ("auth/2025-03-26-oauth-metadata-backcompat", "auth/2025-03-26-oauth-endpoint-fallback")
LEGS = (
    Leg(
        side="server",
        revision="2025-11-25",
        program="examples/everything.py",
        required=30,
        also=("server-session-lifecycle", "server-sse-polling", "json-schema-2020-12"),
    ),
    Leg(
        side="server",
        revision="2026-07-28",
        program="examples/everything.py",
        required=37,
        also=("json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"),
    ),
    *(
        Leg(
            side="bridge",
            revision=revision,
            program="examples/everything.py",
            required=required,
            behind=era,
            # It sends answers before they are asked for. An old server asks all the same.
            without=("input-required-result-ignore-extra-params",) if era == "legacy" else (),
        )
        for era in ("2026-07-28", "legacy")
        for revision, required in (("2025-11-25", 30), ("2026-07-28", 37))
    ),
    Leg(
        side="client",
        revision="2025-11-25",
        program="examples/conformance_client.py",
        required=18,
        also=("json-schema-2020-12-preservation", *EXTENSIONS, *OLDER),
    ),
    Leg(
        side="client",
        revision="2026-07-28",
        program="examples/conformance_client.py",
        required=32,
        also=("json-schema-2020-12-preservation", *EXTENSIONS),
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the checks of one scenario said."""

    scenario: str
    counts: Counter[str] = field(default_factory=Counter)
    complaints: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.counts["SUCCESS"] > 0 and not self.complaints

    def line(self, mark: str) -> str:
        counts = ", ".join(f"{count} {status.lower()}" for status, count in sorted(self.counts.items()))
        return f"{mark} {self.scenario}: {counts or 'did not run'}"


class ConformanceError(Exception):
    """The suite could not be run; the text says why."""


class Servers:
    """The programs that serve, each in one process for all its legs: a server speaks every revision at once."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._urls: dict[str, str] = {}
        atexit.register(self._running.close)

    def url(self, leg: Leg) -> str:
        program = ROOT / leg.program
        if not program.exists():
            raise ConformanceError(f"{leg.program} does not exist")
        url = self._url([str(program)])
        if leg.side == "bridge":
            url = self._url(["-m", "antiphon", "bridge", url, "--http", "--era", leg.behind])
        return url

    def _url(self, program: list[str]) -> str:
        key = shlex.join(program)
        if key not in self._urls:
            self._urls[key] = self._running.enter_context(_serving(program))
        return self._urls[key]

    def end(self) -> None:
        """Stop them; ConformanceError if one had stopped by itself."""
        self._running.close()


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, _leave)
    legs = [
        each for each in LEGS if options.side in ("all", each.side) and options.requirements in (None, each.revision)
    ]
    if not legs:
        print(f"No leg of the table covers {options.side} {options.requirements or ''}".rstrip(), file=sys.stderr)
        return 1
    counts: Counter[str] = Counter()
    servers = Servers()
    for leg in legs:
        try:
            counts += _run(leg, options, servers)
        except (ConformanceError, node.NodeError) as error:
            print(f"✗ {leg.name}: {error}")
            counts["failed"] += 1
    try:
        servers.end()
    except ConformanceError as error:
        print(f"✗ {error}")
        counts["failed"] += 1
    print(summary(counts))
    return 1 if counts["failed"] or not counts["passed"] else 0


def summary(counts: Counter[str]) -> str:
    """What was judged, and what was not: scenarios that the suite does not score."""
    told = f"{counts['passed']} passed, {counts['failed']} failed"
    return f"{told}; {counts['not judged']} not judged" if counts["not judged"] else told


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", nargs="?", default="all", choices=("server", "bridge", "client", "all"))
    parser.add_argument("--requirements", metavar="REVISION", help="only this revision")
    parser.add_argument("--scenario", metavar="NAME", help="only this scenario")
    parser.add_argument("--results", metavar="DIR", type=Path, help="keep the suite's own files here")
    return parser.parse_args()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(143)


def _run(leg: Leg, options: argparse.Namespace, servers: Servers) -> Counter[str]:
    required, unscored = _listed(leg)
    wanted = [options.scenario] if options.scenario else list(dict.fromkeys([*required, *unscored, *leg.also]))
    with tempfile.TemporaryDirectory() as scratch:
        results = (options.results or Path(scratch)).resolve() / leg.name.replace(" ", "-")
        results.mkdir(parents=True, exist_ok=True)
        if leg.tested == "server":
            outcomes = _server(leg, options.scenario, results, servers.url(leg))
        else:
            outcomes = _client(leg, wanted, results)
    print(f"{leg.name}: {leg.program}, {len(outcomes)} of {len(wanted)} scenarios ran")
    counts = judge(leg, [outcomes.get(name, Outcome(scenario=name)) for name in wanted], required, options.scenario)
    if len(required) < leg.required:
        print(f"✗ the suite requires {len(required)} scenarios here, {leg.required} were expected")
        counts["failed"] += 1
    return counts


def judge(leg: Leg, outcomes: list[Outcome], required: list[str], asked_for: str | None) -> Counter[str]:
    """Print every outcome, and count them."""
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        if not (outcome.scenario == asked_for or leg.judges(outcome.scenario, required)):
            counts["not judged"] += 1
            print(f"{outcome.line('(✓)' if outcome.passed else '(✗)')}, not judged")
            continue
        counts["passed" if outcome.passed else "failed"] += 1
        print(outcome.line("✓" if outcome.passed else "✗"))
        for complaint in outcome.complaints:
            print(f"    {complaint}")
    return counts


def _listed(leg: Leg) -> tuple[list[str], list[str]]:
    """The scenarios the suite requires of this side at this revision, and those it runs without scoring."""
    listing = _suite("list", "--requirements", leg.revision)
    if listing.returncode:
        raise ConformanceError(f"the suite does not list {leg.revision}: {listing.stderr.strip()}")
    required: list[str] = []
    unscored: list[str] = []
    section = ""
    for line in listing.stdout.splitlines():
        if heading := re.match(r"(Server|Client) scenarios|Run and reported", line):
            section = (heading[1] or "unscored").lower()
        elif entry := re.match(r"\s+- (\S+)(?: \[(\w+)\])?$", line):
            if section == leg.tested:
                required.append(entry[1])
            elif section == "unscored" and entry[2] == leg.tested:
                unscored.append(entry[1])
    return required, unscored


def _server(leg: Leg, scenario: str | None, results: Path, url: str) -> dict[str, Outcome]:
    what = ["--scenario", scenario, "--spec-version", leg.revision] if scenario else ["--requirements", leg.revision]
    done = _suite("server", "--url", url, *what, "-o", str(results))
    outcomes = _outcomes("server", results)
    if not outcomes:
        raise ConformanceError(f"the suite left no results: {(done.stderr or done.stdout).strip()[-1500:]}")
    return outcomes


def _client(leg: Leg, scenarios: list[str], results: Path) -> dict[str, Outcome]:
    command = shlex.join([sys.executable, str(ROOT / leg.program)])

    def alone(scenario: str) -> Outcome:
        directory = results / scenario.replace("/", "_")
        # Extensions are on no revision's list, and are skipped without --force.
        what = ["--scenario", scenario, "--spec-version", leg.revision, "--force", "-o", str(directory)]
        done = _suite("client", "--command", command, *what, "--timeout", str(int(SCENARIO_TIMEOUT * 1000)))
        found = _outcomes("", directory).get(scenario, Outcome(scenario=scenario))
        if done.returncode and not found.complaints:
            last_lines = (done.stderr or done.stdout).strip().splitlines()[-6:]
            return Outcome(scenario=scenario, counts=found.counts, complaints=tuple(last_lines) or ("it failed",))
        return found

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return {outcome.scenario: outcome for outcome in pool.map(alone, scenarios)}


def _outcomes(prefix: str, results: Path) -> dict[str, Outcome]:
    """Every `checks.json` under a directory: the suite names the folders `[side-]scenario-timestamp`."""
    outcomes: dict[str, Outcome] = {}
    for file in results.rglob("checks.json"):
        folder = file.parent.relative_to(results).as_posix()
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder).removeprefix(f"{prefix}-" if prefix else "")
        checks = json.loads(file.read_text(encoding="utf-8"))
        complaints = tuple(_complaint(check) for check in checks if check["status"] in ("FAILURE", "WARNING"))
        counts = Counter(str(check["status"]) for check in checks)
        outcomes[name] = Outcome(scenario=name, counts=counts, complaints=complaints)
    return outcomes


def _complaint(check: dict[str, object]) -> str:
    return f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"


def _suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(node.binary()), str(node.modules() / SUITE), *arguments]
    with subprocess.Popen(
        command,
        env=node.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=SUITE_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise ConformanceError(f"the suite did not end within {SUITE_TIMEOUT:.0f} s") from None
        finally:
            _end(process)
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


@contextmanager
def _serving(program: list[str]) -> Iterator[str]:
    """A program of Python's as a server on a free port, from the moment the port answers to the end of the block."""
    port = _free_port()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [sys.executable, *program, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            if not _answers(process, port):
                raise ConformanceError(f"the server did not start:\n{_tail(log)}")
            yield f"http://localhost:{port}/mcp"
            if process.poll() is not None:
                raise ConformanceError(f"the server died during the run:\n{_tail(log)}")
        finally:
            _end(process)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + START_TIMEOUT
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return True
    return False


def _tail(log: IO[str]) -> str:
    log.seek(0)
    return "\n".join(log.read().strip().splitlines()[-20:]) or "(no output)"


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """End a process and its children, gently first."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=GRACE)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
