"""``antiphon test`` and ``antiphon init-tests``: run suites of tests, and write one to start with."""

import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from click.exceptions import Exit

from antiphon.cli import exit_codes
from antiphon.cli.target import header_option, holds_server, read_headers, read_target
from antiphon.config.hosts import HOSTS
from antiphon.config.servers import split
from antiphon.escaping import counted, visible, visible_json
from antiphon.testing.answers import Script
from antiphon.testing.report import FORMATS, render
from antiphon.testing.suite.document import SuiteBroken, nearest
from antiphon.testing.suite.format import duration, schema
from antiphon.testing.suite.loading import find_suites, load_all, loads
from antiphon.testing.suite.model import Selection, Suite, Summary, parse_expression
from antiphon.testing.suite.runner import Settings, run
from antiphon.testing.suite.server import SuiteServer, Unstarted
from antiphon.testing.suite.starter import starting_suite

if TYPE_CHECKING:
    from antiphon.testing.report.terminal import ReportPrinter


def _parsed(parse: Callable[[str], object]) -> Callable[[click.Context, click.Parameter, str | None], object]:
    """Return a callback that parses an option's value, and shows a ValueError as the user's mistake."""

    def callback(ctx: click.Context, param: click.Parameter, value: str | None) -> object:
        try:
            return None if value is None else parse(value)
        except ValueError as fault:
            raise click.BadParameter(str(fault), ctx, param) from None

    return callback


def _time(text: str) -> float:
    """Read ``500ms``, ``10s``, ``2m``, or a number of seconds."""
    return duration(float(text) if text.replace(".", "", 1).isdigit() else text)


def _expression(text: str) -> str:
    if text:
        parse_expression(text)
    return text


def _reports(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """Read ``json=out.json``. Without a file, a report goes to stdout."""
    reports = [(form, file) for form, _, file in (value.partition("=") for value in values)]
    for form, _ in reports:
        if form not in FORMATS:
            raise click.BadParameter(f"there is no report {form!r}: there are {', '.join(FORMATS)}", ctx, param)
    return reports


def _variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Read ``name=value``; the value is a string."""
    variables: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected NAME=VALUE, got {value!r}", ctx, param)
        variables[name] = text
    return variables


def _print_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        click.echo(visible_json(schema()))
        ctx.exit()


_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


@click.command("test", epilog=exit_codes.TEST_TABLE)
@click.argument("suites", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-k",
    "expression",
    metavar="EXPR",
    default="",
    callback=_parsed(_expression),
    help="Run tests whose names or tags match: 'deploy and not slow'.",
)
@click.option("--tag", metavar="TAG", multiple=True, help="Run tests with this tag. Repeat it for several.")
@click.option("-x", "--fail-fast", is_flag=True, help="Stop at the first failure.")
@click.option(
    "-j", "--jobs", metavar="N", type=click.IntRange(1, 1000), default=1, help="The number of tests to run at a time."
)
@click.option(
    "--era",
    type=click.Choice(["auto", "modern", "legacy", "both"]),
    help="The protocol era. Overrides the suites.",
)
@click.option(
    "--rotate",
    metavar="N",
    type=click.IntRange(0, 100),
    default=0,
    help="Run N instances. Each round goes to the next one, restarted.",
)
@click.option(
    "--timeout",
    metavar="TIME",
    callback=_parsed(_time),
    help="The time limit of a call: 10s, 500ms. Overrides the suites.",
)
@click.option(
    "--var", "variables", metavar="NAME=VALUE", callback=_variables, multiple=True, help="A variable for the suites."
)
@click.option("--update-snapshots", is_flag=True, help="Save current results as snapshots.")
@click.option("--record", metavar="FOLDER", type=_FOLDER, help="Record the messages to FOLDER.")
@click.option(
    "--replay", metavar="FOLDER", type=_FOLDER, help="Answer from the recordings in FOLDER, without a server."
)
@click.option("--replay-safety", is_flag=True, help="Run every round twice, and on a fresh server, and compare.")
@click.option(
    "--effect",
    "effects",
    metavar="FUNCTION",
    multiple=True,
    help="With --replay-safety: a function (shop.payments.charge) that may run in one round only, unless in a step.",
)
@click.option(
    "--ignore",
    metavar="WHAT",
    multiple=True,
    help="With --replay-safety: what not to report (socket.connect, notes.py:12, clock).",
)
@click.option("--watch", is_flag=True, help="Run again when a file changes.")
@click.option(
    "--report",
    "reports",
    metavar="FORMAT[=FILE]",
    callback=_reports,
    multiple=True,
    help=f"Also write a report: {', '.join(FORMATS)}.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only tests that do not pass.")
@click.option("-v", "--verbose", is_flag=True, help="Print the rounds of every test.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of suites.",
)
@click.pass_context
def test_command(
    ctx: click.Context,
    /,
    *,
    suites: tuple[Path, ...],
    expression: str,
    tag: tuple[str, ...],
    variables: dict[str, str],
    reports: list[tuple[str, str]],
    quiet: bool,
    verbose: bool,
    watch: bool,
    **settings: Any,
) -> None:
    """Run the SUITES: YAML files, or folders that contain files called *.mcp.yaml.

    \b
    antiphon test deploy.mcp.yaml
    antiphon test tests/ -k "deploy and not slow" --fail-fast
    antiphon test tests/ -j 8 --report junit=out.xml --report html=out.html
    antiphon test tests/ --era both --rotate 3
    """
    settings["era"] = settings["era"] or ""
    try:
        wanted = Settings(**settings)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    if watch:
        watch_tests(
            list(suites) or [Path()], [Path(file) for file in (wanted.record, *(file for _, file in reports)) if file]
        )
        return
    chosen = Selection(expression=expression, tags=tag)
    loaded = _loaded(list(suites) or [Path()], variables)
    _refuse_unknown(variables, loaded)
    if wanted.record or wanted.replay:
        _refuse_same_names(loaded)
    if not any(chosen.chosen(suite) for suite in loaded):
        raise click.UsageError("No test is selected by -k and --tag")
    if wanted.replay_safety:
        _tell_unseen(loaded)
    printer = None
    if all(file for _, file in reports):
        from antiphon.testing.report.terminal import ReportPrinter, console  # 60 ms that other reports do not need

        printer = ReportPrinter(console(), quiet=quiet, verbose=verbose)
    summary = _run(loaded, wanted, chosen, printer)
    for form, file in reports:
        _write(form, file, summary)
    ctx.exit(exit_codes.NOT_STARTED if summary.unstarted else 0 if summary.passed else exit_codes.FAILED)


def _tell_unseen(suites: list[Suite]) -> None:
    unseen = [suite.name for suite in suites if not suite.target.app]
    if unseen:
        click.echo(
            f"--replay-safety cannot observe what the server of {', '.join(unseen)} does, since it runs in another"
            " process: it compares rounds alone. 'app:' in place of 'command:' runs a Server in this one.",
            err=True,
        )


def _loaded(places: list[Path], variables: dict[str, str]) -> list[Suite]:
    files = find_suites(places)
    if not files:
        where = ", ".join(map(str, places))
        raise click.UsageError(f"There are no suites in {where}: their names end in .mcp.yaml")
    # Everything that is loaded stays: collecting garbage meanwhile would double the time.
    gc.disable()
    try:
        return load_all(files, variables=variables)
    except SuiteBroken as broken:
        for problem in broken.problems:
            click.echo(visible(str(problem)), err=True)
        click.echo(f"{counted(len(broken.problems), 'problem')}; nothing was run.", err=True)
        raise Exit(exit_codes.BROKEN) from None
    finally:
        gc.freeze()
        gc.enable()


def _refuse_unknown(variables: dict[str, str], suites: list[Suite]) -> None:
    known = {name for suite in suites for name in suite.names}
    for name in variables:
        if name not in known:
            hint = nearest(name, known) or (f"; there are {', '.join(sorted(known))}" if known else "; they have none")
            raise click.UsageError(f"--var {name}: no suite has or uses a variable {name!r}{hint}")


def _refuse_same_names(suites: list[Suite]) -> None:
    first: dict[str, Suite] = {}
    for suite in suites:
        other = first.setdefault(suite.name, suite)
        if other is not suite:
            raise click.UsageError(
                f"{other.file} and {suite.file} are both called {suite.name!r}, and would share a recording:"
                " give one of them another 'name'"
            )


def _run(suites: list[Suite], settings: Settings, chosen: Selection, printer: "ReportPrinter | None") -> Summary:
    found: list[Summary] = []

    async def keep() -> None:
        # Not returned: asyncio formats the result of its main task, and this one is long.
        on_outcome = None if printer is None else printer.ended
        found.append(await run(suites, settings=settings, selection=chosen, on_outcome=on_outcome))

    exit_codes.run(keep())
    if printer is not None:
        printer.finish(found[0])
    return found[0]


def _write(form: str, file: str, summary: Summary) -> None:
    text = render(form, summary)
    if not file:
        sys.stdout.write(text)
        return
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise click.UsageError(f"Cannot write the report {file}: {fault.strerror or fault}") from None


# --- watching -----------------------------------------------------------------------------------------------------

_WATCHED: Final = (".py", ".yaml", ".yml", ".json", ".toml", ".js", ".mjs", ".ts")
_IGNORED: Final = frozenset({"__snapshots__", "__pycache__", "node_modules", ".git", ".venv"})
FIRST: Final = 200
"""Milliseconds until the first run."""


def watch_tests(places: list[Path], written: Iterable[Path] = ()) -> None:
    """Run the tests, and again after each change, until interrupted. Changes to ``written`` files do not count."""
    try:
        from watchfiles import watch
    except ImportError:
        raise click.UsageError("--watch needs watchfiles: pip install 'antiphon[reload]'") from None
    again = [sys.executable, "-m", "antiphon", *(word for word in sys.argv[1:] if word != "--watch")]
    ours = tuple(place.resolve() for place in written)
    folders = {place if place.is_dir() else place.parent for place in [*places, Path()]}
    is_first = True
    try:
        # The first run starts after a timeout, when the watcher is already watching: it misses no change.
        for changes in watch(
            *folders,
            watch_filter=lambda _, path: is_of_interest(path, ours),
            rust_timeout=FIRST,
            yield_on_timeout=True,
            raise_interrupt=True,
        ):
            if changes:
                names = sorted({Path(path).name for _, path in changes})
                more = " and more" if len(names) > 3 else ""
                click.secho(f"\n{', '.join(names[:3])}{more} changed", bold=True, err=True)
            if changes or is_first:
                _run_again(again)
            is_first = False
    except KeyboardInterrupt:
        click.echo("Stopped watching", err=True)


def is_of_interest(path: str, written: Collection[Path] = ()) -> bool:
    """Whether a changed file may belong to the server or its suites."""
    if not path.endswith(_WATCHED) or _IGNORED & set(Path(path).parts):
        return False
    return not any(Path(path).resolve().is_relative_to(place) for place in written)


def _run_again(command: list[str]) -> None:
    # In a new process, which imports the server and its modules again.
    subprocess.run(command, check=False)  # noqa: S603 -- this program itself
    click.echo("Watching for changes; press Ctrl+C to stop", err=True)


# --- init-tests ---------------------------------------------------------------------------------------------------

_APP: Final = re.compile(r"[\w.]+:[\w.]+|.+\.py:[\w.]+")


@click.command("init-tests")
@click.argument("target")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file to write. Default: print the suite.",
)
@header_option
@click.option("--era", type=click.Choice(["auto", "modern", "legacy"]), default="auto", help="The protocol era.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init_tests_command(*, target: str, output: Path | None, header: tuple[str, ...], era: str, force: bool) -> None:
    """Write a suite for the server at TARGET, with a test for each tool, prompt and resource.

    TARGET is a URL, a Python file, package.module:app, an entry of a configuration (mcp.json:NAME, or HOST:NAME with a
    HOST such as claude-desktop), or a command in quotes.

    \b
    antiphon init-tests notes.py -o notes.mcp.yaml
    antiphon init-tests "npx some-server" -o some.mcp.yaml
    antiphon test notes.mcp.yaml
    """
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} exists: --force overwrites it")
    file = output or Path("suite.mcp.yaml")
    folder = file.absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    text = exit_codes.run(_starting_suite(_server(target, header, folder), file, era))
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {output}. Run it with  antiphon test {output}", err=True)


async def _starting_suite(server: dict[str, object], file: Path, era: str) -> str:
    try:
        # Loaded as it will be: JSON is YAML.
        text = msgspec.json.encode({"server": server, "tests": [{"name": "any", "method": "server/discover"}]}).decode()
        async with SuiteServer(loads(text, file).target, era=era) as started:
            started.client.prepare(Script(), timeout=60)
            return await starting_suite(started.client, server, file=str(file))
    except SuiteBroken as broken:
        raise exit_codes.Failed(str(broken)) from None
    except Unstarted as fault:
        raise exit_codes.Failed("\n".join(filter(None, [str(fault), fault.log]))) from None


def _server(text: str, header: tuple[str, ...], folder: Path) -> dict[str, object]:
    """Return the ``server`` section of a suite in a folder, for a TARGET."""
    file = Path(text)
    is_file = text.endswith(".py") and file.is_file()
    if (entry := split(text, Path())) is not None:
        where = entry[0] if entry[0] in HOSTS else _seen_from(folder, Path(entry[0]))
        return {"config": f"{where}:{entry[1]}" if entry[1] else where}
    if _APP.fullmatch(text) and "://" not in text:
        place, _, name = text.rpartition(":")
        return {"app": f"{_seen_from(folder, Path(place))}:{name}" if place.endswith(".py") else text}
    if is_file and holds_server(file):
        return {"app": _seen_from(folder, file)}
    found = read_target(text)
    headers = read_headers(header, found)
    if found.command is None:
        return {"url": found.text, **({"headers": headers} if headers else {})}
    if is_file:
        return {"command": ["python", _seen_from(folder, file)]}
    cwd = _seen_from(folder, Path(found.folder or Path.cwd()))
    return {"command": found.command, **({"cwd": cwd} if cwd != "." else {})}


def _seen_from(folder: Path, path: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder)).as_posix()
