"""``antiphon call`` and ``antiphon resume``: call a tool, a prompt or a resource, and answer what the server asks."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon import __version__, eras
from antiphon.cli import exit_codes
from antiphon.cli.answering import Respondent, read_answers
from antiphon.cli.arguments import meant, prompt_arguments, read_argument, read_json, template_arguments, tool_arguments
from antiphon.cli.files import KEYS, check_new, keep_call, load_call, save_call, with_key
from antiphon.cli.login import auth_for
from antiphon.cli.output import Listing, ProgressBar, Result, listed, show, show_listing
from antiphon.cli.target import (
    ServerTarget,
    era_option,
    header_option,
    option_group,
    read_headers,
    read_target,
    timeout_option,
)
from antiphon.client.client import Client
from antiphon.client.results import Complete, InputNeeded, Pending
from antiphon.errors import CannotAnswer, Refused
from antiphon.escaping import compact, duration, line
from antiphon.rounds.client_loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.rounds.token import generate_key
from antiphon.testing.report.conversation import Step, conversation
from antiphon.testing.transcript import Recorded, turn_of
from antiphon.transports.link import Link, OnNotification
from antiphon.types import JsonObject, Prompt, Root, Tool
from antiphon.uri import Template, is_template
from antiphon.wire.revisions import METHODS, PROGRESS_TOKEN, REVISION

Offer = TypeVar("Offer", Tool, Prompt)

_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER: Final = click.Path(exists=True, file_okay=False, writable=True, path_type=Path)

_shared_options: Final = option_group(
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


@click.command("call", epilog=exit_codes.CALL_TABLE)
@click.argument("target")
@click.argument("name", required=False)
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "json_", metavar="OBJECT", help="The arguments as JSON; KEY=VALUE overrides it.")
@click.option("--prompt", "kind", flag_value="prompt", help="NAME is a prompt.")
@click.option("--resource", "kind", flag_value="resource", help="NAME is the URI of a resource, or a template.")
@era_option
@_shared_options
@click.pass_context
def call_command(
    ctx: click.Context,
    /,
    *,
    target: str,
    name: str | None,
    words: tuple[str, ...],
    json_: str | None,
    kind: str | None,
    header: tuple[str, ...],
    **options: Any,
) -> None:
    """Call the tool NAME of the server at TARGET. Without NAME, list what the server offers.

    TARGET is a URL, a Python file, a command in quotes, or an entry of a configuration: mcp.json:NAME, or HOST:NAME
    with a HOST such as claude-desktop. The tool's input schema determines the type of each value; KEY:=VALUE passes any
    value as JSON. The server's questions are asked in the terminal.

    \b
    antiphon call notes.py
    antiphon call notes.py add title=Milk tags=home,today
    antiphon call http://127.0.0.1:8000/mcp deploy env=prod --answers yes.yaml
    antiphon call "npx some-server" search 'filter:={"year": 2026}'
    antiphon call claude-desktop:notes
    antiphon call notes.py note://1 --resource
    """
    if name is None and (kind or json_):
        raise click.UsageError("--prompt, --resource and --json need a NAME to call")
    server = read_target(target)
    if options["pending"] is not None:
        server = with_key(server, None if os.environ.get(KEYS) else generate_key(os.urandom(32)))
    settings = CallOptions(target=server, headers=read_headers(header, server), **options)
    base = {} if json_ is None else read_json(json_)
    for word in words:
        read_argument(word)
    if settings.pending is not None:
        check_new(settings.pending)
    if name is None:
        show_listing(exit_codes.run(_list(settings)), settings.output)
        return
    outcome = exit_codes.run(_call(settings, kind or "tool", name, words, base))
    if isinstance(outcome, Pending):
        assert settings.pending is not None
        ctx.exit(keep_call(settings.pending, server, outcome))
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exit_codes.TOOL_ERROR)


@click.command("resume", epilog=exit_codes.CALL_TABLE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", metavar="TARGET", help="The server, if it is not where the file says.")
@_shared_options
@click.pass_context
def resume_command(
    ctx: click.Context, /, *, file: Path, target: str | None, header: tuple[str, ...], **options: Any
) -> None:
    """Continue the call that waits in FILE, written by 'antiphon call --pending FILE'.

    Its questions are asked in the terminal, or answered with --answers. FILE holds the current round: it is rewritten
    when the server asks again, kept when the call fails, and removed when the result arrives. With --pending, only the
    questions of FILE are asked, and further ones are written.

    \b
    antiphon resume waiting.json
    antiphon resume waiting.json --answers yes.yaml --pending next.json
    """
    server, pending = load_call(file, target)
    settings = CallOptions(target=server, headers=read_headers(header, server), **options)
    kept = settings.pending or file
    if kept.resolve() != file.resolve():
        check_new(kept)
    outcome = exit_codes.run(_resume(settings, file, pending))
    if isinstance(outcome, Pending):
        code = keep_call(kept, server, outcome)
        if kept.resolve() != file.resolve():
            file.unlink(missing_ok=True)
        ctx.exit(code)
    # The call is done: sending it again could repeat its effects.
    file.unlink(missing_ok=True)
    name = str(pending.params.get("name") or pending.params.get("uri") or "result")
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exit_codes.TOOL_ERROR)


# --- calling ------------------------------------------------------------------------------------------------------


async def _list(options: CallOptions) -> Listing:
    async with CommandClient(options, auto=True).open() as client:
        return await listed(client)


async def _call(
    options: CallOptions, kind: str, name: str, words: tuple[str, ...], base: JsonObject
) -> Result | Pending:
    """Return the result; or, with --pending, the round that waits for answers."""
    caller = CommandClient(options, auto=options.pending is None)
    async with caller.open() as client:
        call = await _prepared(client, kind, name, words, base)
        try:
            return await call
        except InputNeeded as needed:
            return await _continue(caller, needed.pending, ask=lambda _: False, keep=lambda _: None)
        except CannotAnswer:
            if options.pending is None or caller.waits():
                raise
            raise exit_codes.Unanswered(
                f"The server speaks {client.protocol_version}, in which a call cannot wait in a file:"
                " pass --answers FILE"
            ) from None


async def _resume(options: CallOptions, file: Path, pending: Pending) -> Result | Pending:
    caller = CommandClient(options, auto=False, is_resumed=pending.round > 1)
    async with caller.open() as client:
        try:
            # Questions are shown with the server's name. An unreachable server fails before they are asked.
            await client.discover()
        except Refused as fault:
            caller.tell(f"  the server does not identify itself: {line(str(fault))}")
        return await _continue(
            caller,
            pending,
            ask=lambda waits: options.pending is None or waits is pending,
            keep=lambda waits: save_call(file, options.target, waits),
        )


async def _continue(
    caller: "CommandClient", pending: Pending, *, ask: Callable[[Pending], bool], keep: Callable[[Pending], None]
) -> Result | Pending:
    """Return the result, or the first round that ``ask`` refuses and the file of answers does not answer.

    ``keep`` gets every round that the server asks on the way, before it is answered.
    """
    pause = FIRST_PAUSE
    while True:
        if pending.questions:
            responses = await caller.respondent.answer(pending, caller.client.server, ask=ask(pending))
            if responses is None:
                return pending
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)
            responses = {}
        outcome = await caller.client.resume(pending, responses)
        if isinstance(outcome, Complete):
            return outcome.result
        pending = outcome
        keep(pending)


async def _prepared(
    client: Client, kind: str, name: str, words: tuple[str, ...], base: JsonObject
) -> Awaitable[Result]:
    """Return the call, to be awaited, with its arguments converted and checked."""
    match kind:
        case "prompt":
            prompt = await _named(name, "prompt", client.list_prompts())
            return client.get_prompt(name, prompt_arguments(words, base, prompt.arguments))
        case "resource":
            return client.read_resource(_uri(name, words, base))
        case _:
            tool = await _named(name, "tool", client.list_tools())
            return client.call_tool(name, tool_arguments(words, base, tool.input_schema))


async def _named(name: str, noun: str, offers: AsyncIterable[Offer]) -> Offer:
    names: list[str] = []
    async for offer in offers:
        if offer.name == name:
            return offer
        names.append(offer.name)
    known = f"The server's {noun}s: {', '.join(names)}." if names else f"The server has no {noun}s."
    hint = " Read a resource with --resource." if noun == "tool" and ":" in name else ""
    raise click.UsageError(f"There is no {noun} {name!r}{meant(name, names)} {known}{hint}")


def _uri(name: str, words: tuple[str, ...], base: JsonObject) -> str:
    if not is_template(name):
        if words or base:
            raise click.UsageError("A resource takes no arguments, unless it is a template such as note://{id}")
        return name
    try:
        template = Template(name)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    return template.expand(**template_arguments(words, base, template.variables))


# --- the client ---------------------------------------------------------------------------------------------------


class CommandClient:
    """A client that answers from a file or a terminal, shows progress, and prints each round if that is wanted.

    ``auto``: whether it answers by itself, or raises InputNeeded. ``is_resumed``: whether earlier rounds of the call
    were answered before.
    """

    def __init__(self, options: CallOptions, *, auto: bool, is_resumed: bool = False) -> None:
        self._verbose = options.verbose
        self._answers = read_answers(options.answers)
        self._answers.is_resumed = is_resumed
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
