"""List what a server offers, and the arguments that it takes."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, TypeVar

import click
import msgspec

from antiphon.cli.output import escape_unencodable
from antiphon.client.client import Client, Discovery
from antiphon.errors import Refused
from antiphon.testing.report.escaping import line, visible, visible_json
from antiphon.types import Implementation, JsonObject, Prompt, Resource, ResourceTemplate, Tool

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

T = TypeVar("T")

Row = tuple[str, str, str]
"""An argument: name, type, description."""
Offer = tuple[str, str | None, list[Row]]
"""A name, its description, and its arguments."""

_METHOD_NOT_FOUND: Final = -32601


class Listing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything that a server lists."""

    server: Implementation | None
    instructions: str | None
    tools: list[Tool]
    prompts: list[Prompt]
    resources: list[Resource]
    resource_templates: list[ResourceTemplate]


async def listed(client: Client) -> Listing:
    found = await _if_known(client.discover(), Discovery())
    return Listing(
        instructions=found.instructions,
        tools=await _if_known(client.list_tools(), []),
        prompts=await _if_known(client.list_prompts(), []),
        resources=await _if_known(client.list_resources(), []),
        resource_templates=await _if_known(client.list_resource_templates(), []),
        server=client.server,
    )


def show_listing(listing: Listing, output: str) -> None:
    escape_unencodable()
    if output == "json":
        click.echo(visible_json(listing))
        return
    from rich.console import Console  # 50 ms that plain text does not need

    console = Console(highlight=False)
    width = console.width if console.is_terminal else 120
    _head(console, listing)
    tools: list[Offer] = [(t.name, t.description, _arguments(t.input_schema)) for t in listing.tools]
    _section(console, width, "Tools", tools)
    prompts: list[Offer] = [(p.name, p.description, _prompt_arguments(p)) for p in listing.prompts]
    _section(console, width, "Prompts", prompts)
    places: list[Offer] = [(r.uri, r.description or r.title or r.name, []) for r in listing.resources]
    places += [(r.uri_template, r.description or r.title or r.name, []) for r in listing.resource_templates]
    _section(console, width, "Resources", places)
    if not (tools or prompts or places):
        console.print("The server offers nothing.")


def _type_name(schema: object) -> str:
    """Describe a schema's type in a few words."""
    if not isinstance(schema, dict):
        return "any"
    if isinstance(options := schema.get("enum"), list):
        return " | ".join(line(str(option)) for option in options[:6]) + (" | ..." if len(options) > 6 else "")
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_name(schema.get('items'))}"
    if isinstance(kind, str):
        return line(kind)
    if isinstance(kind, list):
        return " or ".join(line(str(one)) for one in kind)
    choices = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(choices, list):
        return " or ".join(dict.fromkeys(_type_name(choice) for choice in choices))
    return "object" if "$ref" in schema or "properties" in schema else "any"


async def _if_known(wanted: Awaitable[T], otherwise: T) -> T:
    """Await a list; return ``otherwise`` if the server does not know the method."""
    try:
        return await wanted
    except Refused as fault:
        if fault.code != _METHOD_NOT_FOUND:
            raise
        return otherwise


def _head(console: "Console", listing: Listing) -> None:
    from rich.text import Text

    if listing.server is not None:
        name = listing.server.title or listing.server.name
        console.print(Text.assemble((line(name), "bold"), f" {line(listing.server.version)}"))
    if listing.instructions:
        console.print(Text(visible(listing.instructions)))


def _section(console: "Console", width: int, title: str, offers: list[Offer]) -> None:
    from rich.text import Text

    if not offers:
        return
    console.print()
    console.print(Text(title, style="bold underline"))
    for name, description, arguments in offers:
        summary = line((description or "").partition("\n\n")[0])
        head = Text.assemble("  ", (line(name), "bold cyan"), f"  {summary}" if summary else "")
        console.print(head, width=width)
        if arguments:
            console.print(_table(arguments), width=width)


def _table(arguments: list[Row]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=2)
    for _ in range(3):
        table.add_column(overflow="fold")
    for name, kind, description in arguments:
        table.add_row("", Text(f"  {name}"), Text(kind, style="dim"), Text(description))
    return table


def _arguments(schema: JsonObject) -> list[Row]:
    properties = schema.get("properties")
    required = schema.get("required") or []
    if not isinstance(properties, dict):
        return []
    return [(line(name), _kind(part, required=name in required), _about(part)) for name, part in properties.items()]


def _prompt_arguments(prompt: Prompt) -> list[Row]:
    return [(line(a.name), "required" if a.required else "", line(a.description or "")) for a in prompt.arguments]


def _kind(schema: object, *, required: bool) -> str:
    kind = _type_name(schema)
    if required:
        return f"{kind}, required"
    default = schema.get("default") if isinstance(schema, dict) else None
    return kind if default is None else f"{kind} = {line(msgspec.json.encode(default).decode())}"


def _about(schema: object) -> str:
    return line(str(schema.get("description") or "")) if isinstance(schema, dict) else ""
