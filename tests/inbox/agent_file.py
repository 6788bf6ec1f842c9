"""An agent in a process of its own: `agent_file.py STORE call | result TICKET | answer TICKET NUMBER | serve`."""

import asyncio
import json
import sys

from antiphon import Accepted, AlreadyAnswered, Client, Context, Inbox, InputNeeded, Seal, Server
from antiphon.cli.stores import open_store

app = Server("travel", seal=Seal(keys=["s" * 32], ttl=86400 * 7))


@app.tool
async def book(ctx: Context) -> str:
    return f"{(await ctx.elicit('Seats?', int, key='seats')).unwrap()} seats"


async def call(inbox):
    async with Client([sys.executable, __file__, "-", "serve"], inbox=inbox) as client:
        try:
            await client.call_tool("book")
        except InputNeeded as needed:
            return needed.ticket


async def answer(inbox, ticket, number):
    await inbox.rows.get(ticket)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    try:
        row = await inbox.answer(ticket, {"seats": Accepted(int(number))}, by=f"person {number}")
        return json.dumps({"won": True, "by": row.answered_by})
    except AlreadyAnswered as fault:
        return json.dumps({"won": False, "by": fault.by})


async def main(store, what, *words):
    opened = open_store(store)
    inbox = Inbox(opened)
    try:
        match what:
            case "call":
                sys.stdout.write(await call(inbox))
            case "result":
                sys.stdout.write((await inbox.result(words[0])).text)
            case "answer":
                sys.stdout.write(await answer(inbox, *words))
    finally:
        await opened.close()


if __name__ == "__main__":
    if sys.argv[2] == "serve":
        app.run()
    else:
        asyncio.run(main(*sys.argv[1:]))
