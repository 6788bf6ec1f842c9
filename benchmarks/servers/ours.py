"""Antiphon: as `app.run("http")` serves it, or with `--mode uvicorn` under uvicorn's own HTTP."""

from typing import Any

from serving import main

from antiphon import Context, Server

server = Server("bench", version="1.0.0")


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if await ctx.confirm(f"Deploy to {env}?") else "Left alone"


@server.tool
async def approve(env: str, ctx: Context) -> str:
    """The same, by the name that it has elsewhere for clients of 2025-11-25."""
    return await deploy(env, ctx)


@server.tool
async def length(text: str) -> str:
    """Count the characters of a text."""
    return f"{len(text)} characters"


@server.tool
async def count(rows: list[Any]) -> str:
    """Count the rows of a table."""
    return f"{len(rows)} rows"


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


@server.tool
async def work(steps: int, ctx: Context) -> str:
    """Report progress after each step."""
    for number in range(1, steps + 1):
        await ctx.progress(number, steps, f"step {number}")
    return f"did {steps} steps"


def http() -> Any:
    return server.asgi()


if __name__ == "__main__":
    main({"uvicorn": http}, server.run, serve=lambda port: server.run("http", port=port))
