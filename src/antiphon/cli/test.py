"""``antiphon test``: suites of tests against their servers."""

import asyncio
import gc
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from click.exceptions import Exit

from antiphon.cli.output import visible
from antiphon.testing.outcome import Outcome, Summary
from antiphon.testing.report import FORMATS, render
from antiphon.testing.suite.document import SuiteBroken, nearest
from antiphon.testing.suite.format import duration, schema
from antiphon.testing.suite.loading import find_suites, load_all
from antiphon.testing.suite.model import Suite
from antiphon.testing.suite.runner import Settings, run
from antiphon.testing.suite.selection import Selection, check_expression

FAILED: Final = 1
BROKEN: Final = 2
UNSTARTED: Final = 3
INTERRUPTED: Final = 130

TABLE: Final = """\b
Exit codes:
  0    every test passed
  1    a test failed
  2    a suite is broken, or there is nothing to run
  3    a server did not start
  130  interrupted"""


def _time(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """``500ms``, ``10s``, ``2m``, or a number of seconds."""
    if value is None:
        return None
    try:
        return duration(float(value) if value.replace(".", "", 1).isdigit() else value)
    except ValueError as fault:
        raise click.BadParameter(str(fault), ctx, param) from None


def _reports(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[tuple[str, str]]:
    """``json=out.json``; without a file, to standard output."""
    made = [(form, file) for form, _, file in (value.partition("=") for value in values)]
    for form, _ in made:
        if form not in FORMATS:
            raise click.BadParameter(f"there is no report {form!r}: there are {', '.join(FORMATS)}", ctx, param)
    return made


def _variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """``name=value``; the value is a text."""
    made: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"expected NAME=VALUE, got {value!r}", ctx, param)
        made[name] = text
    return made


def _expression(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        if value:
            check_expression(value)
    except ValueError as fault:
        raise click.BadParameter(str(fault), ctx, param) from None
    return value


def _print_schema(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value:
        click.echo(msgspec.json.format(msgspec.json.encode(schema()), indent=2).decode())
        ctx.exit()


_FOLDER: Final = click.Path(file_okay=False, path_type=Path)


@click.command("test", epilog=TABLE)
@click.argument("suites", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-k",
    "expression",
    metavar="EXPR",
    default="",
    callback=_expression,
    help="Only tests with these words in their names or tags: 'deploy and not slow'.",
)
@click.option("--tag", metavar="TAG", multiple=True, help="Only tests with this tag, or another one given so.")
@click.option("-x", "--fail-fast", is_flag=True, help="Stop at the first test that fails.")
@click.option("-j", "--jobs", metavar="N", type=click.IntRange(1, 1000), default=1, help="How many tests at a time.")
@click.option(
    "--era",
    type=click.Choice(["auto", "modern", "legacy", "both"]),
    help="The protocol's era, whatever the suites say.",
)
@click.option(
    "--rotate",
    metavar="N",
    type=click.IntRange(0, 100),
    default=0,
    help="N instances; each round goes to another one, and that one starts anew.",
)
@click.option(
    "--timeout", metavar="TIME", callback=_time, help="How long a call may take, whatever the suites say: 10s, 500ms."
)
@click.option(
    "--var", "variables", metavar="NAME=VALUE", callback=_variables, multiple=True, help="A variable for the suites."
)
@click.option("--update-snapshots", is_flag=True, help="Keep results as they are now.")
@click.option("--record", metavar="FOLDER", type=_FOLDER, help="Keep what is said in FOLDER, to replay it.")
@click.option("--replay", metavar="FOLDER", type=_FOLDER, help="Run no server: answer from what --record kept.")
@click.option("--replay-safety", is_flag=True, help="Run every round twice, and on a fresh server, and compare.")
@click.option(
    "--effect",
    "effects",
    metavar="FUNCTION",
    multiple=True,
    help="With --replay-safety: shop.payments.charge must not run in several rounds, outside of a step.",
)
@click.option("--watch", is_flag=True, help="Run again whenever a file changes.")
@click.option(
    "--report",
    "reports",
    metavar="FORMAT[=FILE]",
    callback=_reports,
    multiple=True,
    help=f"Also write a report: {', '.join(FORMATS)}.",
)
@click.option("-q", "--quiet", is_flag=True, help="Tell only of tests that do not pass.")
@click.option("-v", "--verbose", is_flag=True, help="Tell the rounds of every test.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the format of suites as JSON Schema.",
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
    """Run the SUITES: files in YAML, or folders in which those called *.mcp.yaml are run.

    \b
    antiphon test deploy.mcp.yaml
    antiphon test tests/ -k "deploy and not slow" --fail-fast
    antiphon test tests/ -j 8 --report junit=out.xml --report html=out.html
    antiphon test tests/ --era both --rotate 3
    """
    if settings["record"] and settings["replay"]:
        raise click.UsageError("--record and --replay exclude each other")
    if settings["replay_safety"] and settings["jobs"] > 1:
        raise click.UsageError("--replay-safety watches the clock of the whole process: it runs with -j 1")
    if settings["replay_safety"] and settings["replay"]:
        raise click.UsageError("--replay-safety has a server run its rounds again, and --replay starts none")
    if settings["replay_safety"] and settings["era"] == "legacy":
        raise click.UsageError("--replay-safety has nothing to check in the older era, where a call is run once")
    if settings["effects"] and not settings["replay_safety"]:
        raise click.UsageError("--effect says what --replay-safety looks for, and that is not there")
    if watch:
        written = [*(Path(file) for _, file in reports if file), *filter(None, [settings["record"]])]
        watch_tests(list(suites) or [Path()], written)
        return
    chosen = Selection(expression=expression, tags=tag)
    loaded = _loaded(list(suites) or [Path()], variables)
    _refuse_unknown(variables, loaded)
    if settings["record"] or settings["replay"]:
        _refuse_twins(loaded)
    if not any(chosen.chosen(suite) for suite in loaded):
        raise click.UsageError("No test is chosen: -k and --tag leave none of them")
    on_screen = not any(not file for _, file in reports)
    screen = Screen(quiet=quiet, verbose=verbose) if on_screen else None
    settings["era"] = settings["era"] or ""
    summary = _run(loaded, Settings(**settings), chosen, screen)
    if screen is not None:
        screen.finish(summary)
    for form, file in reports:
        _write(form, file, summary)
    ctx.exit(UNSTARTED if summary.unstarted else 0 if summary.passed else FAILED)


def _loaded(places: list[Path], variables: dict[str, str]) -> list[Suite]:
    files = find_suites(places)
    if not files:
        where = ", ".join(map(str, places))
        raise click.UsageError(f"There are no suites in {where}: their names end in .mcp.yaml")
    # A suite is all objects that stay: looking for garbage among them costs as much as reading it.
    gc.disable()
    try:
        return load_all(files, variables=variables)
    except SuiteBroken as broken:
        for problem in broken.problems:
            click.echo(visible(str(problem)), err=True)
        count = len(broken.problems)
        click.echo(f"{count} problem{'' if count == 1 else 's'}; nothing was run.", err=True)
        raise Exit(BROKEN) from None
    finally:
        gc.freeze()
        gc.enable()


def _refuse_unknown(variables: dict[str, str], suites: list[Suite]) -> None:
    known = {name for suite in suites for name in suite.names}
    for name in variables:
        if name not in known:
            hint = nearest(name, known) or (f"; there are {', '.join(sorted(known))}" if known else "; they have none")
            raise click.UsageError(f"--var {name}: no suite has or uses a variable {name!r}{hint}")


def _refuse_twins(suites: list[Suite]) -> None:
    first: dict[str, Suite] = {}
    for suite in suites:
        other = first.setdefault(suite.name, suite)
        if other is not suite:
            raise click.UsageError(
                f"{other.file} and {suite.file} are both called {suite.name!r}, and would have one recording:"
                " give one of them another 'name'"
            )


def _run(suites: list[Suite], settings: Settings, chosen: Selection, screen: "Screen | None") -> Summary:
    found: list[Summary] = []

    async def keep() -> None:
        # Not returned: asyncio spells out the result of its main task once more, however long it is.
        told = None if screen is None else screen.ended
        found.append(await run(suites, settings=settings, selection=chosen, on_outcome=told))

    try:
        asyncio.run(keep())
    except KeyboardInterrupt:
        click.echo("Interrupted", err=True)
        raise Exit(INTERRUPTED) from None
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
        raise click.UsageError(f"The report {file} cannot be written: {fault.strerror or fault}") from None


def _plainly(text: Any = "", **_: object) -> None:
    sys.stdout.write(f"{text.plain}\n")


class Screen:
    """What a person sees meanwhile, and at the end."""

    def __init__(self, *, quiet: bool, verbose: bool) -> None:
        from antiphon.testing.report.terminal import ReportPrinter, console  # 60 ms that other reports need not pay

        shown = console()
        if not shown.is_terminal and shown.color_system is None:
            # Nothing to style: rich would take longer over a line than its test took.
            shown.size = shown.size
            shown.print = _plainly  # type: ignore[method-assign, assignment]  # takes what a ReportPrinter gives it, and no more
        self._printer = ReportPrinter(shown, verbose=verbose)
        self._quiet = quiet

    def ended(self, outcome: Outcome) -> None:
        if not self._quiet or outcome.status in {"failed", "broken"}:
            self._printer.ended(outcome)

    def finish(self, summary: Summary) -> None:
        self._printer.finish(summary)


# Watching: the same tests again, in a process of their own, whenever a file changes.


_LOOKED_AT: Final = (".py", ".yaml", ".yml", ".json", ".toml", ".js", ".mjs", ".ts")
FIRST: Final = 200
"""Milliseconds until the first run."""
_LEFT_OUT: Final = frozenset({"__snapshots__", "__pycache__", "node_modules", ".git", ".venv"})


def watch_tests(places: list[Path], written: Iterable[Path] = ()) -> None:
    """Run the tests, and once more after each change, until somebody interrupts.

    What the tests have ``written`` themselves, such as their reports, is no change.
    """
    try:
        from watchfiles import watch
    except ImportError:
        raise click.UsageError("--watch needs a package: pip install 'antiphon[reload]'") from None
    again = [sys.executable, "-m", "antiphon", *(word for word in sys.argv[1:] if word != "--watch")]
    ours = tuple(place.resolve() for place in written)
    folders = {place if place.is_dir() else place.parent for place in [*places, Path()]}
    is_first = True
    try:
        # The first round comes of itself: what changes while the tests run is not missed then.
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
        click.echo("No longer watching", err=True)


def is_of_interest(path: str, written: Collection[Path] = ()) -> bool:
    """Whether a change may be one of the server or its suites."""
    if not path.endswith(_LOOKED_AT) or _LEFT_OUT & set(Path(path).parts):
        return False
    return not any(Path(path).resolve().is_relative_to(place) for place in written)


def _run_again(command: list[str]) -> None:
    # A process of its own: what a server's module imports is then new as well.
    subprocess.run(command, check=False)  # noqa: S603 -- this program itself
    click.echo("Watching for changes; Ctrl+C ends it", err=True)
