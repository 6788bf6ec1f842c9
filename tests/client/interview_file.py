"""A server that asks three questions and writes down what it does: `python interview_file.py PORT DIARY`."""

import os
import sys
from pathlib import Path

from antiphon import Context, Server

app = Server("interview")
DIARY = Path(sys.argv[2])


def note(line: str) -> None:
    with DIARY.open("a") as diary:
        diary.write(f"{os.getpid()} {line}\n")


@app.tool
async def interview(topic: str, ctx: Context) -> str:
    """Ask a name, an age and for a confirmation; book in between."""
    name = (await ctx.elicit(f"Name, about {topic}?", str)).unwrap()
    booking = await ctx.step("book", book, name)
    age = (await ctx.elicit(f"Age of {name}?", int)).unwrap()
    sure = await ctx.confirm(f"{name}, {age}?")
    note(f"done {name}")
    return f"{booking}: {name}, {age}, {sure}"


def book(name: str) -> str:
    note(f"booked {name}")
    return f"booking for {name}"


if __name__ == "__main__":
    app.run("http", port=int(sys.argv[1]))
