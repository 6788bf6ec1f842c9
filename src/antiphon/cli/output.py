"""Print results: text unchanged, structured content as a table, images and audio into files.

Also what a server offers, and the progress of a call.
"""

import io
import os
import re
import sys
from collections.abc import Awaitable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from antiphon.client.client import Client, Discovery
from antiphon.client.results import CallResult, PromptReply, ReadResult
from antiphon.errors import Refused
from antiphon.escaping import line, visible, visible_json
from antiphon.testing.report.conversation import ShownField, described_fields, repeats
from antiphon.types import (
    Audio,
    Contents,
    EmbeddedResource,
    Image,
    Implementation,
    JsonObject,
    MessageContent,
    Prompt,
    PromptArgument,
    Resource,
    ResourceLink,
    ResourceTemplate,
    Text,
    Tool,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

T = TypeVar("T")

Result = CallResult | PromptReply | ReadResult
Offer = tuple[str, str | None, list[ShownField]]
"""A name, its description, and its arguments."""

_METHOD_NOT_FOUND: Final = -32601

WIDE: Final = 160
"""The columns of a table that is not printed to a terminal."""
_LONGEST_NAME: Final = 60
_EXTENSIONS: Final = {"image/jpeg": ".jpg", "audio/wav": ".wav", "audio/mpeg": ".mp3", "text/plain": ".txt"}


def show(result: Result, *, name: str, output: str, folder: Path) -> bool:
    """Print a result, and return whether the tool says that it is an error."""
    escape_unencodable()
    if output == "json":
        click.echo(as_json(result))
    else:
        ResultPrinter(name, folder).print(result)
    return isinstance(result, CallResult) and result.is_error


def escape_unencodable() -> None:
    """Print characters that stdout cannot encode as escapes, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def as_json(result: Result) -> str:
    """Return a result as JSON, with the names of the protocol."""
    fields: JsonObject = msgspec.to_builtins(result)
    left_out = {"rounds", *(name for name in ("isError", "description", "_meta") if not fields.get(name))}
    return visible_json({name: value for name, value in fields.items() if name not in left_out and value is not None})


def on_stderr() -> "Console":
    """Return a console for messages: stdout is for results only."""
    from rich.console import Console  # 50 ms that plain text does not need

    return Console(stderr=True, highlight=False)


class ResultPrinter:
    """Prints the parts of one result. Names files after what was called."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name = name
        self._folder = folder

    def print(self, result: Result) -> None:
        match result:
            case CallResult(is_error=True):
                for block in result.content:
                    self._block(block, is_error=True)
            case CallResult():
                self._call(result)
            case PromptReply():
                for message in result.messages:
                    say(f"{message.role}:", bold=True)
                    for part in message.content if isinstance(message.content, list) else [message.content]:
                        self._block(part)
            case ReadResult():
                for item in result.contents:
                    self._contents(item)

    def _call(self, result: CallResult) -> None:
        for block in result.content:
            if not (isinstance(block, Text) and _repeats(block.text, result.structured)):
                self._block(block)
        if result.structured is not None:
            structured(result.structured)

    def _block(self, block: "str | MessageContent", *, is_error: bool = False) -> None:
        match block:
            case str():
                say(block, is_error=is_error)
            case Text():
                say(block.text, is_error=is_error)
            case Image() | Audio():
                self._save(block.data, block.mime_type)
            case EmbeddedResource():
                self._contents(block.resource)
            case ResourceLink():
                about = f" ({line(block.mime_type)})" if block.mime_type else ""
                say(f"{line(block.title or block.name)}: {block.uri}{about}", is_error=is_error)
            case _:
                say(visible_json(block), is_error=is_error)

    def _contents(self, item: Contents) -> None:
        if item.text is not None:
            say(item.text)
        elif item.blob is not None:
            self._save(item.blob, item.mime_type or "application/octet-stream")

    def _save(self, data: bytes, mime_type: str) -> None:
        try:
            with _new_file(self._folder, self._name, _extension(mime_type)) as file:
                file.write(data)
        except OSError as fault:
            raise click.ClickException(f"Cannot save a file of {len(data)} bytes: {fault}") from None
        click.echo(f"Saved {file.name} ({line(mime_type)}, {len(data)} bytes)")


def say(text: str, *, is_error: bool = False, bold: bool = False) -> None:
    """Print text to stdout, or in red to stderr. On a terminal, control sequences of the server are escaped."""
    stream = sys.stderr if is_error else sys.stdout
    shown = visible(text) if stream.isatty() else text
    colors = stream.isatty() and not os.environ.get("NO_COLOR")
    styled = click.style(shown, fg="red" if is_error else None, bold=bold or None) if colors else shown
    click.echo(styled, err=is_error, nl=not shown.endswith("\n"))


# --- structured content -------------------------------------------------------------------------------------------


def structured(value: Any) -> None:
    """Print a value as a table if it fits one, else as JSON."""
    if isinstance(value, dict) and len(value) == 1 and _is_rows(rows := next(iter(value.values()))):
        value = rows
    if _is_rows(value):
        _print(_rows(value))
    elif isinstance(value, dict) and value and all(map(_is_flat, value.values())):
        _print(_fields(value))
    elif isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        say("\n".join(value))
    elif isinstance(value, str):
        say(value)
    else:
        say(visible_json(value))


def _print(table: "Table") -> None:
    from rich.console import Console  # 50 ms that plain text does not need

    console = Console(highlight=False)
    console.print(table, width=None if console.is_terminal else WIDE)


def _rows(rows: Any) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for column in columns:
        numbers = all(isinstance(row.get(column, 0), int | float) for row in rows)
        table.add_column(_cell(column), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column, "")) for column in columns))
    return table


def _fields(record: Mapping[str, Any]) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for key, value in record.items():
        table.add_row(_cell(key), _cell(value))
    return table


def _cell(value: object) -> Any:
    from rich.text import Text as Styled  # not interpreted as markup: the text is a server's

    return Styled(visible(value) if isinstance(value, str) else msgspec.json.encode(value).decode())


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) and _is_record(row) for row in value)


def _is_record(row: Mapping[str, object]) -> bool:
    return bool(row) and all(map(_is_flat, row.values()))


def _is_flat(value: object) -> bool:
    return value is None or isinstance(value, str | int | float)


def _repeats(text: str, value: object) -> bool:
    """Whether a text block repeats the structured content, or a part of it."""
    return value is not None and (repeats(text, value) or (isinstance(value, list) and text in value))


# --- files --------------------------------------------------------------------------------------------------------


def _new_file(folder: Path, name: str, extension: str) -> Any:
    """Open a file that did not exist before."""
    for candidate in _names(name):
        try:
            return (folder / f"{candidate}{extension}").open("xb")
        except FileExistsError:
            continue
    raise FileExistsError(f"{name}{extension} exists, and so do its numbered names")


def _names(name: str) -> Iterator[str]:
    # The name may come from a server: it must not lead out of the folder.
    safe = re.sub(r"[^\w-]+", "-", name).strip("-")[:_LONGEST_NAME] or "result"
    yield safe
    for number in range(2, 10_000):
        yield f"{safe}-{number}"


def _extension(mime_type: str) -> str:
    import mimetypes  # only saving needs it

    kind = mime_type.partition(";")[0].strip().lower()
    return _EXTENSIONS.get(kind) or mimetypes.guess_extension(kind) or ".bin"


# --- what a server offers -----------------------------------------------------------------------------------------


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
    tools: list[Offer] = [(t.name, t.description, list(described_fields(t.input_schema))) for t in listing.tools]
    _section(console, width, "Tools", tools)
    prompts: list[Offer] = [(p.name, p.description, list(map(_described, p.arguments))) for p in listing.prompts]
    _section(console, width, "Prompts", prompts)
    places: list[Offer] = [(r.uri, r.description or r.title or r.name, []) for r in listing.resources]
    places += [(r.uri_template, r.description or r.title or r.name, []) for r in listing.resource_templates]
    _section(console, width, "Resources", places)
    if not (tools or prompts or places):
        console.print("The server offers nothing.")


async def _if_known(wanted: Awaitable[T], otherwise: T) -> T:
    """Await a list; return ``otherwise`` if the server does not know the method."""
    try:
        return await wanted
    except Refused as fault:
        if fault.code != _METHOD_NOT_FOUND:
            raise
        return otherwise


def _head(console: "Console", listing: Listing) -> None:
    from rich.text import Text as Styled

    if listing.server is not None:
        name = listing.server.title or listing.server.name
        console.print(Styled.assemble((line(name), "bold"), f" {line(listing.server.version)}"))
    if listing.instructions:
        console.print(Styled(visible(listing.instructions)))


def _section(console: "Console", width: int, title: str, offers: list[Offer]) -> None:
    from rich.text import Text as Styled

    if not offers:
        return
    console.print()
    console.print(Styled(title, style="bold underline"))
    for name, description, arguments in offers:
        summary = line((description or "").partition("\n\n")[0])
        head = Styled.assemble("  ", (line(name), "bold cyan"), f"  {summary}" if summary else "")
        console.print(head, width=width)
        if arguments:
            console.print(_arguments(arguments), width=width)


def _arguments(arguments: list[ShownField]) -> "Table":
    from rich.table import Table
    from rich.text import Text as Styled

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(width=2)
    for _ in range(3):
        table.add_column(overflow="fold")
    for each in arguments:
        about = Styled(line(each.about), style="dim")
        table.add_row("", Styled(f"  {line(each.name)}"), about, Styled(line(each.description)))
    return table


def _described(argument: PromptArgument) -> ShownField:
    about = "required" if argument.required else ""
    return ShownField(name=argument.name, about=about, description=argument.description or "")


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
