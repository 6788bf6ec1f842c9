"""A tool that asks twice, served by two servers that share only a key. Prints the conversation.

Run it:  make demo
"""

import asyncio
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from antiphon import Accepted, AntiphonError, Client, Context, Elicitation, Server
from antiphon.transports.http_client import HttpLink

# --- the server: what `antiphon serve examples/demo.py` serves -------------------------------------------------------

app = Server("travel", version="1.0.0")


@dataclass
class Trip:
    city: Literal["Kyoto", "Lisbon", "Oslo"]
    nights: Annotated[int, Meta(ge=1, le=14, description="From 1 to 14.")] = 3


@app.tool
async def book(traveller: str, ctx: Context) -> str:
    """Book a trip: asks where to, finds a price, and asks again before it books."""
    trip = (await ctx.elicit(f"Where to, {traveller}?", Trip, key="trip")).unwrap()
    price = await ctx.step("price", find_price, trip.nights)
    if not await ctx.confirm(f"{trip.nights} nights in {trip.city} for {price} euros. Book it?"):
        return "Nothing was booked."
    return f"Booked: {trip.nights} nights in {trip.city} for {traveller}, {price} euros."


def find_price(nights: int) -> int:
    """Run once, as a step; the result is kept in the token."""
    return nights * 80 + 40


# --- the client: sends each request to the other server, and prints it -----------------------------------------------


class AlternatingLink:
    """A Link over two others. A client takes any object with these three methods."""

    def __init__(self, links: dict[str, HttpLink]) -> None:
        self._links = links
        self._round = 0

    async def open(self) -> None:
        for link in self._links.values():
            await link.open()

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()

    async def request(
        self, message: dict[str, Any], *, headers: Mapping[str, str], on_notification: Any = None
    ) -> dict[str, Any]:
        name = list(self._links)[self._round % len(self._links)]
        self._round += 1
        say(f"\nround {self._round}")
        print_request(name, message["params"])
        reply = await self._links[name].request(message, headers=headers, on_notification=on_notification)
        print_reply(name, reply)
        return reply


def print_request(name: str, params: dict[str, Any]) -> None:
    say(f"  you ──▶ {name}   tools/call {params['name']} {json.dumps(params['arguments'])}")
    for key, answer in params.get("inputResponses", {}).items():
        content = f" {json.dumps(answer['content'])}" if "content" in answer else ""
        say(f"              answers {key}: {answer['action']}{content}")
    if "requestState" in params:
        say(f"              gives the token back ({len(params['requestState'])} characters)")


def print_reply(name: str, reply: dict[str, Any]) -> None:
    result = reply.get("result", {})
    if result.get("resultType") != "input_required":
        say(f"  you ◀── {name}   the result")
        return
    say(f"  you ◀── {name}   input_required")
    for key, question in result["inputRequests"].items():
        say(f"              asks {key}: {question['params']['message']}")
    say(f"              a token of {len(result['requestState'])} characters, sealed; {name} keeps nothing")


def say(text: str) -> None:
    print(text, flush=True)


# --- the answers: from the user at the terminal, or prepared ones ----------------------------------------------------

PREPARED: dict[str, dict[str, Any]] = {"trip": {"city": "Kyoto"}, "confirm": {"confirm": True}}


def prepared_answer(question: Elicitation) -> Accepted[dict[str, Any]]:
    return Accepted(PREPARED[question.key])


def choose_answers() -> Any:
    if sys.stdin.isatty() and sys.stderr.isatty() and not os.environ.get("CI"):
        from antiphon.cli.terminal import Terminal  # what `antiphon call` asks with

        return Terminal("two servers on this machine").form
    say("This is not a terminal, so the demo gives prepared answers.")
    return prepared_answer


# --- two servers, each a process of its own --------------------------------------------------------------------------

PATIENCE = 20.0
"""Seconds that a server may take; a person may take longer."""


class Instance:
    """One server, in a process of its own."""

    def __init__(self, name: str, key: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "antiphon", "serve", __file__, "--http", "--port", "0"],
            env={**os.environ, "ANTIPHON_KEYS": key},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def url(self) -> str:
        """Wait until the server prints its address, and return it."""
        assert self._process.stderr is not None
        impatience = threading.Timer(PATIENCE, self._process.kill)
        impatience.start()
        printed = ""
        try:
            for line in self._process.stderr:
                printed += line
                if found := re.search(r"http://\S+", line):
                    say(f"  {self.name}: $ antiphon serve examples/demo.py --http --port 0\n     {line.strip()}")
                    return found[0]
        finally:
            impatience.cancel()
        raise RuntimeError(f"server {self.name} did not start:\n{printed}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.communicate(timeout=PATIENCE)
        finally:
            self._process.kill()
            self._process.wait()


async def converse(links: dict[str, HttpLink]) -> str:
    async with Client(AlternatingLink(links), elicit=choose_answers(), timeout=PATIENCE) as client:
        result = await client.call_tool("book", {"traveller": "Ada"})
    return f"\n{result.text}\n\n{result.rounds} requests; no process waited for an answer."


def main() -> int:
    say("Antiphon: a tool that asks twice, on two servers that share only a key\n")
    begun = time.monotonic()
    try:
        with ExitStack() as running:
            key = secrets.token_hex(32)  # `antiphon keygen` prints one as well
            instances = [Instance(name, key) for name in ("A", "B")]
            for instance in instances:
                running.callback(instance.stop)
            links = {instance.name: HttpLink(instance.url()) for instance in instances}
            say(asyncio.run(converse(links)))
    except KeyboardInterrupt:
        say("\nInterrupted; both servers are stopped.")
        return 130
    except (AntiphonError, RuntimeError) as fault:
        print(f"\nThe demonstration failed: {fault}", file=sys.stderr)
        return 1
    say(f"Done in {time.monotonic() - begun:.1f} s; both servers are stopped.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
