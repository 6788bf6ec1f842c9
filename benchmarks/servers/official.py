"""The official `mcp` package: its high-level server, with its dependency form of asking.

`--mode json` and `--mode sse` are without sessions; `--mode sessions` serves clients of 2025-11-25, with JSON, which is
its fastest.
"""

import json
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel
from serving import main

server = MCPServer("bench", version="1.0.0", log_level="ERROR")


class Confirm(BaseModel):
    confirm: bool


def ask_to_confirm(env: str) -> Elicit[Confirm]:
    return Elicit(f"Deploy to {env}?", Confirm)


@server.tool()
async def echo(text: str) -> str:
    """Return the text."""
    return text


@server.tool()
async def deploy(env: str, sure: Annotated[Confirm, Resolve(ask_to_confirm)]) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if sure.confirm else "Left alone"


@server.tool()
async def length(text: str) -> str:
    """Count the characters of a text."""
    return f"{len(text)} characters"


@server.tool()
async def count(rows: list[Any]) -> str:
    """Count the rows of a table."""
    return f"{len(rows)} rows"


FORM = {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


@server.tool()
async def interview(questions: int, ctx: Context) -> str | InputRequiredResult:
    """Ask one question after the other; the answers travel in the state, as its documentation does it."""
    heard = json.loads(ctx.request_state or "[]")
    answers: dict[str, Any] = dict(ctx.input_responses or {})
    heard += [answer.content["value"] for answer in answers.values()]
    if len(heard) == questions:
        return "Thank you"
    asked = ElicitRequestFormParams(message=f"Question {len(heard)}?", requested_schema=FORM)
    requests: Any = {f"question-{len(heard)}": ElicitRequest(params=asked)}
    return InputRequiredResult(input_requests=requests, request_state=json.dumps(heard))


@server.tool()
async def approve(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms, in the middle of the call: for clients of 2025-11-25."""
    answer = await ctx.elicit(f"Deploy to {env}?", Confirm)
    return f"Deployed to {env}" if answer.action == "accept" else "Left alone"


@server.tool()
async def work(steps: int, ctx: Context) -> str:
    """Report progress after each step."""
    for number in range(1, steps + 1):
        await ctx.report_progress(number, steps, f"step {number}")
    return f"did {steps} steps"


def http() -> Any:
    return server.streamable_http_app(json_response=True, stateless_http=True)


MODES = {
    "json": http,
    "sse": lambda: server.streamable_http_app(stateless_http=True),
    "sessions": lambda: server.streamable_http_app(json_response=True),
    "sessions-sse": server.streamable_http_app,
}

if __name__ == "__main__":
    main(MODES, server.run)
