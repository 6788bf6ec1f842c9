"""A server with everything that the page of `antiphon inspect` shows, and one tool that means harm."""

import asyncio
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from antiphon import Context, Server

app = Server("travel", version="1.0.0")
HOSTILE = "</pre><script>document.title = 'gone'</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c \x1b[2J"
LONG = "la" * 512 * 1024


@dataclass
class Trip:
    city: Literal["Kyoto", "Lisbon", "Oslo"]
    nights: Annotated[int, Meta(ge=1, le=14, description="From 1 to 14.")] = 3


@app.tool
async def book(traveller: str, ctx: Context) -> str:
    """Book a trip: asks where to, finds a price, and asks again before it books."""
    trip = (await ctx.elicit(f"Where to, {traveller}?", Trip, key="trip")).unwrap()
    price = await ctx.step("price", lambda: trip.nights * 80 + 40)
    if not await ctx.confirm(f"{trip.nights} nights in {trip.city} for {price} euros. Book it?", key="sure"):
        return "Nothing was booked."
    return f"Booked: {trip.nights} nights in {trip.city} for {traveller}, {price} euros."


@dataclass
class Stop:
    city: str
    days: int = 1


@dataclass
class Home:
    street: str
    town: str = "Bath"


@app.tool
def plan(
    name: str,
    stops: list[Stop],
    home: Home | None = None,
    tags: list[Literal["slow", "green"]] | None = None,
    budget: float | None = None,
    insured: bool = True,
) -> dict[str, object]:
    """Plan a journey with several stops."""
    return {
        "name": name,
        "stops": [[stop.city, stop.days] for stop in stops],
        "home": None if home is None else [home.street, home.town],
        "tags": tags,
        "budget": budget,
        "insured": insured,
    }


@app.tool
async def review(ctx: Context) -> str:
    """Ask everything at once: a form, a page, a model, and the roots."""
    sure, page, model, roots = await asyncio.gather(
        ctx.confirm("Continue?", key="sure"),
        ctx.elicit_url("Sign in to continue", "https://ada@login.example/auth?to=here", key="page"),
        ctx.sample("Summarize the diff", max_tokens=200, key="model"),
        ctx.roots(key="roots"),
    )
    return f"{sure}, {page.action}, {model.text}, {[str(root.uri) for root in roots]}"


@app.tool
async def pack(ctx: Context) -> str:
    """Report progress and write to the log."""
    await ctx.log("warning", "the suitcase is full")
    await ctx.progress(1, 2, "packing")
    return "packed"


@app.tool
async def harm(ctx: Context) -> str:
    """Mean harm. </small><script>document.title = 'gone'</script> \u202e"""
    await ctx.elicit(
        HOSTILE, {"type": "object", "properties": {"value": {"type": "string", "title": HOSTILE}}}, key="ask"
    )
    return f"{HOSTILE} {LONG}"


@app.tool
async def clock(ctx: Context) -> str:
    """Return another result on every round."""
    await ctx.confirm("Now?", key="sure")
    return f"{time.time()}"


@app.tool
def fail() -> str:
    """Fail at once."""
    raise ValueError("the ferry is gone")


@app.prompt
def itinerary(city: Literal["Kyoto", "Lisbon", "Oslo"], days: int = 2) -> str:
    """Write an itinerary."""
    return f"Write {days} days in {city}."


@app.resource("trip://{number}")
def trip(number: str) -> str:
    """A trip that was booked."""
    return f"Trip {number} goes to Oslo."


@app.resource("trip://last")
def last() -> str:
    """The last trip."""
    return "The last trip went to Kyoto."
