"""The server that the suites of these tests are about."""

import asyncio
import os
import time

from antiphon import Context, Server, ToolError

app = Server("shop", version="1.0.0")
ORDERS: list[str] = []


@app.tool
async def order(item: str) -> dict[str, object]:
    """Order an item."""
    ORDERS.append(item)
    return {"id": len(ORDERS), "item": item, "tags": ["new", "paid"], "who": {"name": "Ann", "age": 40}}


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Not deployed"


@app.tool
async def survey(ctx: Context) -> str:
    """Ask for two things, one after the other."""
    name = (await ctx.elicit("Your name?", str, key="name")).unwrap()
    age = (await ctx.elicit(f"How old are you, {name}?", int, key="age")).unwrap()
    return f"{name} is {age}"


@app.tool
async def count(ctx: Context) -> str:
    """Ask the same thing three times."""
    return str([(await ctx.elicit("A number?", int, key="n")).unwrap() for _ in range(3)])


@app.tool
async def colours(ctx: Context) -> str:
    """Ask for several things at once."""
    choice = {"type": "array", "items": {"type": "string", "enum": ["red", "blue", "green"]}}
    form = {"type": "object", "properties": {"of": choice}, "required": ["of"]}
    return str((await ctx.elicit("Which?", form, key="which")).unwrap()["of"])


@app.tool
async def wipe(ctx: Context) -> str:
    """Ask for what nobody should grant by accident."""
    return "Wiped" if await ctx.confirm("Wipe all?", key="wipe_all") else "Kept"


@app.tool
async def guess(ctx: Context) -> str:
    """Ask until the answer is right."""
    for number in range(100):
        answer = (await ctx.elicit(f"Guess {number}", int, key=f"guess-{number}")).unwrap()
        if answer == 7:
            return f"Right after {number + 1}"
    return "Never"


@app.tool
async def four(ctx: Context) -> str:
    """Ask a model, and for roots."""
    text, roots = await asyncio.gather(ctx.sample("Say hello", max_tokens=9, key="hello"), ctx.roots(key="where"))
    return f"{text.text} in {roots[0].uri}"


@app.tool
async def fail(why: str = "no reason") -> str:
    """Fail in a way that a model can read."""
    raise ToolError(f"Failed: {why}")


@app.tool
async def dated(ctx: Context) -> str:
    """Say when it began, which is another time on every round."""
    begun = time.time_ns()
    await ctx.confirm("Sure?")
    return f"Begun at {begun}"


@app.tool
async def till(ctx: Context) -> str:
    """Count the orders, if there are any."""
    await ctx.confirm("Sure?")
    if not ORDERS:
        raise ToolError("There are no orders")
    return str(len(ORDERS))


@app.tool
async def crash() -> str:
    """Fail in a way that nobody foresaw."""
    raise RuntimeError("The till is on fire")


@app.tool
async def slow() -> str:
    """Take very long."""
    await asyncio.Event().wait()
    return "done"


@app.tool
async def setting(name: str) -> str:
    """A variable of the environment."""
    return os.environ.get(name, "(unset)")


@app.prompt
def letter(to: str) -> str:
    """A letter."""
    return f"Dear {to},"


@app.resource("order://{id}")
async def one(id: str) -> str:
    """An order."""
    return f"Order {id}"


if __name__ == "__main__":
    app.run()
