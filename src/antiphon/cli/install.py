"""``antiphon install`` and ``uninstall``: write a server into the configuration file of a host, or take it out."""

import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from antiphon.cli import exit_codes
from antiphon.cli.files import OWNER_ONLY, replace
from antiphon.cli.serve import load_server, parse_server
from antiphon.cli.target import ServerTarget, header_option, option_group, read_headers, read_target
from antiphon.config import jsonc
from antiphon.config.hosts import HOSTS, HostProgram, entry, user_file
from antiphon.config.servers import here, read_text, split
from antiphon.errors import ConfigUnusable
from antiphon.escaping import visible
from antiphon.types import JsonObject

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PASSING: Final = re.compile(r"(archive|builds|environments)-v\d+")
"""The folders in the cache of uv in which it keeps environments that it may remove."""
_SHARED: Final = 0o644

_shared_options: Final = option_group(
    click.option("--in", "host", required=True, type=click.Choice(list(HOSTS)), help="The program to configure."),
    click.option("--user", "scope", flag_value="user", default=True, help="Your own configuration. The default."),
    click.option("--project", "scope", flag_value="project", help="The configuration of the project in this folder."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask."),
)


@click.command("install", epilog=exit_codes.INSTALL_TABLE)
@click.argument("target")
@_shared_options
@click.option("--name", help="Default: the name of the file, the package, the URL's host, or the command.")
@click.option("--env", metavar="KEY=VALUE", multiple=True, help="A variable for the server, written as plain text.")
@header_option
@click.option("--print", "prints", is_flag=True, help="Print the entry, and write nothing.")
def install_command(
    *,
    target: str,
    host: str,
    scope: str,
    yes: bool,
    name: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    prints: bool,
) -> None:
    """Write the server at TARGET into the configuration file of a program that uses MCP servers.

    TARGET is a Python file, a URL, or a command in quotes. The entry is shown before it is written. Everything else in
    the file stays as it is; a copy of the file is kept beside it.

    \b
    antiphon install notes.py --in claude-desktop
    antiphon install notes.py --in vscode --project --env NOTES_DB=/data/notes.db
    antiphon install https://example.com/mcp --in cursor --print
    """
    if split(target, Path()) is not None:
        raise click.UsageError(f"{target} is an entry of a configuration already: name the server itself")
    program = HOSTS[host]
    server = read_target(target)
    name = name or server.name
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"The name {name!r} may have letters, digits, - and _ only: choose one with --name")
    made, why = _entry(program, server, _variables(env), read_headers(header, server))
    if prints:
        click.echo(json.dumps({program.key: {name: made}}, indent=2, ensure_ascii=False))
        return
    file = _file(program, scope)
    old = _servers(program, file).get(name)
    if old == made:
        click.echo(f"{name} is in {file} already. Nothing was changed.", err=True)
        return
    shown = json.dumps({name: made}, indent=2, ensure_ascii=False)
    click.echo(f"{'Add to' if old is None else f'Replace {name} in'} {file}:\n{visible(shown)}{why}", err=True)
    _confirm("Write it?", yes=yes)
    _change(file, scope, lambda text: jsonc.with_member(text, [program.key, name], made))
    click.echo(f"Restart {program.title} to use it. Call it with  antiphon call {host}:{name}", err=True)


@click.command("uninstall", epilog=exit_codes.INSTALL_TABLE)
@click.argument("name")
@_shared_options
def uninstall_command(*, name: str, host: str, scope: str, yes: bool) -> None:
    """Take the server NAME out of the configuration file of a program.

    \b
    antiphon uninstall notes --in claude-desktop
    """
    program = HOSTS[host]
    file = _file(program, scope)
    servers = _servers(program, file)
    if name not in servers:
        other = {"user": "project", "project": "user"}[scope]
        is_there = (other == "user" or program.project) and name in _servers(program, _file(program, other))
        hint = f" It is in {_file(program, other)}: pass --{other}." if is_there else ""
        have = f"it has {', '.join(servers)}" if servers else "it has none"
        raise click.UsageError(f"{file} has no server {name!r}: {have}.{hint}")
    click.echo(f"Remove {name} from {file}.", err=True)
    _confirm("Remove it?", yes=yes)
    _change(file, scope, lambda text: jsonc.without_member(text, [program.key, name]))


# --- the entry ----------------------------------------------------------------------------------------------------


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"expected KEY=VALUE, got {key!r}", param_hint="'--env'")
        variables[key] = value
    return variables


def _entry(
    program: HostProgram, server: ServerTarget, env: dict[str, str], headers: dict[str, str]
) -> tuple[JsonObject, str]:
    """Return the entry, and what to tell about its command."""
    if server.command is None and program.url:
        if env:
            raise click.UsageError("--env is for a server that is started: one at a URL has its own variables")
        return entry(program, server.text, {}, headers), ""
    if server.versions:  # a Server of Antiphon: it must load
        load_server(parse_server(server.text))
    command, why = lasting_command(
        server.command or _bridge(server, headers), prefix=sys.prefix, uvx=shutil.which("uvx")
    )
    if server.command is None:
        why += f"\n{program.title} takes no URL in its file, so the bridge stands between."
    return entry(program, command, env, {}), why


def _bridge(server: ServerTarget, headers: dict[str, str]) -> list[str]:
    """Return the command that serves a URL on standard streams."""
    said = [word for name, value in headers.items() for word in ("--header", f"{name}: {value}")]
    return [sys.executable, "-m", "antiphon", "bridge", server.text, *said]


def lasting_command(command: list[str], *, prefix: str, uvx: str | None) -> tuple[list[str], str]:
    """Return the command as it works from any folder and tomorrow, and why it is that one.

    ``prefix`` is the environment that runs this, and ``uvx`` the program of that name, if there is one.
    """
    program, *words = [command[0], *map(_absolute, command[1:])]
    if program != sys.executable:
        return [_absolute(program) if os.sep in program else program, *words], ""
    if not any(_PASSING.fullmatch(part) for part in Path(prefix).parts):
        return [
            program,
            *words,
        ], f"\nIt starts with the Python of this environment, {prefix}, and needs it to stay there."
    if words[:2] != ["-m", "antiphon"] or uvx is None:
        raise click.UsageError(
            "uv may remove the environment that runs this at any time: install antiphon in one that stays,"
            " as by  uv tool install antiphon"
        )
    return [uvx, "antiphon", *words[2:]], (
        "\nIt starts with uvx, as this command did: the environment that runs this may be removed at any time."
        " If the server needs other packages, put --with PACKAGE before antiphon."
    )


def _absolute(word: str) -> str:
    """Return the path of a file as it is seen from any folder; any other word as it is."""
    is_path = "." in word or os.sep in word
    return str(Path(word).absolute()) if is_path and Path(word).exists() else word


# --- the file -----------------------------------------------------------------------------------------------------


def _file(program: HostProgram, scope: str) -> Path:
    if scope == "user":
        return Path(user_file(program, here()))
    if not program.project:
        raise click.UsageError(f"{program.title} has no configuration for a project")
    return Path.cwd() / program.project


def _servers(program: HostProgram, file: Path) -> JsonObject:
    """Return the servers in a file; fail if the file cannot be understood, and so not be changed."""
    text = _text(file)
    try:
        found = jsonc.load(text)
    except ConfigUnusable as fault:
        raise exit_codes.Failed(f"{file} is not JSON, and is left as it is: {fault}") from None
    servers = found.get(program.key, {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise exit_codes.Failed(f"{file} is left as it is: {program.key!r} in it is not an object")
    return servers


def _text(file: Path) -> str:
    try:
        return read_text(file) if file.exists() else ""
    except ConfigUnusable as fault:
        raise exit_codes.Failed(str(fault)) from None


def _confirm(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was changed. Pass --yes: there is no terminal to ask in")
    if not click.confirm(question, default=True, err=True):
        click.echo("Nothing was changed.", err=True)
        raise click.exceptions.Exit(exit_codes.FAILED)


def _change(file: Path, scope: str, edit: Callable[[str], str]) -> None:
    """Change a file, and keep a copy of what was there."""
    real = Path(os.path.realpath(file))  # a link stays a link
    before = _text(real)  # again: the program may have written to it while the user was asked
    try:
        after = edit(before)
        if not real.exists():
            real.parent.mkdir(parents=True, exist_ok=True)
            replace(real, after.encode(), OWNER_ONLY if scope == "user" else _SHARED)
            click.echo(f"Wrote {file}.", err=True)
            return
        if not os.access(real, os.W_OK):
            raise exit_codes.Failed(f"Cannot write to {file}: it is read-only")
        backup = real.with_name(f"{real.name}.antiphon-backup")
        mode = stat.S_IMODE(real.stat().st_mode)
        replace(backup, before.encode(), mode)
        replace(real, after.encode(), mode)
    except ConfigUnusable as fault:
        raise exit_codes.Failed(f"{file} is left as it is: {fault}") from None
    except OSError as fault:
        raise exit_codes.Failed(f"Cannot write to {file}: {fault.strerror}") from None
    click.echo(f"Wrote {file}. As it was before: {backup}", err=True)
