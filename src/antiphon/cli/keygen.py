"""``antiphon keygen``: keys for ANTIPHON_KEYS."""

import os

import click

from antiphon.rounds.token import generate_key


@click.command("keygen")
@click.option(
    "--count", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="How many keys to print."
)
def keygen_command(count: int) -> None:
    """Print a key to seal questions with, one a line.

    Give the same key to every instance of a server, in the variable ANTIPHON_KEYS. The variable takes several keys,
    separated by commas: the first one seals, all of them open.
    """
    for _ in range(count):
        click.echo(generate_key(os.urandom(32)))
