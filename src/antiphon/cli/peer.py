"""A Peer: the server that a call goes to, from the TARGET on the command line."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_OURS: Final = re.compile(rb"^\s*(from|import)\s+antiphon\b", re.MULTILINE)
_HOST_AND_PORT: Final = re.compile(r"[\w.-]+:\d+(/.*)?")


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A URL, or a command to start in a folder."""

    text: str
    """What finds it again from any folder."""
    command: list[str] | None = None
    folder: str | None = None

    @property
    def target(self) -> str | list[str]:
        """What a Client takes."""
        return self.text if self.command is None else self.command


def read_peer(text: str, folder: str | None = None) -> Peer:
    """Read ``https://host/mcp``, ``server.py`` or ``"python server.py --flag"``."""
    if text.startswith(("http://", "https://")):
        return Peer(text=text)
    file = Path(folder or "", text)
    if text.endswith(".py") and file.is_file():
        place = str(file.resolve())
        return Peer(text=place, command=_command(file), folder=folder)
    try:
        words = shlex.split(text, posix=os.name != "nt")
    except ValueError as fault:
        raise _unknown(text, f"its quotes do not match ({fault})") from None
    if len(words) == 1 and text.endswith(".py"):
        raise click.BadParameter(f"There is no file {text}", param_hint="'TARGET'")
    if not words or shutil.which(words[0]) is None:
        raise _unknown(text, f"there is no command {words[0]!r}" if words else "it is empty")
    return Peer(text=text, command=words, folder=folder or str(Path.cwd()))


def _command(file: Path) -> list[str]:
    """A file that holds a Server of ours is served on standard streams, whatever it does when it is run."""
    try:
        is_ours = _OURS.search(file.read_bytes()) is not None
    except OSError as fault:
        raise click.BadParameter(f"Cannot read {file}: {fault.strerror}", param_hint="'TARGET'") from None
    place = str(file.resolve())
    return [sys.executable, "-m", "antiphon", "serve", place] if is_ours else [sys.executable, place]


def read_headers(lines: tuple[str, ...], peer: Peer) -> dict[str, str]:
    """Read ``Name: value``, once for each header."""
    if lines and peer.command is not None:
        raise click.UsageError("--header can only be used with a URL: a command has no headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            # The value may be a secret, so it is not repeated.
            raise click.BadParameter(f"expected 'Name: value', got {name!r} and the rest", param_hint="'--header'")
        headers[name] = value.strip()
    return headers


def _unknown(text: str, why: str) -> click.BadParameter:
    hint = f"; did you mean http://{text}?" if _HOST_AND_PORT.fullmatch(text) else ""
    return click.BadParameter(
        f"{text!r} is neither a URL, nor a Python file, nor a command: {why}{hint}", param_hint="'TARGET'"
    )
