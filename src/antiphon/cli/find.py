"""Finding a Server: the TARGET on the command line is its home."""

from pathlib import Path
from typing import IO, Any

import click

from antiphon import home
from antiphon.app import Server
from antiphon.home import Home


class NotFound(click.UsageError):
    """The TARGET does not lead to a Server."""


class TargetFailed(click.ClickException):
    """The TARGET failed while it was imported."""

    def __init__(self, fault: home.ImportFailed) -> None:
        super().__init__(fault.log or str(fault))
        self._is_traceback = bool(fault.log)

    def show(self, file: IO[Any] | None = None) -> None:
        if self._is_traceback:
            click.echo(self.message, file=file, err=True, nl=False)
        else:
            super().show(file)


def read(text: str) -> Home:
    """Where a TARGET such as ``notes.py`` or ``package.module:app`` leads from the current folder."""
    try:
        return home.read(text, Path.cwd())
    except home.ServerMissing as fault:
        raise NotFound(str(fault)) from None


def find(target: Home) -> Server:
    """Import the target and return its Server."""
    try:
        return home.find(target, Server)
    except home.ImportFailed as fault:
        raise TargetFailed(fault) from None
    except home.ServerMissing as fault:
        raise NotFound(str(fault)) from None
