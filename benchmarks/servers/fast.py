"""FastMCP: with JSON, with event streams, or with sessions for clients of 2025-11-25."""

import json
from typing import Any

from fastmcp import Context, FastMCP
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel
from serving import main

server = FastMCP("bench", version="1.0.0")


def asked(key: str, message: str, kind: str, state: str) -> InputRequiredResult:
    form = {"type": "object", "properties": {key: {"type": kind}}, "required": [key]}
    requests: Any = {key: ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=form))}
    return InputRequiredResult(input_requests=requests, request_state=state)


@server.tool
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool
async def deploy(env: str, ctx: Context) -> str | InputRequiredResult:
    """Deploy after the operator confirms."""
    answers: Any = ctx.input_responses
    if not answers:
        return asked("confirm", f"Deploy to {env}?", "boolean", env)
    return f"Deployed to {env}" if answers["confirm"].content["confirm"] else "Left alone"


@server.tool
async def length(text: str) -> str:
    """Count the characters of a text."""
    return f"{len(text)} characters"


@server.tool
async def count(rows: list[Any]) -> str:
    """Count the rows of a table."""
    return f"{len(rows)} rows"


@server.tool
async def interview(questions: int, ctx: Context) -> str | InputRequiredResult:
    """Ask one question after the other; the answers travel in the state."""
    heard = json.loads(ctx.request_state or "[]")
    answers: dict[str, Any] = dict(ctx.input_responses or {})
    heard += [answer.content["value"] for answer in answers.values()]
    if len(heard) == questions:
        return "Thank you"
    return asked("value", f"Question {len(heard)}?", "string", json.dumps(heard))


class Confirm(BaseModel):
    confirm: bool


@server.tool
async def approve(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms, in the middle of the call: for clients of 2025-11-25."""
    answer = await ctx.elicit(f"Deploy to {env}?", Confirm)
    return f"Deployed to {env}" if answer.action == "accept" else "Left alone"


@server.tool
async def work(steps: int, ctx: Context) -> str:
    """Report progress after each step."""
    for number in range(1, steps + 1):
        await ctx.report_progress(number, steps, f"step {number}")
    return f"did {steps} steps"


MODES = {
    "json": lambda: server.http_app(path="/mcp", json_response=True, stateless_http=True),
    "sse": lambda: server.http_app(path="/mcp", stateless_http=True),
    "sessions": lambda: server.http_app(path="/mcp", json_response=True),
    "sessions-sse": lambda: server.http_app(path="/mcp"),
}

if __name__ == "__main__":
    main(MODES, lambda: server.run(show_banner=False))
