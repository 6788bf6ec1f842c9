"""``antiphon call`` and ``antiphon resume``: call a tool, a prompt or a resource, and answer what the server asks."""

import asyncio
import os
from collections.abc import AsyncIterable, Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from antiphon.cli import exit_codes
from antiphon.cli.arguments import meant, prompt_arguments, read_argument, read_json, template_arguments, tool_arguments
from antiphon.cli.files import replace
from antiphon.cli.output import Listing, Result, listed, show, show_listing
from antiphon.cli.target import (
    CallOptions,
    CommandClient,
    ServerTarget,
    era_option,
    read_headers,
    read_target,
    shared_options,
)
from antiphon.client.client import Client
from antiphon.client.results import Complete, InputNeeded, Pending
from antiphon.errors import CannotAnswer, Refused
from antiphon.escaping import counted, line, visible_json
from antiphon.rounds.loop import FIRST_PAUSE, LAST_PAUSE
from antiphon.rounds.token import generate_key
from antiphon.types import JsonObject, Prompt, Tool
from antiphon.uri import Template, is_template

Offer = TypeVar("Offer", Tool, Prompt)

_KEYS: Final = "ANTIPHON_KEYS"
_OTHERS: Final = 0o077
"""The file permissions of users other than the owner."""


@click.command("call", epilog=exit_codes.CALL_TABLE)
@click.argument("target")
@click.argument("name", required=False)
@click.argument("words", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--json", "json_", metavar="OBJECT", help="The arguments as JSON; KEY=VALUE overrides it.")
@click.option("--prompt", "kind", flag_value="prompt", help="NAME is a prompt.")
@click.option("--resource", "kind", flag_value="resource", help="NAME is the URI of a resource, or a template.")
@era_option
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
        server = _with_key(server, None if os.environ.get(_KEYS) else generate_key(os.urandom(32)))
    settings = CallOptions(target=server, headers=read_headers(header, server), **options)
    base = {} if json_ is None else read_json(json_)
    for word in words:
        read_argument(word)
    if settings.pending is not None:
        _check_new(settings.pending)
    if name is None:
        show_listing(exit_codes.run(_list(settings)), settings.output)
        return
    outcome = exit_codes.run(_call(settings, kind or "tool", name, words, base))
    if isinstance(outcome, Pending):
        assert settings.pending is not None
        ctx.exit(_keep(settings.pending, server, outcome))
    if show(outcome, name=name, output=settings.output, folder=settings.save):
        ctx.exit(exit_codes.TOOL_ERROR)


@click.command("resume", epilog=exit_codes.CALL_TABLE)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--target", metavar="TARGET", help="The server, if it is not where the file says.")
@shared_options
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
    server, pending = _load(file, target)
    settings = CallOptions(target=server, headers=read_headers(header, server), **options)
    kept = settings.pending or file
    if kept.resolve() != file.resolve():
        _check_new(kept)
    outcome = exit_codes.run(_resume(settings, file, pending))
    if isinstance(outcome, Pending):
        code = _keep(kept, server, outcome)
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
    caller = CommandClient(options, auto=False)
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
            keep=lambda waits: _save(file, options.target, waits),
        )


async def _continue(
    caller: CommandClient, pending: Pending, *, ask: Callable[[Pending], bool], keep: Callable[[Pending], None]
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


# --- files of waiting calls ---------------------------------------------------------------------------------------


class _KeptQuestion(msgspec.Struct):
    method: str
    params: JsonObject = {}


class WaitingCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that waits for answers, as it is kept in a file."""

    target: str
    pending: JsonObject
    cwd: str | None = None
    """The folder that a command is started in."""
    key: str | None = None
    """The key that was made for a command, which without one has another each time it is started."""

    def call(self) -> Pending:
        call = Pending.from_json(msgspec.json.encode(self.pending))
        msgspec.convert(call.questions, dict[str, _KeptQuestion])
        return call


def _check_new(path: Path) -> None:
    """Raise a usage error if a waiting call could not be written here, before anything is called."""
    folder = path.absolute().parent
    if path.exists():
        raise click.UsageError(f"{path} exists: resume the call that waits there, or choose another file")
    if not folder.is_dir():
        raise click.UsageError(f"There is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"Cannot write to {folder}")


def _keep(path: Path, target: ServerTarget, pending: Pending) -> int:
    """Save a waiting call, print its questions, and return the exit code."""
    _save(path, target, pending)
    click.echo(f"The call waits in {path} for {counted(len(pending.questions), 'answer')}:", err=True)
    for key, request in pending.questions.items():
        message = (request.get("params") or {}).get("message") or request.get("method")
        click.echo(f"  {line(key)}: {line(str(message))}", err=True)
    click.echo(f"Continue with  antiphon resume {path}", err=True)
    return exit_codes.WAITING


def _save(path: Path, target: ServerTarget, pending: Pending) -> None:
    """Write the file, completely or not at all, readable by the owner only: its token is a bearer credential."""
    waiting = WaitingCall(
        target=target.source or target.text,
        cwd=target.folder,
        key=target.key,
        pending=msgspec.to_builtins(pending),
    )
    path = path.absolute()
    try:
        replace(path, f"{visible_json(waiting)}\n".encode())
    except OSError as fault:
        raise exit_codes.Failed(f"Cannot write the waiting call to {path}: {fault.strerror}") from None


def _load(path: Path, target: str | None) -> tuple[ServerTarget, Pending]:
    """Return the call that waits in a file, and its server: ``target``, else the one in the file."""
    try:
        waiting = msgspec.json.decode(path.read_bytes(), type=WaitingCall)
        pending = waiting.call()
    except OSError as fault:
        raise click.UsageError(f"Cannot read {path}: {fault.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as fault:
        raise click.UsageError(f"{path} holds no waiting call: {fault}") from None
    if target is not None:
        return _with_key(read_target(target), waiting.key), pending
    server = _with_key(read_target(waiting.target, waiting.cwd), waiting.key)
    if server.command is not None and not _is_ours(path):
        raise click.UsageError(
            f"{path} starts the command {waiting.target!r}, but other users may have written it:"
            " name the server with --target, or chmod 600 the file if you trust it"
        )
    return server, pending


def _with_key(server: ServerTarget, key: str | None) -> ServerTarget:
    """Return a target whose command gets a key for its tokens, unless its configuration has one."""
    if server.command is None or key is None or _KEYS in server.env:
        return server
    return msgspec.structs.replace(server, key=key, env={**server.env, _KEYS: key})


def _is_ours(path: Path) -> bool:
    """Whether only this user can have written the file."""
    if os.name == "nt":
        return True
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
