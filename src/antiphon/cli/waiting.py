"""Waiting calls in files: the Pending, and where its server is."""

import os
import tempfile
from pathlib import Path
from typing import Final

import click
import msgspec

from antiphon.cli.exits import Failed
from antiphon.cli.peer import Peer, read_peer
from antiphon.cli.text import visible
from antiphon.client.results import Pending
from antiphon.types import JsonObject

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
