"""A Peer: the server that a call goes to, from the TARGET on the command line."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon import __version__, eras
from antiphon.cli.answering import AnswerFile, Respondent, read_answers
from antiphon.cli.output import Bar, line
from antiphon.cli.trace import Tap
from antiphon.client.client import Client
from antiphon.types import Root

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_OURS: Final = re.compile(rb"^\s*(from|import)\s+antiphon\b", re.MULTILINE)
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+(/.*)?")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, or a command to start in a folder."""

    text: str
    """What finds it again from any folder."""
    command: list[str] | None = None
    folder: str | None = None

    @property
    def target(self) -> str | list[str]:
        """What a Client takes."""
        return self.text if self.command is None else self.command


def read_peer(text: str, folder: str | None = None) -> Peer:
    """Read ``https://host/mcp``, ``server.py`` or ``"python server.py --flag"``."""
    if text.startswith(("http://", "https://")):
        return Peer(text=text)
    file = Path(folder or "", text)
    if text.endswith(".py") and file.is_file():
        place = str(file.resolve())
        return Peer(text=place, command=_command(file), folder=folder)
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as fault:
        raise _unknown(text, f"its quotes do not match ({fault})") from None
    if len(words) == 1 and text.endswith(".py"):
        raise click.BadParameter(f"There is no file {text}", param_hint="'TARGET'")
    if not words or shutil.which(words[0]) is None:
        raise _unknown(text, f"there is no command {words[0]!r}" if words else "it is empty")
    return Peer(text=text, command=words, folder=folder or str(Path.cwd()))


def _command(file: Path) -> list[str]:
    """A file that holds a Server of ours is served on standard streams, whatever it does when it is run."""
    try:
        is_ours = _OURS.search(file.read_bytes()) is not None
    except OSError as fault:
        raise click.BadParameter(f"Cannot read {file}: {fault.strerror}", param_hint="'TARGET'") from None
    place = str(file.resolve())
    return [sys.executable, "-m", "antiphon", "serve", place] if is_ours else [sys.executable, place]


def read_headers(lines: tuple[str, ...], peer: Peer) -> dict[str, str]:
    """Read ``Name: value``, once for each header."""
    if lines and peer.command is not None:
        raise click.UsageError("--header can only be used with a URL: a command has no headers")
    headers: dict[str, str] = {}
    for given in lines:
        name, colon, value = given.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            # The value may be a secret, so it is not repeated.
            raise click.BadParameter(f"expected 'Name: value', got {name!r} and the rest", param_hint="'--header'")
        headers[name] = value.strip()
    return headers


def _unknown(text: str, why: str) -> click.BadParameter:
    hint = f"; did you mean http://{text}?" if _HOST_AND_PORT.fullmatch(text) else ""
    return click.BadParameter(
        f"{text!r} is neither a URL, nor a Python file, nor a command: {why}{hint}", param_hint="'TARGET'"
    )


# The options that calling and resuming share, and the client that they make.


F = TypeVar("F", bound=Callable[..., Any])

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)

_OPTIONS: Final = (
    click.option("--answers", metavar="FILE", type=_FILE, help="Answers to the server's questions, in YAML or JSON."),
    click.option(
        "--pending",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Do not ask: write the waiting call to FILE.",
    ),
    click.option("--root", metavar="PATH", multiple=True, type=click.Path(exists=True), help="A root for the server."),
    click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="An HTTP header to send."),
    click.option(
        "--timeout",
        metavar="SECONDS",
        type=click.FloatRange(min=0, min_open=True),
        default=60.0,
        show_default=True,
        help="How long the server may take.",
    ),
    click.option("--output", type=click.Choice(["text", "json"]), default="text", help="json: the result as it came."),
    click.option("--save", metavar="FOLDER", type=_FOLDER, default=".", help="Where images and sounds are saved."),
    click.option("-v", "--verbose", is_flag=True, help="Tell each round, with its times."),
)


def shared_options(function: F) -> F:
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was said on the command line about how to call."""

    peer: Peer
    headers: Mapping[str, str]
    answers: Path | None
    pending: Path | None
    root: tuple[str, ...]
    timeout: float
    output: str
    save: Path
    verbose: bool
    era: str = "auto"


class Desk:
    """A client, and what it needs around it: answers, a progress bar, and a tap on its link."""

    def __init__(self, options: Options, *, auto: bool, tapped: bool = False) -> None:
        self._options = options
        self._given = AnswerFile({}) if options.answers is None else read_answers(options.answers)
        self.bar = Bar()
        roots = [Root(Path(place).resolve().as_uri(), Path(place).resolve().name) for place in options.root]
        self.respondent = Respondent(self._given, roots, peer=options.peer.text, bar=self.bar)
        try:
            self.client = self._client(auto=auto, tapped=tapped)
        except (ValueError, TypeError) as fault:
            raise click.UsageError(str(fault)) from None

    def tell(self, text: str) -> None:
        """Say something to those who asked for every detail."""
        if self._options.verbose:
            self.bar.hide()
            click.echo(text, err=True)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Client, None]:
        try:
            async with self.client as client:
                yield client
        finally:
            self._close()

    def _close(self) -> None:
        self.bar.hide()
        if self._given.unused:
            self.tell(f"Answers that were not asked for: {', '.join(map(line, self._given.unused))}")

    def _client(self, *, auto: bool, tapped: bool) -> Client:
        options, respondent = self._options, self.respondent
        target: object = options.peer.target
        link: dict[str, Any] = {"headers": options.headers, "cwd": options.peer.folder, "era": options.era}
        if tapped or options.verbose:
            target = Tap(eras.connect(target, **link), say=self.tell, report=self.bar.report)
            link = {}
        return Client(
            target,
            elicit=respondent.elicit,
            elicit_url=respondent.elicit_url,
            sample=respondent.sample,
            roots=respondent.roots,
            auto=auto,
            timeout=options.timeout,
            name="antiphon-call",
            version=__version__,
            on_log=self._log if options.verbose else None,
            **link,
        )

    def _log(self, level: object, data: object, logger: object) -> None:
        about = f" {line(str(logger))}" if logger else ""
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        self.tell(f"  {line(str(level))}{about}: {line(text)}")
