"""A server with every mistake that a replay shows, each beside the way to do it right."""

import asyncio
import random
import secrets
import time
import uuid
from datetime import UTC, date, datetime
from time import time as clock

from antiphon import Context, Server, ToolError, ask, input_required

app = Server("till")
charged: list[int] = []
opened = {"count": 0}


async def charge(amount: int) -> int:
    await asyncio.sleep(0)
    charged.append(amount)
    return len(charged)


def ring(times: int = 1) -> float:
    """A plain function that reads the clock: in a step, it may."""
    return time.time() * times


@app.tool
async def hurry(ctx: Context) -> str:
    return str(await ctx.confirm(f"It is {time.time_ns()}. Go?"))


@app.tool
async def lottery(ctx: Context) -> object:
    if ctx.accepted("bet", bool) is None:
        return input_required({"bet": ask.form(f"Bet on {random.randint(1, 10**9)}?", bool)})
    return "Bet"


@app.tool
async def pay(amount: int, ctx: Context) -> str:
    await charge(amount)
    if not await ctx.confirm("Pay?"):
        return "Kept"
    return "Paid" if await ctx.confirm("Receipt?") else "Paid quietly"


@app.tool
async def pay_well(amount: int, ctx: Context) -> str:
    ticket = await ctx.step("charge", charge, amount)
    await ctx.step("ring", ring)
    at = await ctx.now()
    luck = await ctx.random()
    die = random.Random(7).choice([1, 2, 3])
    sure = await ctx.confirm(f"Ticket {ticket} at {at} with {luck} and {die}?")
    return f"{sure} {at} {luck}"


@app.tool
async def stamp(ctx: Context) -> str:
    await ctx.confirm("Sure?")
    return f"Done at {datetime.now(UTC)}"


@app.tool
async def number(ctx: Context) -> str:
    await ctx.confirm("Sure?")
    return f"Ticket {await ctx.step('number', ring)} {await ctx.now()} {await ctx.random()}"


@app.tool
async def labelled(ctx: Context) -> str:
    await ctx.confirm("Sure?")
    await ctx.step("ring", ring)
    return f"Label {uuid.uuid4()}"


@app.tool
async def memory(ctx: Context) -> str:
    if ctx.round == 1:
        opened["count"] = 5
    await ctx.confirm("Sure?")
    return str(opened["count"])


@app.tool
async def reads(ctx: Context) -> str:
    clock()
    time.time_ns()
    datetime.now()  # noqa: DTZ005
    date.today()  # noqa: DTZ011
    random.random()
    random.choice("ab")
    uuid.uuid4()
    secrets.token_hex(2)
    secrets.choice("ab")
    await ctx.confirm("Sure?")
    return "Read"


@app.tool
def plain(ctx: Context) -> str:
    ring()
    ctx.sync.step("ring", ring, 2)
    return str(ctx.sync.confirm("Sure?"))


@app.tool
async def together(ctx: Context) -> str:
    await asyncio.gather(charge(1), ctx.step("charge", charge, 2))
    return str(await ctx.confirm("Sure?"))


@app.tool
async def quiet() -> str:
    return f"{time.time()}"


@app.tool
async def broke(ctx: Context) -> str:
    await ctx.confirm("Pay?")
    raise ToolError("No money")


@app.tool
async def fickle(ctx: Context) -> str:
    opened["count"] += 1
    if opened["count"] % 2:
        return str(await ctx.confirm("Odd?", key="odd"))
    return str(await ctx.confirm("Even?", key="even"))


@app.tool
async def wait(ctx: Context) -> object:
    return "Waited" if ctx.state(int) == 2 else input_required(state=(ctx.state(int) or 0) + 1)


@app.prompt
async def letter(ctx: Context) -> str:
    name = (await ctx.elicit("Whose?", str, key="name")).unwrap()
    return f"A letter for {name} {uuid.uuid4()}"


@app.resource("till://drawer")
async def drawer(ctx: Context) -> str:
    return str(await ctx.confirm("Open?"))
