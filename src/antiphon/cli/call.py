"""``antiphon call``: a tool, a prompt or a resource of a server, with its questions asked in the terminal."""

from collections.abc import Awaitable, Callable
from typing import Any

import click

from antiphon.cli import exits, waiting
from antiphon.cli.arguments import prompt_arguments, read_json, read_word, tool_arguments
from antiphon.cli.conversation import go_on, left
from antiphon.cli.listing import Listing, listed, show_listing
from antiphon.cli.options import Desk, Options, shared_options
from antiphon.cli.peer import read_headers, read_peer
from antiphon.cli.show import Result, show
from antiphon.cli.text import line
from antiphon.client.results import InputNeeded, Pending
from antiphon.types import JsonObject
from antiphon.uri import Template, is_template


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
def command(
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
        waiting.check_new(settings.pending)
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
