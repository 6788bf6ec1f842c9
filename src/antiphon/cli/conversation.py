"""The rounds of a call that waits: answered here, or left for another time."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import click

from antiphon.cli import exits, waiting
from antiphon.cli.options import Desk
from antiphon.cli.peer import Peer
from antiphon.cli.show import Result
from antiphon.cli.text import line
from antiphon.client.results import Complete, Pending
from antiphon.protocol.loop import FIRST_PAUSE, LAST_PAUSE


async def go_on(
    desk: Desk, pending: Pending, *, ask: Callable[[Pending], bool], keep: Callable[[Pending], None]
) -> Result | Pending:
    """To the result, or to a round whose questions ``ask`` does not want put to a person.

    ``keep`` gets every round that the server asks on the way, before anybody is asked.
    """
    pause = FIRST_PAUSE
    while True:
        if pending.questions:
            if not desk.respondent.knows(pending) and not ask(pending):
                return pending
            responses = await desk.respondent.answer(pending, desk.client.server)
        else:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_PAUSE)
            responses = {}
        outcome = await desk.client.resume(pending, responses)
        if isinstance(outcome, Complete):
            return outcome.result
        pending = outcome
        keep(pending)


def left(path: Path | None, peer: Peer, pending: Pending) -> int:
    """Keep a call that waits, and say what it waits for; its exit code."""
    assert path is not None
    waiting.write(path, peer, pending)
    count = len(pending.questions)
    click.echo(f"The call waits in {path} for {count} answer{'' if count == 1 else 's'}:", err=True)
    for key, request in pending.questions.items():
        message = (request.get("params") or {}).get("message") or request.get("method")
        click.echo(f"  {line(key)}: {line(str(message))}", err=True)
    click.echo(f"Go on with  antiphon resume {path}", err=True)
    return exits.WAITING
