"""A server that asks in every way a terminal can be asked."""

import asyncio
import os
import sys
from dataclasses import dataclass

from antiphon import Accepted, Context, Image, ResourceLink, Server, ToolError

SNEAKY = "a\x9b31m\u202eb\U000e0041\x7f##[error]"
"""A terminal obeys the first two, hides the third, and a CI runner obeys the last."""

app = Server("clinic", version="2.1.0", instructions="Books appointments.")

VISIT = {
    "type": "object",
    "properties": {
        "name": {
            "type": "string",
            "title": "Full name",
            "description": "As on your card.",
            "minLength": 2,
            "maxLength": 30,
        },
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "weight": {"type": "number", "minimum": 0.5},
        "email": {"type": "string", "format": "email"},
        "day": {"type": "string", "format": "date"},
        "moment": {"type": "string", "format": "date-time"},
        "first": {"type": "boolean", "description": "Your first visit?"},
        "doctor": {
            "type": "string",
            "oneOf": [{"const": "a", "title": "Dr Ada"}, {"const": "g", "title": "Dr Grace"}],
        },
        "pains": {
            "type": "array",
            "items": {"type": "string", "enum": ["head", "back", "knee"]},
            "minItems": 1,
            "maxItems": 2,
        },
        "note": {"type": "string"},
    },
    "required": ["name", "age", "weight", "email", "day", "moment", "first", "doctor", "pains"],
}


@app.tool
async def visit(ctx: Context) -> dict[str, object]:
    """Book a visit."""
    answer = await ctx.elicit("Who comes, and when?", VISIT, key="visit")
    return answer.value if answer.action == "accept" else {"action": answer.action}


@app.tool
async def one(kind: str, ctx: Context) -> dict[str, object]:
    """Ask for one field of the visit, with what else is said about it.

    Args:
        kind: The field.
    """
    schema = {**VISIT, "properties": {kind: VISIT["properties"][kind]}, "required": [kind]}
    answer = await ctx.elicit("One thing.", schema, key="one")
    return answer.value if answer.action == "accept" else {"action": answer.action}


@app.tool
async def defaults(ctx: Context) -> dict[str, object]:
    """Ask with defaults, and nothing required."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "default": "Oslo"},
            "seats": {"type": "integer", "default": 2},
            "window": {"type": "boolean", "default": True},
            "meal": {"type": "string", "enum": ["fish", "tofu"], "default": "tofu"},
            "extras": {
                "type": "array",
                "items": {"type": "string", "enum": ["wifi", "bag"]},
                "default": ["bag"],
            },
        },
    }
    answer = await ctx.elicit("Your seat?", schema, key="seat")
    return answer.value if answer.action == "accept" else {"action": answer.action}


@app.tool
async def optional(ctx: Context) -> dict[str, object]:
    """Ask for what may be left out."""
    schema = {
        "type": "object",
        "properties": {
            "nick": {"type": "string"},
            "vip": {"type": "boolean"},
            "size": {"type": "string", "enum": ["s", "m"]},
            "toys": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
        },
    }
    answer = await ctx.elicit("If you like.", schema, key="more")
    return answer.value if answer.action == "accept" else {"action": answer.action}


@app.tool
async def consent(ctx: Context) -> str:
    """Ask for nothing but a yes."""
    return (await ctx.elicit("Do you agree?", {"type": "object", "properties": {}}, key="consent")).action


@app.tool
async def sure(ctx: Context) -> str:
    """Ask for a confirmation."""
    return "done" if await ctx.confirm("Really?") else "left alone"


@app.tool
async def page(url: str, ctx: Context) -> str:
    """Send the user to a page."""
    return (await ctx.elicit_url("Sign in, please.", url, key="page")).action


@app.tool
async def many(kinds: list[str], ctx: Context) -> str:
    """Ask for one field after the other, and tell what was done about each."""
    actions = []
    for number, kind in enumerate(kinds):
        schema = {**VISIT, "properties": {kind: VISIT["properties"][kind]}, "required": [kind]}
        answer = await ctx.elicit(f"Question {number}.", schema, key=f"question{number}")
        actions.append(answer.action)
    return " ".join(actions)


@app.tool
async def pages(urls: list[str], ctx: Context) -> str:
    """Send the user to one page after the other."""
    answers = [await ctx.elicit_url(f"Page {number}.", url, key=f"page{number}") for number, url in enumerate(urls)]
    return " ".join(answer.action for answer in answers)


@app.tool
async def twice(ctx: Context) -> str:
    """Ask twice, one after the other."""
    first = await ctx.elicit("First?", str, key="first")
    second = await ctx.elicit("Second?", str, key="second")
    return f"{first.unwrap()} then {second.unwrap()}"


@app.tool
async def both(ctx: Context) -> str:
    """Ask two things in one round."""
    left, right = await asyncio.gather(ctx.elicit("Left?", str, key="left"), ctx.elicit("Right?", str, key="right"))
    return f"{left.unwrap()} and {right.unwrap()}"


@app.tool
async def poem(ctx: Context) -> str:
    """Ask a model."""
    return (await ctx.sample("Write a poem.", max_tokens=50, system="You are a poet.", key="poem")).text


@app.tool
async def folders(ctx: Context) -> list[str]:
    """Ask for roots."""
    return [root.uri for root in await ctx.roots(key="roots")]


@app.tool
async def rude(ctx: Context) -> str:
    """Ask with control characters."""
    answer = await ctx.elicit("\x1b[2J\x1b[31mRed\u202e?", str, key="rude")
    return f"\x1b[2J{answer.action}"


@dataclass
class Sneaky:
    note: str = SNEAKY


@app.tool
async def sneaky(ctx: Context) -> dict[str, str]:
    """Ask with a default that steers a terminal, and return it."""
    return {"note": (await ctx.elicit("A note?", Sneaky, key="sneaky")).unwrap().note, SNEAKY: "x"}


@app.tool
async def work(ctx: Context) -> str:
    """Report progress, and ask in the middle of it."""
    for done in range(1, 4):
        await ctx.progress(done, total=4, message=f"Step {done}")
    await ctx.elicit("Go on?", str, key="go")
    await ctx.progress(4, total=4, message="Step 4")
    return "worked"


# --- what is called without questions ---------------------------------------------------------------------------------


@app.tool
def add(
    text: str,
    count: int = 1,
    ratio: float = 0.5,
    loud: bool = False,
    tags: list[str] = [],
    sizes: list[int] = [],
    extra: dict[str, int] = {},
    maybe: int | None = None,
) -> dict[str, object]:
    """Give back what was given.

    Args:
        text: Anything.
    """
    return {
        "text": text,
        "count": count,
        "ratio": ratio,
        "loud": loud,
        "tags": tags,
        "sizes": sizes,
        "extra": extra,
        "maybe": maybe,
    }


@app.tool
def patients() -> list[dict[str, object]]:
    """A table."""
    return [{"name": "Ada", "age": 36, "vip": True}, {"name": "[bold]Bob", "age": 5, "vip": None}]


@app.tool
def fail() -> str:
    """Fails, in words."""
    raise ToolError("There is no room.")


@app.tool
def crash() -> str:
    """Fails without words."""
    raise RuntimeError("secret")


@app.tool
async def leave() -> str:
    """Ends the server's process."""
    os._exit(7)


@app.tool
async def sleep(seconds: float) -> str:
    """Takes its time."""
    sys.stderr.write("sleeping\n")
    sys.stderr.flush()
    await asyncio.sleep(seconds)
    return "awake"


@app.tool
def scan() -> list[Image | ResourceLink]:
    """A picture, and a link."""
    return [Image(b"<svg/>", "image/svg+xml"), ResourceLink(uri="file:///card", name="card", mime_type="text/plain")]


@app.resource("card://{id}")
def card(id: str) -> str:
    """A patient's card."""
    return f"Card {id}\n"


@app.resource("stamp://red", mime_type="image/png")
def stamp() -> bytes:
    """A stamp."""
    return b"\x89PNG"


@app.prompt
async def letter(to: str, ctx: Context, tone: str = "kind") -> str:
    """Write a letter.

    Args:
        to: Who gets it.
    """
    answer = await ctx.elicit("About what?", str, key="about")
    return f"Write to {to}, {tone}, about {answer.value if isinstance(answer, Accepted) else 'nothing'}."
