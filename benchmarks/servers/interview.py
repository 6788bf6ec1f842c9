"""A server that asks many questions, one after the other."""

from typing import Any

from serving import main

from antiphon import Context, Server

server = Server("interview", version="1.0.0")


@server.tool
async def interview(questions: int, ctx: Context) -> str:
    """Ask one question after the other."""
    for number in range(questions):
        await ctx.elicit(f"Question {number}?", str, key=f"question-{number}")
    return "Thank you"


@server.tool
async def review(questions: int, ctx: Context) -> str:
    """The same, after a completion that stays in the journal."""
    await ctx.sample("Summarize the diff", max_tokens=10_000, key="summary")
    return await interview(questions, ctx)


def http() -> Any:
    return server.asgi()


if __name__ == "__main__":
    main(http, server.run)
