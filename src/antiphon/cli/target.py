"""The server that a command calls, from TARGET and the options that calling and resuming share, and its client."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from antiphon import __version__, eras
from antiphon.cli.answering import Respondent, read_answers
from antiphon.cli.login import auth_for
from antiphon.cli.output import on_stderr
from antiphon.client.client import Client
from antiphon.config.hosts import HOSTS
from antiphon.config.servers import Input, find_server, servers_in, split
from antiphon.errors import ConfigUnusable
from antiphon.escaping import compact, duration, line
from antiphon.testing.report.conversation import Step, conversation
from antiphon.testing.transcript import Recorded, turn_of
from antiphon.transports.link import Link, OnNotification
from antiphon.types import JsonObject, Root
from antiphon.wire.revisions import METHODS, PROGRESS_TOKEN, REVISION

if TYPE_CHECKING:
    from rich.progress import Progress

F = TypeVar("F", bound=Callable[..., Any])

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_USES_ANTIPHON: Final = re.compile(rb"^\s*(from|import)\s+antiphon\b", re.MULTILINE)
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+(/.*)?")
_HOST_AND_NAME: Final = re.compile(r"([a-z-]+):[\w.@-]+")
_PYTHON: Final = re.compile(r"(.+\.py)(:[\w.]+)?")


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, or a command to start in a folder."""

    text: str
    """The URL; or what messages call the command."""
    command: list[str] | None = None
    folder: str | None = None
    env: Mapping[str, str] = {}
    """Variables for the command, beside those that are there."""
    headers: Mapping[str, str] = {}
    """HTTP headers for the URL."""
    key: str | None = None
    """The key in ``env`` that was made for a call that waits."""
    source: str = ""
    """The entry of a configuration file that it was read from."""
    versions: tuple[str, ...] = ()
    """The revisions that it is known to speak: a server that we start need not be asked, and is started once."""

    @property
    def target(self) -> str | list[str]:
        """What a Client takes."""
        return self.text if self.command is None else self.command

    @property
    def name(self) -> str:
        """A short name, of letters, digits, - and _: that of the file, the URL's host, or the command."""
        if self.command is None:
            labels = (urlsplit(self.text).hostname or "").split(".")
            found = next((label for label in labels if label not in {"mcp", "api", "www"}), "")
        else:
            words = [word for word in self.command if not word.startswith("-")]
            found = Path(words[-1]).stem
        return re.sub(r"[^A-Za-z0-9_-]+", "-", found).strip("-") or "server"


def read_target(text: str, folder: str | None = None) -> ServerTarget:
    """Read ``https://host/mcp``, ``server.py``, ``mcp.json:name`` or ``"python server.py --flag"``.

    Raise a usage error if it is none of these.
    """
    if text.startswith(("http://", "https://")):
        return ServerTarget(text=text)
    python = _PYTHON.fullmatch(text)
    if python is not None and (file := Path(folder or "", python[1])).is_file():
        path = str(file.resolve())
        if not holds_server(file):
            return ServerTarget(text=path, command=[sys.executable, path], folder=folder)
        server = f"{path}{python[2] or ''}"
        command = [sys.executable, "-m", "antiphon", "serve", server]
        return ServerTarget(text=server, command=command, folder=folder, versions=(REVISION,))
    if (place := split(text, Path(folder or ""))) is not None:
        found = _found(*place, folder)
        program = found.command[0] if found.command else ""
        if program and os.sep not in program and shutil.which(program, path=found.env.get("PATH")) is None:
            raise click.BadParameter(f"{found.source}: there is no command {program!r}", param_hint="'TARGET'")
        return found
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as fault:
        raise _unusable(text, f"its quotes do not match ({fault})") from None
    if len(words) == 1 and text.endswith(".py"):
        raise click.BadParameter(f"There is no file {text}", param_hint="'TARGET'")
    if not words or shutil.which(words[0]) is None:
        raise _unusable(text, f"there is no command {words[0]!r}" if words else "it is empty")
    return ServerTarget(text=text, command=words, folder=folder or str(Path.cwd()))


def read_targets(text: str) -> dict[str, ServerTarget]:
    """Read a target; for a configuration without a name, all its servers that are not disabled, by their names."""
    place = split(text, Path())
    if place is None or place[1] is not None:
        return {"": read_target(text)}
    with _usage_errors():
        entries = servers_in(place[0])
        return {name: _found(place[0], name) for name, entry in entries.items() if not entry.is_disabled}


def _found(place: str, name: str | None, folder: str | None = None) -> ServerTarget:
    """Return an entry of a configuration. What it needs from the user is asked in the terminal."""
    ask = _ask_input if sys.stdin.isatty() else None
    with _usage_errors():
        found = find_server(place, name, folder=Path(folder or ""), ask=ask)
    if found.url:
        return ServerTarget(text=found.url, headers=found.headers, source=found.source)
    return ServerTarget(text=found.source, command=found.command, folder=found.cwd, env=found.env, source=found.source)


@contextmanager
def _usage_errors() -> Generator[None]:
    try:
        yield
    except ConfigUnusable as fault:
        raise click.BadParameter(str(fault), param_hint="'TARGET'") from None


def _ask_input(wanted: Input) -> str | None:
    choices = [str(item.get("value") if isinstance(item, dict) else item) for item in wanted.options]
    return str(
        click.prompt(
            line(wanted.description or wanted.id),
            default=wanted.default,
            hide_input=wanted.password,
            type=click.Choice(choices) if choices else str,
            err=True,
        )
    )


def holds_server(file: Path) -> bool:
    """Whether a Python file imports antiphon, and so can be served."""
    try:
        return _USES_ANTIPHON.search(file.read_bytes()) is not None
    except OSError as fault:
        raise click.BadParameter(f"Cannot read {file}: {fault.strerror}", param_hint="'TARGET'") from None


def _unusable(text: str, why: str) -> click.BadParameter:
    hint = f"; did you mean http://{text}?" if _HOST_AND_PORT.fullmatch(text) else ""
    if not hint and _HOST_AND_NAME.fullmatch(text):
        hint = f", nor a host of that name (there are {', '.join(HOSTS)})"
    return click.BadParameter(
        f"{text!r} is not a URL, a Python file, an entry of an mcp.json, or a command: {why}{hint}",
        param_hint="'TARGET'",
    )


def read_headers(lines: tuple[str, ...], target: ServerTarget) -> dict[str, str]:
    """Read the values of ``--header``, each ``Name: value``, and add them to those of the target."""
    if lines and target.command is not None:
        raise click.UsageError("--header can only be used with a URL: a command has no headers")
    given_names = {given.partition(":")[0].lower() for given in lines}
    headers = {name: value for name, value in target.headers.items() if name.lower() not in given_names}
    for given in lines:
        name, colon, value = given.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            # The value may be a secret: do not repeat it.
            raise click.BadParameter(f"expected 'Name: value', got {name!r} and the rest", param_hint="'--header'")
        headers[name] = value.strip()
    return headers


# --- options ------------------------------------------------------------------------------------------------------

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)

era_option: Final = click.option(
    "--era", metavar="ERA", default="auto", show_default=True, help="The protocol: auto, legacy, or a revision."
)
timeout_option: Final = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="The server's time for a call.",
)
header_option: Final = click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="An HTTP header to send.")
_OPTIONS: Final = (
    click.option("--answers", metavar="FILE", type=_FILE, help="Answers to the server's questions, in YAML or JSON."),
    click.option(
        "--pending",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Do not ask: write the waiting call to FILE.",
    ),
    click.option("--root", metavar="PATH", multiple=True, type=click.Path(exists=True), help="A root for the server."),
    header_option,
    timeout_option,
    click.option("--output", type=click.Choice(["text", "json"]), default="text", help="json: the result unchanged."),
    click.option("--save", metavar="FOLDER", type=_FOLDER, default=".", help="The folder for images and audio."),
    click.option("-v", "--verbose", is_flag=True, help="Print each round, with its times."),
)


def shared_options(function: F) -> F:
    """Add the options that calling and resuming share."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class CallOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The values of those options, and the target."""

    target: ServerTarget
    headers: Mapping[str, str]
    answers: Path | None
    pending: Path | None
    root: tuple[str, ...]
    timeout: float
    output: str
    save: Path
    verbose: bool
    era: str = "auto"


# --- the client ---------------------------------------------------------------------------------------------------


class CommandClient:
    """A client that answers from a file or a terminal, shows progress, and prints each round if that is wanted.

    ``auto``: whether it answers by itself, or raises InputNeeded.
    """

    def __init__(self, options: CallOptions, *, auto: bool) -> None:
        self._verbose = options.verbose
        self._answers = read_answers(options.answers)
        self._progress = ProgressBar()
        roots = [Root(Path(place).resolve().as_uri(), Path(place).resolve().name) for place in options.root]
        self.respondent = Respondent(
            self._answers,
            roots,
            target=options.target.text,
            file=options.answers,
            hide=self._progress.hide,
            waits=self.waits,
        )
        try:
            self.client = self._client(options, auto=auto)
        except (ValueError, TypeError) as fault:
            raise click.UsageError(str(fault)) from None

    def waits(self) -> bool:
        """Whether a call can wait for answers in a file: not in an earlier revision, which asks in the middle of it."""
        return self.client.protocol_version == REVISION

    def tell(self, text: str) -> None:
        """Print a message if --verbose was given."""
        if self._verbose:
            self._progress.hide()
            click.echo(text, err=True)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Client, None]:
        try:
            async with self.client as client:
                yield client
        finally:
            self._progress.hide()
            if self._answers.unused:
                self.tell(f"Unused answers: {', '.join(map(line, self._answers.unused))}")

    def _client(self, options: CallOptions, *, auto: bool) -> Client:
        target, respondent = options.target, self.respondent
        auth = auth_for(target.target, options.headers)
        link = eras.connect(
            target.target,
            headers=options.headers,
            auth=None if auth is None else auth.for_server(target.text, era=options.era),
            env={**os.environ, **target.env},
            cwd=target.folder,
            era=options.era,
            versions=target.versions,
        )
        return Client(
            ObservedLink(link, tell=self.tell, report=self._progress.report),
            elicit=respondent.elicit,
            elicit_url=respondent.elicit_url,
            sample=respondent.sample,
            roots=respondent.roots,
            auto=auto,
            timeout=options.timeout,
            name="antiphon-call",
            version=__version__,
            on_log=self._log if options.verbose else None,
        )

    def _log(self, level: object, data: object, logger: object) -> None:
        about = f" {line(str(logger))}" if logger else ""
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        self.tell(f"  {line(str(level))}{about}: {line(text)}")


# --- progress -----------------------------------------------------------------------------------------------------


class ProgressBar:
    """Shows the progress of a call on stderr, if that is a terminal."""

    def __init__(self) -> None:
        self._shown: Progress | None = None
        self._is_terminal = sys.stderr.isatty()

    def report(self, progress: object, total: object, message: object) -> None:
        if not self._is_terminal or not isinstance(progress, int | float):
            return
        if self._shown is None:
            self._shown = _progress()
            self._shown.start()
        is_first = not self._shown.task_ids
        if is_first:
            self._shown.add_task("", total=None)
        self._shown.update(
            self._shown.task_ids[0],
            completed=progress,
            total=total if isinstance(total, int | float) else None,
            description=line(message) if isinstance(message, str) else "",
            refresh=is_first,
        )

    def hide(self) -> None:
        """Remove the bar, until the next report."""
        shown, self._shown = self._shown, None
        if shown is not None:
            shown.stop()


def _progress() -> "Progress":
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=on_stderr(), transient=True)


# --- the rounds ---------------------------------------------------------------------------------------------------

_LONGEST: Final = 300


class ObservedLink(Recorded):
    """A Link around another: tells what is sent and received, and asks for progress and passes it to ``report``."""

    def __init__(self, link: Link, *, tell: Callable[[str], None], report: Callable[[Any, Any, Any], None]) -> None:
        super().__init__(link)
        self._tell = tell
        self._report = report

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        if METHODS[message["method"]].asks:
            message, on_notification = self._with_progress(message, on_notification)
        before = len(conversation(self.turns))
        sent = [step for step in conversation([*self.turns, turn_of(message, {})])[before:] if step.hearer == "server"]
        for step in sent:
            self._tell(_told(step))
        try:
            return await super().request(message, headers=headers, on_notification=on_notification)
        finally:
            for step in conversation(self.turns)[before + len(sent) :]:
                self._tell(_told(step))

    def _with_progress(self, message: JsonObject, forward: OnNotification | None) -> tuple[JsonObject, OnNotification]:
        params: JsonObject = message["params"]
        params = {**params, "_meta": {**params["_meta"], PROGRESS_TOKEN: message["id"]}}

        async def hear(notification: JsonObject) -> None:
            progress: Any = notification.get("params") or {}
            if notification["method"] == "notifications/progress":
                self._report(progress.get("progress"), progress.get("total"), progress.get("message"))
            elif forward is not None and (more := forward(notification)) is not None:
                await more

        return {**message, "params": params}, hear


def _told(step: Step) -> str:
    """Return a step on one line. The result itself is printed when the call is done."""
    told = line(step.title)
    if step.kind != "result":
        told += f": {line(step.text)}" if step.text else ""
        told += "" if step.data is msgspec.UNSET else f" {line(compact(step.data))}"
    told = told if len(told) <= _LONGEST else f"{told[: _LONGEST - 3]}..."
    arrow = "←" if step.speaker == "server" else "→"
    return f"{arrow} {told}" + ("" if step.seconds is None else f", {duration(step.seconds)}")
