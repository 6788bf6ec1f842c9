"""The options that calling and resuming share, and the client that they make."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon import __version__, eras
from antiphon.cli.answers import AnswerFile, read_answers
from antiphon.cli.bar import Bar
from antiphon.cli.peer import Peer
from antiphon.cli.respondent import Respondent
from antiphon.cli.tap import Tap
from antiphon.cli.text import line
from antiphon.client.client import Client
from antiphon.types import Root

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
