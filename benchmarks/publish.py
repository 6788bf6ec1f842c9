"""Write the figures of a run into the documentation: docs/performance.md with its plots, docs/scale.md, the README.

`python benchmarks/publish.py [FIGURES] [--check]` does so again, without another run: from docs/performance.json, or
another result of run.py. With `--check`, it only says which files are not what the figures make of them.
"""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import bodies
import over_http
import plots
import scale
from goals import Judged
from measuring import Figures, Samples, middle, ratios, title
from startup import best_import

import asking
from asking import COUNTS, cpu_of_conversation

ROOT = Path(__file__).resolve().parent.parent
TIMES = "\N{MULTIPLICATION SIGN}"
TABLE = re.compile(r"(<!-- figures: make bench -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def as_json(figures: Figures) -> str:
    """The figures with five digits each, a line for each list."""
    text = json.dumps(_rounded(figures), indent=1, ensure_ascii=False)
    return re.sub(r"\[[^\[\]{}\"]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.5g}")
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [_rounded(each) for each in value]
        case _:
            return value


def texts(figures: Figures, root: Path = ROOT) -> dict[Path, str]:
    """The files below this folder that the figures fill."""
    figures = json.loads(as_json(figures))
    docs, readme = root / "docs", root / "README.md"
    makers: dict[Path, Callable[[], str]] = {
        docs / "performance.json": lambda: as_json(figures),
        docs / "performance.md": lambda: page(figures, [Judged(**each) for each in figures["goals"]]),
        docs / "scale.md": lambda: scale.page(figures),
        docs / "images" / "performance-rates.svg": lambda: rates_plot(figures),
        docs / "images" / "performance-connections.svg": lambda: connections_plot(figures),
        docs / "images" / "performance-rounds.svg": lambda: rounds_plot(figures),
        docs / "images" / "performance-bodies.svg": lambda: bodies_plot(figures),
    }
    if readme.exists() and not figures["run"]["quick"]:
        makers[readme] = lambda: TABLE.sub(
            lambda found: found[1] + readme_table(figures) + found[2], readme.read_text("utf-8")
        )
    files: dict[Path, str] = {}
    for file, make in makers.items():
        try:
            files[file] = make()
        except (KeyError, ValueError, ZeroDivisionError) as fault:  # StatisticsError is a ValueError
            print(f"left as it is: {file}: not measured: {fault}", file=sys.stderr)
    return files


def write(figures: Figures, root: Path = ROOT) -> list[Path]:
    """Write it all below this folder, and return what was written. The README keeps its table after a quick run."""
    files = texts(scale.with_chaos(figures), root)
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    return list(files)


# --- plots -------------------------------------------------------------------------------------------------------


def _http(figures: Figures) -> Samples:
    cells: Samples = figures.get("http", {}).get("cells", {})
    return cells


def _plain(name: str) -> str:
    return title(name).replace("`", "")


def rates_plot(figures: Figures) -> str:
    """Requests per second at 16 connections, with the ratio to the official server."""
    cells, groups = _http(figures), {}
    for work, what in {"echo": "A call that returns its argument", **LEGS}.items():
        against = middle(cells, f"official|{work}|16")
        rows = []
        for name in over_http.NAMES:
            rate = middle(cells, f"{name}|{work}|16")
            if rate:
                times = f", {rate / against:.2g} {TIMES}" if against and name != "official" else ""
                rows.append((name, _plain(name), rate, f"{rate:,.0f}{times}"))
        groups[f"{what}: requests per second"] = rows
    return plots.bars("Requests per second at 16 connections", groups)


LEGS = {"leg 1": "A call that asks to confirm", "leg 2": "The answer to it"}


def connections_plot(figures: Figures) -> str:
    """Requests per second against connections."""
    panels = {}
    for work in over_http.WORK:
        panels[work] = {
            name: (_plain(name), points)
            for name in over_http.NAMES
            if (points := _points(_http(figures), [(n, f"{name}|{work}|{n}") for n in over_http.CONNECTIONS], "rate"))
        }
    return plots.lines(
        "Requests per second against connections", panels, across="connections", up="requests/s", columns=3
    )


def rounds_plot(figures: Figures) -> str:
    """Processor time of a whole conversation against its questions."""
    cells: Samples = figures.get("asking", {}).get("cells", {})
    panel = {}
    for name in asking.NAMES:
        points = [(n, median(cpu_of_conversation(figures, name, n))) for n in COUNTS if f"{name}|{n}" in cells]
        points = [(n, cost / 1000) for n, cost in points if cost > 0]
        if points:
            panel[name] = (_plain(name), points)
    return plots.lines(
        "CPU of a conversation against its questions",
        {"": panel},
        across="questions, one after the other",
        up="ms of CPU for the whole conversation",
    )


def bodies_plot(figures: Figures) -> str:
    """Processor time of a call against the size of its argument."""
    cells: Samples = figures.get("bodies", {}).get("cells", {})
    panels = {}
    for form, what in FORMS.items():
        panels[what] = {
            name: (_plain(name), points)
            for name in bodies.NAMES
            if (points := _points(cells, [(n, f"{name}|{form}|{size}") for size, n in bodies.SIZES.items()], "cpu_us"))
        }
    return plots.lines(
        "CPU of a call against the size of its argument", panels, across="bytes", up="µs of CPU", columns=2
    )


FORMS = {
    "compact": "a text",
    "escaped": "a text with escapes",
    "spaced": "a table, with spaces",
    "brackets": "a matrix",
}


def _points(cells: Samples, wanted: Sequence[tuple[float, str]], metric: str) -> list[tuple[float, float]]:
    found = [(x, middle(cells, cell, metric)) for x, cell in wanted]
    return [(x, y) for x, y in found if y]


# --- tables ------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows)) + "\n"


def short(value: float | None) -> str:
    """A figure with three digits, or all before the point."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _middle(cells: Samples, cell: str, metric: str = "rate") -> str:
    return short(middle(cells, cell, metric))


def _spread(cells: Samples, cell: str, metric: str = "rate") -> str:
    """The median, and the lowest and highest of the rounds."""
    values = cells.get(cell, {}).get(metric)
    if not values:
        return "-"
    if min(values) == max(values):
        return short(values[0])
    return f"{short(median(values))} ({short(min(values))} to {short(max(values))})"


def _servers(figures: Figures) -> str:
    cells, memory = _http(figures), figures["http"]["idle_mb"]
    rows = [
        [title(name), *[_spread(cells, f"{name}|{work}|16") for work in over_http.WORK], short(memory.get(name))]
        for name in over_http.NAMES
        if name in memory
    ]
    return _table(("requests per second", "echo", "leg 1", "leg 2", "idle MB"), rows)


def _costs(figures: Figures) -> str:
    cells, rows = _http(figures), []
    for name in over_http.NAMES:
        if f"{name}|echo|16" not in cells:
            continue
        costs = [_middle(cells, f"{name}|{work}|16", "cpu_us") for work in over_http.WORK]
        waits = [
            f"{_middle(cells, f'{name}|{work}|16', 'p50_ms')} / {_middle(cells, f'{name}|{work}|16', 'p99_ms')}"
            for work in ("echo", "leg 2")
        ]
        rows.append([title(name), *costs, *(wait.replace("- / -", "-") for wait in waits)])
    head = ("", "CPU µs, echo", "leg 1", "leg 2", "p50 / p99 ms, echo", "leg 2")
    return _table(head, rows)


def _conversations(figures: Figures) -> str:
    found = figures["asking"]
    counts = [n for n in COUNTS if f"ours|{n}" in found["cells"]]
    rows = []
    for name in asking.NAMES:
        tokens = found["token_bytes"].get(name, {})
        cells = [
            f"{short(median(cpu_of_conversation(figures, name, n)) / 1000)} / {tokens[str(n)]:,}"
            if f"{name}|{n}" in found["cells"]
            else "-"
            for n in counts
        ]
        rows.append([title(name), *cells])
    return _table(("CPU ms / bytes of the token", *[f"{n} question{'s' * (n > 1)}" for n in counts]), rows)


def _bodies(figures: Figures) -> str:
    cells = figures["bodies"]["cells"]
    rows = []
    for form, what in FORMS.items():
        for size in bodies.SIZES:
            if f"ours|{form}|{size}" in cells:
                against = ratios(cells, f"ours|{form}|{size}", f"official|{form}|{size}")
                rates = [_middle(cells, f"{name}|{form}|{size}") for name in bodies.NAMES]
                rows.append([f"{what}, {size}", *rates, f"{median(against):.1f} {TIMES}" if against else "-"])
    return _table(("calls per second", *[title(name) for name in bodies.NAMES], "Antiphon / official"), rows)


def _streams(figures: Figures) -> str:
    cells, kb = figures["streams"]["cells"], figures["streams"]["kb"]
    rows = []
    for name, sse in {
        "ours": "ours",
        "official": "official-sse",
        "fastmcp": "fastmcp-sse",
        "typescript": "typescript",
    }.items():
        old = "ours" if name == "ours" else f"{name}-sessions"
        waiting = "ours" if name == "ours" else f"{name}-waiting"
        rows.append(
            [
                title(name).partition(",")[0],
                _middle(cells, sse, "seconds"),
                _middle(cells, sse, "cpu_us"),
                short(kb["pending flow"].get(name)),
                short(kb["listen stream"].get(name)),
                short(kb["session"].get(old)),
                short(kb["session with its stream"].get(old)),
                short(kb["waiting call"].get(waiting)),
            ]
        )
    streams = figures["streams"]["streams"]
    head = ("", f"{streams} streams, s", "CPU µs each", "KB: open question", "listen stream", "old session")
    return _table((*head, "with its stream", "with a call that waits"), rows)


def _sessions(figures: Figures) -> str:
    cells = figures["sessions"]["cells"]
    rows = [
        [title(name), _spread(cells, name), _middle(cells, name, "cpu_us"), _middle(cells, name, "p99_ms")]
        for name in cells
    ]
    return _table(("calls in sessions", "per second", "CPU µs", "p99 ms"), rows)


def _starts(figures: Figures) -> str:
    cells = figures["start"]["cells"]
    rows = []
    for name in ("ours", "official", "fastmcp", "typescript", "mcp-lite"):
        imports = [
            short(best_import(figures, name, what)) if f"{name}|{what}" in cells else "-"
            for what in ("import", "import server")
        ]
        first = [_middle(cells, f"{name}|{way}", "ms") for way in ("stdio", "http")]
        modules = figures["start"]["modules"].get(name)
        rows.append([title(name).partition(",")[0], *imports, str(modules or "-"), *first])
    head = ("ms", "import", "the server class", "modules of the import", "first answer, stdio", "HTTP")
    return _table(head, rows)


def _clients(figures: Figures) -> str:
    cells = figures["clients"]["cells"]
    rows = []
    for name in ("ours", "official", "fastmcp", "typescript"):
        if f"{name}|http" in cells:
            both = [
                _middle(cells, f"{name}|{place}", each)
                for place in ("http", "memory")
                for each in ("wall_us", "cpu_us")
            ]
            rows.append([title(name).partition(",")[0], *both, _middle(cells, f"{name}|start", "ms")])
    head = ("a completed two-round call", "HTTP, µs", "CPU µs", "in memory, µs", "CPU µs", "start to first result, ms")
    return _table(head, rows)


def _more(figures: Figures) -> str:
    """What the parts of Antiphon cost, against Antiphon without them."""
    alone = figures.get("alone", {}).get("cells", {})
    rows = [
        [
            f"protocol work alone, {work}: CPU µs, official",
            _middle(alone, f"ours|{work}", "cpu_us"),
            _middle(alone, f"official|{work}", "cpu_us"),
        ]
        for work in over_http.WORK
    ]
    auth = figures.get("auth", {}).get("cells", {})
    rows.append(
        [
            "a token that is known: CPU µs of an echo, without protection",
            _middle(auth, "protected", "cpu_us"),
            _middle(auth, "open", "cpu_us"),
        ]
    )
    bridge = figures.get("bridge", {}).get("cells", {})
    for tool in ("echo", "deploy"):
        for era, which in (("2026-07-28", "new"), ("legacy", "old")):
            rows.append(
                [
                    f"a bridge to a server of the {which} era, {tool}: CPU µs, of client and server without it",
                    _middle(bridge, f"{era}|{tool}", "cpu_us"),
                    _middle(bridge, f"direct|{tool}", "cpu_us"),
                ]
            )
    suites = figures.get("suites", {})
    rows.append(
        [
            f"{suites.get('cases', 500)} test cases in memory: seconds, official client in pytest",
            _middle(suites.get("cells", {}), "ours", "wall_s"),
            _middle(suites.get("cells", {}), "official", "wall_s"),
        ]
    )
    return _table(("what, and against what", "ours", "the other"), rows)


def _goals(judged: Sequence[Judged]) -> str:
    rows = []
    for each in judged:
        spread = "" if each.low == each.high else f" ({short(each.low)} to {short(each.high)})"
        rows.append([each.title, each.wanted, f"{short(each.value)}{spread}", each.verdict])
    return _table(("", "goal", "this run", ""), rows)


def readme_table(figures: Figures) -> str:
    """The table of the README: the ratio is the lowest and the highest of the rounds."""
    cells, sessions = _http(figures), figures.get("sessions", {}).get("cells", {})
    rows = []
    for work, what in {
        "echo": "`tools/call`, 16 connections, requests per second",
        "leg 1": "a question (leg 1)",
        "leg 2": "its answer (leg 2)",
    }.items():
        names = ("ours", "official", "typescript", "fastmcp")
        rates = [_middle(cells, f"{name}|{work}|16") for name in names]
        rows.append([what, *rates, _times(ratios(cells, f"ours|{work}|16", f"official|{work}|16"))])
    names = ("ours", "official-sessions", "typescript-sessions", "fastmcp-sessions")
    rates = [_middle(sessions, name) for name in names]
    rows.append(
        ["`tools/call` in a session of 2025-11-25", *rates, _times(ratios(sessions, "ours", "official-sessions"))]
    )
    start = figures.get("start", {}).get("cells", {})
    first = [_middle(start, f"{name}|http", "ms") for name in ("ours", "official", "typescript", "fastmcp")]
    rows.append(
        ["start to first answer over HTTP, ms", *first, _times(ratios(start, "official|http", "ours|http", "ms"))]
    )
    memory = figures.get("http", {}).get("idle_mb", {})
    idle = [short(memory.get(name)) for name in ("ours", "official", "typescript", "fastmcp")]
    shared = f"{memory['ours'] / memory['official']:.2f} of it" if {"ours", "official"} <= memory.keys() else "-"
    rows.append(["idle memory, MB", *idle, shared])
    return _table(("", "Antiphon", "official `mcp`", "TypeScript SDK", "FastMCP", "against `mcp`"), rows)


def _times(values: Sequence[float]) -> str:
    if not values:
        return "-"
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f"{low} times" if low == high else f"{low} to {high} times"


# --- the page ----------------------------------------------------------------------------------------------------


def page(figures: Figures, judged: Sequence[Judged]) -> str:
    """The page of a run. A section that was not measured says so."""
    facts = figures["run"]
    met = sum(each.verdict == "met" for each in judged)
    missing = "".join(f"* {what}: {_one_line(reason)}\n" for what, reason in figures["unavailable"].items())
    versions = ", ".join(f"{package} {number}" for package, number in facts["versions"].items())
    return PAGE.format(
        summary=_summary(figures),
        machine=f"{facts['machine']}, {facts['cores']} cores, {facts['system']}, Python {facts['python']}",
        when=facts["when"][:10],
        minutes=f"{facts['seconds'] / 60:.0f}" if facts["seconds"] > 90 else f"{facts['seconds'] / 60:.1f}",
        versions=versions,
        rounds=facts["rounds"],
        warning=QUICK if facts["quick"] else "",
        servers=_or_not(_servers, figures),
        costs=_or_not(_costs, figures),
        conversations=_or_not(_conversations, figures),
        bodies=_or_not(_bodies, figures),
        streams=_or_not(_streams, figures),
        sessions=_or_not(_sessions, figures),
        starts=_or_not(_starts, figures),
        clients=_or_not(_clients, figures),
        more=_more(figures),
        goals=_goals(judged),
        verdict=f"{met} of {len(judged)} are met.",
        missing=f"## Not measured\n\n{missing}\n" if missing else "",
    )


def _or_not(make: Any, figures: Figures) -> str:
    try:
        table: str = make(figures)
    except (KeyError, ValueError):
        return "Not measured in this run.\n"
    return table


def _one_line(text: str) -> str:
    """A reason as text of a page: in one line, without markup."""
    plain = re.sub(r"[^\w .,:;()'/=-]", " ", text.splitlines()[0] if text else "")
    return re.sub(r" +", " ", plain)[:160]


OTHERS = {
    "official": "the official Python server",
    "typescript": "the TypeScript SDK",
    "fastmcp": "FastMCP",
    "mcp-lite": "mcp-lite",
}


def _summary(figures: Figures) -> str:
    cells = _http(figures)
    told = [
        f"{short(median(against))} times the rate of {what}"
        for name, what in OTHERS.items()
        if (against := ratios(cells, "ours|echo|16", f"{name}|echo|16"))
    ]
    legs = [ratios(cells, f"ours|{work}|16", f"official|{work}|16") for work in LEGS]
    if not told or not all(legs):
        return "Not all servers were measured in this run."
    one, two = (short(median(each)) for each in legs)
    text = (
        f"In `tools/call` at 16 connections, `antiphon serve` has {', '.join(told)}. Against the official Python "
        f"server, it has {one} times the rate in calls that ask to confirm, and {two} times in their retries with the "
        "answer. These are medians of the ratios in each round."
    )
    return textwrap.fill(text, 120)


QUICK = "**These figures are of a quick run, which only shows that everything works.**\n\n"
PAGE = """# Performance

{summary}

{warning}All figures are of one run of this command, which takes about {minutes} minutes:

```sh
make bench
```

Each server is a single process, alone on one core; the load comes from another. All take turns, in up to {rounds}
rounds, so that a slow moment of the machine hits all of them. A figure is the median of the rounds; where there are
brackets, they hold the lowest and the highest. Compare only figures of one run: the ratios stay, the rates depend on
the machine. Processor time (CPU) per request varies less than the rate.

* Machine: {machine}
* Date: {when}
* Versions: {versions}
* All samples: [performance.json](performance.json)

## Requests over HTTP

`echo` is a call that returns its argument. `leg 1` is a call of a tool that asks for a confirmation, and `leg 2` is
the same call with the answer, after which the tool is done. Antiphon seals and encrypts what it carries from one leg
to the next; the official server, FastMCP and the TypeScript SDK do what they offer for that. mcp-lite knows no
revision after 2025-06-18, so it gets the echo of that revision, without a session. Bare ASGI decodes the request and
returns a constant: it is the ceiling for a server in Python.

![Requests per second at 16 connections, as bars](images/performance-rates.svg)

{servers}
{costs}
![Requests per second against the number of connections](images/performance-connections.svg)

## Long conversations

A tool asks so many questions, one after the other. What was answered so far travels in the token. The time is that of
all requests of the conversation.

![CPU of a conversation against the number of its questions](images/performance-rounds.svg)

{conversations}
## Large arguments

A text, the same with a character to escape every few, a table with spaces between its tokens as most encoders write
it, and a matrix of numbers, eight in a row. Four connections.

![CPU of a call against the size of its argument](images/performance-bodies.svg)

{bodies}
## Streams and memory

Calls with ten progress notifications each, all at once; and the memory by which a server grows for each question that
nobody has answered yet, each stream of changes, and each session of 2025-11-25. In Node, this includes what is not
collected yet.

{streams}
## Sessions of 2025-11-25

Sixteen clients, each in a session of its own.

{sessions}
## Starting

{starts}
## Clients

Each calls the same server, ours, over HTTP, and the server of its own kind in memory. The calls take two rounds, and
come one after the other.

{clients}
## Parts

{more}
## Goals

{verdict}

{goals}
{missing}## Repeat it

`make bench` installs what it needs, including Node for its servers, and saves the figures in `benchmarks/results`.

```sh
make bench                             # measure and print
make bench OPTIONS=--publish           # and write this page, its plots, the page on scale, and the README's table
make bench OPTIONS="--only http,start" # some sections
make bench OPTIONS=--quick             # one short round, to see that everything works
```

On a machine with one core, server and load disturb each other, and a busy machine spoils the rates: look at CPU then.
[At scale](scale.md) says what the figures mean for a million conversations.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path, nargs="?", default=ROOT / "docs" / "performance.json")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file says something else")
    parser.add_argument("--into", type=Path, default=ROOT, metavar="FOLDER", help="default: this repository")
    options = parser.parse_args()
    figures = json.loads(options.figures.read_text("utf-8"))
    if options.check:
        made = texts(figures, options.into).items()
        wrong = [file for file, text in made if not file.exists() or file.read_text("utf-8") != text]
        print("\n".join(f"not what {options.figures} makes of it: {file}" for file in wrong))
        return 1 if wrong else 0
    print("\n".join(f"written: {file}" for file in write(figures, options.into)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
