"""The command line. Each command is a file of its own, imported when it is used."""

import importlib
from typing import Final

import click

from antiphon import __version__

__all__ = ["main"]

COMMANDS: Final = {
    "call": "Call a server's tool, and answer what it asks.",
    "init-tests": "Write a suite of tests for what a server offers.",
    "keygen": "Print a key to seal questions with.",
    "record": "Record what a client and a server say to each other.",
    "replay": "Answer a client from a recording.",
    "resume": "Go on with a call that waits in a file.",
    "serve": "Serve a Server on standard streams, or over HTTP.",
    "test": "Run suites of tests against a server.",
    "verify": "Send a recording's requests to a server, and compare.",
}
_MODULES: Final = {"init-tests": "init_tests", "replay": "record", "resume": "call", "verify": "record"}
"""The module of a command, where it is not called like the command."""


class Commands(click.Group):
    """Commands by name: the function ``NAME_command`` of the command's module, imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 -- click's signature
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"antiphon.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Of options click itself says which was meant.
        name = args[0]
        near = [] if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing else _near(name)
        if near:
            ctx.fail(f"No such command {name!r}: did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)


def _near(name: str) -> list[str]:
    """Commands that somebody may have meant, the nearest first."""
    from difflib import get_close_matches  # for those who mistype

    return [command for command in COMMANDS if name and command.startswith(name)] or get_close_matches(name, COMMANDS)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="antiphon", message="%(prog)s %(version)s")
def commands() -> None:
    """MCP programs that converse.

    \b
    antiphon serve notes.py                  serve it on standard streams
    antiphon serve notes.py --http           serve it at http://127.0.0.1:8000/mcp
    antiphon serve shop.api:app --http --workers 4
    antiphon call notes.py add title=Milk    call a tool; it may ask you
    antiphon test notes.mcp.yaml             test it, answers included
    """


def main() -> None:
    """The ``antiphon`` script."""
    commands.main(prog_name="antiphon")
