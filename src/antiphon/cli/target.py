"""The server that a command calls: TARGET, and the options that say how it is reached."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from antiphon.config.hosts import HOSTS
from antiphon.config.servers import Input, find_server, servers_in, split
from antiphon.errors import ConfigUnusable
from antiphon.escaping import line
from antiphon.wire.revisions import REVISION

F = TypeVar("F", bound=Callable[..., Any])

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_USES_ANTIPHON: Final = re.compile(rb"^\s*(from|import)\s+antiphon\b", re.MULTILINE)
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+(/.*)?")
_HOST_AND_NAME: Final = re.compile(r"([a-z-]+):[\w.@-]+")
_PYTHON: Final = re.compile(r"(.+\.py)(:[\w.]+)?")
_PYTHONS: Final = {"python", "pythonw", "py", "pypy"}
_PACKAGE_RUNNERS: Final = {"npx", "bunx", "pnpx", "uvx", "pipx", "pnpm", "yarn"}
_BEFORE_PACKAGE: Final = {"run", "dlx", "exec", "-y", "--yes", "-q", "--quiet", "--"}
_PACKAGE: Final = re.compile(r"(?:@[\w.-]+/)?(\w[\w.-]*)(?:(?:@|==)[\w.^~-]+)?")


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, or a command to start in a folder."""

    text: str
    """The URL; or what messages call the command."""
    command: list[str] | None = None
    folder: str | None = None
    env: Mapping[str, str] = {}
    """Variables for the command, beside those that are there."""
    headers: Mapping[str, str] = {}
    """HTTP headers for the URL."""
    key: str | None = None
    """The key in ``env`` that was made for a call that waits."""
    source: str = ""
    """The entry of a configuration file that it was read from."""
    versions: tuple[str, ...] = ()
    """The revisions that it is known to speak: a server that we start need not be asked, and is started once."""

    @property
    def target(self) -> str | list[str]:
        """What a Client takes."""
        return self.text if self.command is None else self.command

    @property
    def name(self) -> str:
        """A short name, of letters, digits, - and _: that of the file, the package, the URL's host, or the command.

        Other words of a command may be secrets, and are never in it.
        """
        if self.command is None:
            labels = (urlsplit(self.text).hostname or "").split(".")
            found = next((label for label in labels if label not in {"mcp", "api", "www"}), "")
        else:
            found = _named(self.command)
        return re.sub(r"[^A-Za-z0-9_-]+", "-", found).strip("-") or "server"


def read_target(text: str, folder: str | None = None) -> ServerTarget:
    """Read ``https://host/mcp``, ``server.py``, ``mcp.json:name`` or ``"python server.py --flag"``.

    Raise a usage error if it is none of these.
    """
    if text.startswith(("http://", "https://")):
        return _remote(text)
    python = _PYTHON.fullmatch(text)
    if python is not None and (file := Path(folder or "", python[1])).is_file():
        path = str(file.resolve())
        if not holds_server(file):
            return ServerTarget(text=path, command=[sys.executable, path], folder=folder)
        server = f"{path}{python[2] or ''}"
        command = [sys.executable, "-m", "antiphon", "serve", server]
        return ServerTarget(text=server, command=command, folder=folder, versions=(REVISION,))
    if (place := split(text, Path(folder or ""))) is not None:
        found = _found(*place, folder)
        program = found.command[0] if found.command else ""
        if program and os.sep not in program and shutil.which(program, path=found.env.get("PATH")) is None:
            raise click.BadParameter(f"{found.source}: there is no command {program!r}", param_hint="'TARGET'")
        return found
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as fault:
        raise _unusable(text, f"its quotes do not match ({fault})") from None
    if len(words) == 1 and text.endswith(".py"):
        raise click.BadParameter(f"There is no file {text}", param_hint="'TARGET'")
    if not words or shutil.which(words[0]) is None:
        raise _unusable(text, f"there is no command {words[0]!r}" if words else "it is empty")
    return ServerTarget(text=text, command=words, folder=folder or str(Path.cwd()))


def read_targets(text: str) -> dict[str, ServerTarget]:
    """Read a target; for a configuration without a name, all its servers that are not disabled, by their names."""
    place = split(text, Path())
    if place is None or place[1] is not None:
        return {"": read_target(text)}
    with _usage_errors():
        entries = servers_in(place[0])
        return {name: _found(place[0], name) for name, entry in entries.items() if not entry.is_disabled}


def _named(command: list[str]) -> str:
    """Return the name of the file, module or package that a command starts; else that of the command."""
    program, *words = command
    runner = re.sub(r"[\d.]+$", "", Path(program).stem.lower())
    if runner in _PYTHONS and (module := _module(words)):
        return module.partition(".")[0]
    for word in words:
        if not word.startswith("-") and (file := _PYTHON.fullmatch(word)) is not None:
            return Path(file[1]).stem
    if runner in _PACKAGE_RUNNERS:
        # After an option that is not known, the next word may be its value.
        rest = [word for word in words if word not in _BEFORE_PACKAGE]
        if rest and (package := _PACKAGE.fullmatch(rest[0])) is not None:
            return package[1]
    return Path(program).stem


def _module(words: list[str]) -> str:
    """Return what Python is told to run with ``-m``, unless it is Antiphon, which serves a file."""
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        if word == "-m":
            return "" if after == "antiphon" else after
        if not word.startswith("-") and before not in {"-W", "-X"}:
            break
    return ""


def _remote(url: str, headers: Mapping[str, str] | None = None, source: str = "") -> ServerTarget:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0  # a port is checked when it is read
    except ValueError:
        is_whole = False
    if not is_whole:
        # The URL may hold a secret, and so may the error: do not repeat them.
        whose = f"{source}: the URL" if source else "The URL"
        raise click.BadParameter(f"{whose} is malformed: http:// or https:// and a host", param_hint="'TARGET'")
    return ServerTarget(text=url, headers=headers or {}, source=source)


def _found(place: str, name: str | None, folder: str | None = None) -> ServerTarget:
    """Return an entry of a configuration. What it needs from the user is asked in the terminal."""
    ask = _ask_input if sys.stdin.isatty() else None
    with _usage_errors():
        found = find_server(place, name, folder=Path(folder or ""), ask=ask)
    if found.url:
        return _remote(found.url, headers=found.headers, source=found.source)
    return ServerTarget(text=found.source, command=found.command, folder=found.cwd, env=found.env, source=found.source)


@contextmanager
def _usage_errors() -> Generator[None]:
    try:
        yield
    except ConfigUnusable as fault:
        raise click.BadParameter(str(fault), param_hint="'TARGET'") from None


def _ask_input(wanted: Input) -> str | None:
    choices = [str(item.get("value") if isinstance(item, dict) else item) for item in wanted.options]
    return str(
        click.prompt(
            line(wanted.description or wanted.id),
            default=wanted.default,
            hide_input=wanted.password,
            type=click.Choice(choices) if choices else str,
            err=True,
        )
    )


def holds_server(file: Path) -> bool:
    """Whether a Python file imports antiphon, and so can be served."""
    try:
        return _USES_ANTIPHON.search(file.read_bytes()) is not None
    except OSError as fault:
        raise click.BadParameter(f"Cannot read {file}: {fault.strerror}", param_hint="'TARGET'") from None


def _unusable(text: str, why: str) -> click.BadParameter:
    hint = f"; did you mean http://{text}?" if _HOST_AND_PORT.fullmatch(text) else ""
    if not hint and _HOST_AND_NAME.fullmatch(text):
        hint = f", nor a host of that name (there are {', '.join(HOSTS)})"
    return click.BadParameter(
        f"{text!r} is not a URL, a Python file, an entry of an mcp.json, or a command: {why}{hint}",
        param_hint="'TARGET'",
    )


def read_headers(lines: tuple[str, ...], target: ServerTarget) -> dict[str, str]:
    """Read the values of ``--header``, each ``Name: value``, and add them to those of the target."""
    if lines and target.command is not None:
        raise click.UsageError("--header can only be used with a URL: a command has no headers")
    given_names = {given.partition(":")[0].lower() for given in lines}
    headers = {name: value for name, value in target.headers.items() if name.lower() not in given_names}
    for given in lines:
        name, colon, value = given.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            # The value may be a secret: do not repeat it.
            raise click.BadParameter(f"expected 'Name: value', got {name!r} and the rest", param_hint="'--header'")
        headers[name] = value.strip()
    return headers


# --- options ------------------------------------------------------------------------------------------------------


def option_group(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options, in this order."""

    def add(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return add


era_option: Final = click.option(
    "--era", metavar="ERA", default="auto", show_default=True, help="The protocol: auto, legacy, or a revision."
)
timeout_option: Final = click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="The server's time for a call.",
)
header_option: Final = click.option("--header", metavar="'NAME: VALUE'", multiple=True, help="An HTTP header to send.")
