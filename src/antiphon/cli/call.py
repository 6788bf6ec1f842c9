"""``antiphon call``: a tool, a prompt or a resource of a server, with its questions asked in the terminal."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from antiphon.cli import exit_codes as exits
from antiphon.cli.arguments import prompt_arguments, read_json, read_word, tool_arguments
from antiphon.cli.exit_codes import Failed
from antiphon.cli.listing import Listing, listed, show_listing
from antiphon.cli.output import Result, line, show, visible
from antiphon.cli.target import Desk, Options, Peer, read_headers, read_peer, shared_options
from antiphon.client.results import Complete, InputNeeded, Pending
from antiphon.errors import Refused
from antiphon.rounds.loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.types import JsonObject
from antiphon.uri import Template, is_template

# Waiting calls in files: the Pending, and where its server is.


_OTHERS: Final = 0o077
"""The permissions of everybody but the owner."""


class _Question(msgspec.Struct):
    method: str
    params: JsonObject = {}


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits, as it is kept."""

    target: str
    pending: JsonObject
    cwd: str | None = None
    """The folder that a command is started in."""

    def call(self) -> Pending:
        call = Pending.from_json(msgspec.json.encode(self.pending))
        msgspec.convert(call.questions, dict[str, _Question])
        return call


def check_new(path: Path) -> None:
    """A usage error if a waiting call could not be written here; better said before the call than after it."""
    if path.exists():
        raise click.UsageError(f"{path} exists: resume the call that waits there, or choose another file")
    if not path.absolute().parent.is_dir():
        raise click.UsageError(f"There is no folder {path.absolute().parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise click.UsageError(f"Nothing can be written to {path.absolute().parent}")


def write(path: Path, peer: Peer, pending: Pending) -> None:
    """Write the file at once or not at all. The token in it is a bearer credential: nobody else may read it."""
    kept = Waiting(target=peer.text, cwd=peer.folder, pending=msgspec.to_builtins(pending))
    path = path.absolute()
    try:
        _replace(path, msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")
    except OSError as fault:
        raise Failed(f"The waiting call cannot be written to {path}: {fault.strerror}") from None


def _replace(path: Path, content: bytes) -> None:
    # mkstemp gives mode 0600.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read(path: Path, target: str | None) -> tuple[Peer, Pending]:
    """The call that waits in a file, and its server; ``target`` takes the place of the one in the file."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Waiting)
        pending = kept.call()
    except OSError as fault:
        raise click.UsageError(f"Cannot read {path}: {fault.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as fault:
        raise click.UsageError(f"{path} holds no waiting call: {fault}") from None
    if target is not None:
        return read_peer(target), pending
    peer = read_peer(kept.target, kept.cwd)
    if peer.command is not None and not _is_ours(path):
        raise click.UsageError(
            f"{path} would start a command, {visible(kept.target)!r}, but it is not yours alone to write:"
            " name the server yourself with --target, or chmod 600 the file if you trust it"
        )
    return peer, pending


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have put the command there."""
    if os.name == "nt":
        return True
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


# The rounds of a call that waits: answered here, or left for another time.


async def go_on(
    desk: Desk, pending: Pending, *, ask: Callable[[Pending], bool], keep: Callable[[Pending], None]
) -> Result | Pending:
    """To the result, or to a round whose questions ``ask`` does not want put to a person.

    ``keep`` gets every round that the server asks on the way, before anybody is asked.
    """
    pause = FIRST_PAUSE
    while True:
        if pending.questions:
            if not desk.respondent.knows(pending) and not ask(pending):
                return pending
            responses = await desk.respondent.answer(pending, desk.client.server)
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)
            responses = {}
        outcome = await desk.client.resume(pending, responses)
        if isinstance(outcome, Complete):
            return outcome.result
        pending = outcome
        keep(pending)


def left(path: Path | None, peer: Peer, pending: Pending) -> int:
    """Keep a call that waits, and say what it waits for; its exit code."""
    assert path is not None
    write(path, peer, pending)
    count = len(pending.questions)
    click.echo(f"The call waits in {path} for {count} answer{'' if count == 1 else 's'}:", err=True)
    for key, request in pending.questions.items():
        message = (request.get("params") or {}).get("message") or request.get("method")
        click.echo(f"  {line(key)}: {line(str(message))}", err=True)
    click.echo(f"Go on with  antiphon resume {path}", err=True)
    return exits.WAITING


@click.command("call", epilog=exits.TABLE)
@click.argument("target")
@click.argument("name", required=False)
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "json_", metavar="OBJECT", help="The arguments as JSON; KEY=VALUE goes before it.")
@click.option("--prompt", "kind", flag_value="prompt", help="NAME is a prompt.")
@click.option("--resource", "kind", flag_value="resource", help="NAME is the URI of a resource, or a template.")
@click.option("--era", metavar="ERA", default="auto", show_default=True, help="The protocol: auto, or 2026-07-28.")
@shared_options
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
    """Call the tool NAME of the server at TARGET; without NAME, list what it offers.

    TARGET is a URL, a Python file, or a command in quotes. Values are read as the tool's input schema says; KEY:=VALUE
    gives any value as JSON. What the server asks is asked here.

    \b
    antiphon call notes.py
    antiphon call notes.py add title=Milk tags=home,today
    antiphon call http://127.0.0.1:8000/mcp deploy env=prod --answers yes.yaml
    antiphon call "npx some-server" search 'filter:={"year": 2026}'
    antiphon call notes.py note://1 --resource
    """
    if name is None and (kind or json_):
        raise click.UsageError("--prompt, --resource and --json need a NAME to call")
    peer = read_peer(target)
    settings = Options(peer=peer, headers=read_headers(header, peer), **options)
    base = {} if json_ is None else read_json(json_)
    for word in words:
        read_word(word)
    if settings.pending is not None:
        check_new(settings.pending)
    if name is None:
        show_listing(exits.run(_listed(settings)), settings.output)
        return
    outcome = exits.run(_called(settings, kind or "tool", name, words, base))
    if isinstance(outcome, Pending):
        ctx.exit(left(settings.pending, peer, outcome))
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exits.TOOL_ERROR)


async def _listed(options: Options) -> Listing:
    desk = Desk(options, auto=True)
    async with desk.open() as client:
        return await listed(client)


async def _called(options: Options, kind: str, name: str, words: tuple[str, ...], base: JsonObject) -> Result | Pending:
    """The result; or, with --pending, the round that is to be kept instead of asked."""
    desk = Desk(options, auto=options.pending is None, tapped=options.pending is not None)
    async with desk.open():
        call = await _prepared(desk, kind, name, words, base)
        try:
            return await call()
        except InputNeeded as needed:
            return await go_on(desk, needed.pending, ask=lambda _: False, keep=lambda _: None)


async def _prepared(
    desk: Desk, kind: str, name: str, words: tuple[str, ...], base: JsonObject
) -> Callable[[], Awaitable[Result]]:
    """The call with its arguments, converted and checked."""
    match kind:
        case "prompt":
            filled = await _prompt_arguments(desk, name, words, base)
            return lambda: desk.client.get_prompt(name, filled, progress=desk.bar.report)
        case "resource":
            uri = _uri(name, words, base)
            return lambda: desk.client.read_resource(uri, progress=desk.bar.report)
        case _:
            arguments = await _tool_arguments(desk, name, words, base)
            return lambda: desk.client.call_tool(name, arguments, progress=desk.bar.report)


async def _tool_arguments(desk: Desk, name: str, words: tuple[str, ...], base: JsonObject) -> JsonObject:
    names: list[str] = []
    async for tool in desk.client.list_tools():
        if tool.name == name:
            return tool_arguments(words, base, tool.input_schema)
        names.append(tool.name)
    hint = " Read a resource with --resource." if ":" in name else ""
    raise click.UsageError(f"There is no tool {name!r}. {_known('tools', names)}{hint}")


async def _prompt_arguments(desk: Desk, name: str, words: tuple[str, ...], base: JsonObject) -> dict[str, str]:
    names: list[str] = []
    async for prompt in desk.client.list_prompts():
        if prompt.name == name:
            return prompt_arguments(words, base, prompt.arguments)
        names.append(prompt.name)
    raise click.UsageError(f"There is no prompt {name!r}. {_known('prompts', names)}")


def _known(noun: str, names: list[str]) -> str:
    return f"The server's {noun}: {', '.join(map(line, names))}." if names else f"The server has no {noun}."


def _uri(name: str, words: tuple[str, ...], base: JsonObject) -> str:
    if not is_template(name):
        if words or base:
            raise click.UsageError("A resource takes no arguments, unless it is a template such as note://{id}")
        return name
    try:
        template = Template(name)
    except ValueError as fault:
        raise click.UsageError(str(fault)) from None
    schema: JsonObject = {
        "properties": {variable: {"type": "string"} for variable in template.variables},
        "required": list(template.variables),
        "additionalProperties": False,
    }
    return template.expand(**tool_arguments(words, base, schema))


# ``antiphon resume``: goes on with a call that waits in a file.


@click.command("resume", epilog=exits.TABLE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", metavar="TARGET", help="Where the server is, if no longer where the file says.")
@shared_options
@click.pass_context
def resume_command(
    ctx: click.Context, /, *, file: Path, target: str | None, header: tuple[str, ...], **options: Any
) -> None:
    """Go on with the call that waits in FILE, which 'antiphon call --pending FILE' wrote.

    Its questions are asked here, or answered with --answers. FILE always holds the round that waits: it changes when
    the server asks anew, stays when anything fails, and is removed when the call has come to its result. With
    --pending, only the questions of FILE are asked, and further ones are written.

    \b
    antiphon resume waiting.json
    antiphon resume waiting.json --answers yes.yaml --pending next.json
    """
    peer, pending = read(file, target)
    settings = Options(peer=peer, headers=read_headers(header, peer), **options)
    if settings.pending is not None and not _same(settings.pending, file):
        check_new(settings.pending)
    outcome = exits.run(_resumed(settings, file, pending))
    if isinstance(outcome, Pending):
        ctx.exit(_left(settings, file, outcome))
    # The call is done: sent again, it might do twice what it did.
    file.unlink(missing_ok=True)
    name = str(pending.params.get("name") or pending.params.get("uri") or "result")
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exits.TOOL_ERROR)


async def _resumed(options: Options, file: Path, pending: Pending) -> Result | Pending:
    desk = Desk(options, auto=False, tapped=True)
    async with desk.open() as client:
        try:
            # Who asks, before anybody is asked; and whether anybody is there to be answered.
            await client.discover()
        except Refused as fault:
            desk.tell(f"  the server does not say who it is: {line(str(fault))}")
        return await go_on(
            desk,
            pending,
            ask=lambda waits: options.pending is None or waits is pending,
            keep=lambda waits: write(file, options.peer, waits),
        )


def _left(options: Options, file: Path, pending: Pending) -> int:
    path = options.pending or file
    code = left(path, options.peer, pending)
    if not _same(path, file):
        file.unlink(missing_ok=True)
    return code


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
