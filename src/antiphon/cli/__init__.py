"""The command line. The module of a command is imported when the command is used."""

import importlib
import os
from typing import Final

import click

from antiphon import __version__

__all__ = ["main"]

COMMANDS: Final = {
    "bridge": "Serve any server to any client, old or new.",
    "call": "Call a server's tool, and answer what it asks.",
    "inbox": "List and answer the calls that wait for a person.",
    "init": "Start a new server, with its tests.",
    "init-tests": "Write a test suite for a server that you have.",
    "inspect": "Look at a server's conversations in a browser.",
    "install": "Add a server to Claude, Cursor, VS Code or Gemini CLI.",
    "keygen": "Print a key for sealing tokens.",
    "login": "Sign in to a server, and stay signed in.",
    "logout": "Forget a login, and revoke its tokens.",
    "record": "Record the messages between a client and a server.",
    "replay": "Answer a client from a recording.",
    "resume": "Continue a call that waits in a file.",
    "serve": "Serve a Server on standard streams or over HTTP.",
    "test": "Run test suites against a server.",
    "uninstall": "Remove a server from one of these programs.",
    "verify": "Send a recording's requests to a server, and compare.",
}
_MODULES: Final = {
    "init-tests": "test",
    "logout": "login",
    "replay": "record",
    "resume": "call",
    "uninstall": "install",
    "verify": "record",
}
"""The module of a command, if its name differs from the command's."""


class Commands(click.Group):
    """Finds a command by name: the function ``NAME_command`` in the command's module."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 -- click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands or cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"antiphon.cli.{_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.ClickException as fault:
            from antiphon.escaping import visible  # only a failure needs it

            # It may quote a server.
            vars(fault)["message"] = visible(fault.message)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 -- click's signature
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # For options, click suggests names itself.
        name = args[0]
        near = [] if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing else _near(name)
        if near:
            ctx.fail(f"No such command {name!r}: did you mean {' or '.join(map(repr, near))}?")
        return super().resolve_command(ctx, args)


def _near(name: str) -> list[str]:
    """Return the commands that may have been meant, the nearest first."""
    from difflib import get_close_matches  # only a typing error needs it

    return [command for command in COMMANDS if name and command.startswith(name)] or get_close_matches(name, COMMANDS)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="antiphon", message="%(prog)s %(version)s")
def commands() -> None:
    """MCP programs that converse.

    \b
    antiphon serve notes.py --http           serve at http://127.0.0.1:8000/mcp
    antiphon call notes.py add title=Milk    call a tool, and answer it
    antiphon test notes.mcp.yaml             run a suite of tests
    """


@commands.command("keygen")
@click.option(
    "--count", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="The number of keys."
)
def keygen_command(count: int) -> None:
    """Print a key for sealing tokens, one per line.

    Give the same key to every instance of a server, in the variable ANTIPHON_KEYS. The variable takes several keys,
    separated by commas: the first one seals, all of them open.
    """
    from antiphon.rounds.token import generate_key

    for _ in range(count):
        click.echo(generate_key(os.urandom(32)))


def main() -> None:
    """Run the ``antiphon`` script."""
    commands.main(prog_name="antiphon")
