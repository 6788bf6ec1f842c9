"""``antiphon init-tests``: a suite to start with, from what a server offers."""

import os
import re
import sys
from pathlib import Path
from typing import Final

import click

from antiphon.cli import exit_codes as exits
from antiphon.cli.target import read_headers, read_peer
from antiphon.testing.answers import Script
from antiphon.testing.outcome import Place
from antiphon.testing.suite.model import Target
from antiphon.testing.suite.server import SuiteServer, Unstarted
from antiphon.testing.suite.starter import starting_suite

_APP: Final = re.compile(r"[\w.]+:[\w.]+|.+\.py:[\w.]+")
_OURS: Final = re.compile(rb"^\s*(from|import)\s+antiphon\b", re.MULTILINE)


@click.command("init-tests")
@click.argument("target")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Where to write it; else it is printed.",
)
@click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="An HTTP header to send.")
@click.option("--era", type=click.Choice(["auto", "modern", "legacy"]), default="auto", help="The protocol's era.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def init_tests_command(*, target: str, output: Path | None, header: tuple[str, ...], era: str, force: bool) -> None:
    """Write a suite of tests for the server at TARGET: one for each tool, prompt and resource.

    TARGET is a URL, a Python file, package.module:app, or a command in quotes.

    \b
    antiphon init-tests notes.py -o notes.mcp.yaml
    antiphon init-tests "npx some-server" -o some.mcp.yaml
    antiphon test notes.mcp.yaml
    """
    if output is not None and output.exists() and not force:
        raise click.UsageError(f"{output} is there already: --force writes over it")
    folder = (output or Path("suite.mcp.yaml")).absolute().parent
    folder.mkdir(parents=True, exist_ok=True)
    server = _server(target, header, folder)
    text = exits.run(_made(server, folder, era, output))
    if output is None:
        sys.stdout.write(text)
        return
    output.write_text(text, encoding="utf-8")
    click.echo(f"Wrote {output}. Run it with  antiphon test {output}", err=True)


async def _made(server: dict[str, object], folder: Path, era: str, output: Path | None) -> str:
    file = output or Path("suite.mcp.yaml")
    try:
        async with SuiteServer(_target(server, folder, file), era=era) as started:
            started.client.prepare(Script(), timeout=60)
            return await starting_suite(started.client, server, file=str(file))
    except Unstarted as fault:
        raise exits.Failed("\n".join(filter(None, [str(fault), fault.log]))) from None


def _target(server: dict[str, object], folder: Path, file: Path) -> Target:
    place = Place(file=file, line=1, column=1)
    command = server.get("command")
    headers = server.get("headers")
    return Target(
        place=place,
        command=tuple(command) if isinstance(command, list) else (),
        url=str(server.get("url", "")),
        app=str(server.get("app", "")),
        headers=headers if isinstance(headers, dict) else {},
        # The folder of the suite need not be there yet.
        cwd=Path(os.path.normpath(folder / str(server.get("cwd", "")))),
    )


def _server(text: str, header: tuple[str, ...], folder: Path) -> dict[str, object]:
    """What a suite in a folder says of the server that the TARGET means."""
    file = Path(text)
    if _APP.fullmatch(text) and "://" not in text:
        place, _, name = text.rpartition(":")
        return {"app": f"{_seen_from(folder, Path(place))}:{name}" if place.endswith(".py") else text}
    if text.endswith(".py") and file.is_file() and _OURS.search(file.read_bytes()):
        return {"app": _seen_from(folder, file)}
    peer = read_peer(text)
    headers = read_headers(header, peer)
    if peer.command is None:
        return {"url": peer.text, **({"headers": headers} if headers else {})}
    if text.endswith(".py") and file.is_file():
        return {"command": ["python", _seen_from(folder, file)]}
    here = _seen_from(folder, Path(peer.folder or Path.cwd()))
    return {"command": list(peer.command), **({"cwd": here} if here != "." else {})}


def _seen_from(folder: Path, path: Path) -> str:
    return Path(os.path.relpath(path.absolute(), folder)).as_posix()
