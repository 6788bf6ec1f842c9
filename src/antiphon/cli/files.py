"""Files that a command writes, completely or not at all; among them a call that waits."""

import os
import tempfile
from pathlib import Path
from typing import Final

import click
import msgspec

from antiphon.cli import exit_codes
from antiphon.cli.target import ServerTarget, read_target
from antiphon.client.results import Pending
from antiphon.escaping import counted, line, visible_json
from antiphon.types import JsonObject

OWNER_ONLY: Final = 0o600
KEYS: Final = "ANTIPHON_KEYS"
_OTHERS: Final = 0o077
"""The file permissions of users other than the owner."""


def replace(path: Path, content: bytes, mode: int = OWNER_ONLY) -> None:
    """Write a file in one step, with these permissions."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


# --- a call that waits ------------------------------------------------------------------------------------------------


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


def check_new(path: Path) -> None:
    """Raise a usage error if a waiting call could not be written here, before anything is called."""
    folder = path.absolute().parent
    if path.exists():
        raise click.UsageError(f"{path} exists: resume the call that waits there, or choose another file")
    if not folder.is_dir():
        raise click.UsageError(f"There is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise click.UsageError(f"Cannot write to {folder}")


def keep_call(path: Path, target: ServerTarget, pending: Pending) -> int:
    """Save a waiting call, print its questions, and return the exit code."""
    save_call(path, target, pending)
    click.echo(f"The call waits in {path} for {counted(len(pending.questions), 'answer')}:", err=True)
    for key, request in pending.questions.items():
        message = (request.get("params") or {}).get("message") or request.get("method")
        click.echo(f"  {line(key)}: {line(str(message))}", err=True)
    click.echo(f"Continue with  antiphon resume {path}", err=True)
    return exit_codes.WAITING


def save_call(path: Path, target: ServerTarget, pending: Pending) -> None:
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


def load_call(path: Path, target: str | None) -> tuple[ServerTarget, Pending]:
    """Return the call that waits in a file, and its server: ``target``, else the one in the file."""
    try:
        waiting = msgspec.json.decode(path.read_bytes(), type=WaitingCall)
        pending = waiting.call()
    except OSError as fault:
        raise click.UsageError(f"Cannot read {path}: {fault.strerror}") from None
    except (msgspec.MsgspecError, ValueError) as fault:
        raise click.UsageError(f"{path} holds no waiting call: {fault}") from None
    if target is not None:
        return with_key(read_target(target), waiting.key), pending
    server = with_key(read_target(waiting.target, waiting.cwd), waiting.key)
    if server.command is not None and not _is_ours(path):
        raise click.UsageError(
            f"{path} starts the command {waiting.target!r}, but other users may have written it:"
            " name the server with --target, or chmod 600 the file if you trust it"
        )
    return server, pending


def with_key(server: ServerTarget, key: str | None) -> ServerTarget:
    """Return a target whose command gets a key for its tokens, unless its configuration has one."""
    if server.command is None or key is None or KEYS in server.env:
        return server
    return msgspec.structs.replace(server, key=key, env={**server.env, KEYS: key})


def _is_ours(path: Path) -> bool:
    """Whether only this user can have written the file."""
    if os.name == "nt":
        return True
    found = path.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & _OTHERS
