"""The official Python server, asking: `python asking_server.py` over stdio, `python asking_server.py --http PORT`."""

import sys
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

server = MCPServer("official-python", version="2.3.0", log_level="ERROR")

FORM = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "enum": ["eu", "us"]},
        "replicas": {"type": "integer", "default": 2, "minimum": 1},
    },
    "required": ["region"],
}


def user(text):
    return SamplingMessage(role="user", content=TextContent(type="text", text=text))


QUESTIONS = {
    "form": ElicitRequest(params=ElicitRequestFormParams(message="Where?", requested_schema=FORM)),
    "url": ElicitRequest(
        params=ElicitRequestURLParams(message="Sign in", url="https://example.com/sign-in", elicitation_id="1")
    ),
    "model": CreateMessageRequest(params=CreateMessageRequestParams(messages=[user("Name it")], max_tokens=20)),
    "roots": ListRootsRequest(),
}


def told(key, answer):
    """An answer in a few words."""
    match key:
        case "form":
            return f"{answer.content['region']}x{answer.content['replicas']}" if answer.content else answer.action
        case "url":
            return answer.action
        case "model":
            return answer.content.text
        case _:
            return ",".join(str(root.uri) for root in answer.roots)


@server.tool()
async def at_once(ctx: Context) -> str | InputRequiredResult:
    """Ask everything in one round."""
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests=QUESTIONS, request_state="everything")
    return "; ".join([*[told(key, answers[key]) for key in QUESTIONS], str(ctx.request_state)])


@server.tool()
async def one_by_one(ctx: Context) -> str | InputRequiredResult:
    """Ask everything, a round for each; what was heard travels in the state."""
    heard = ctx.request_state.split("; ") if ctx.request_state else []
    keys = list(QUESTIONS)
    if ctx.input_responses:
        key = keys[len(heard)]
        heard.append(told(key, ctx.input_responses[key]))
    if len(heard) == len(keys):
        return "; ".join(heard)
    key = keys[len(heard)]
    return InputRequiredResult(input_requests={key: QUESTIONS[key]}, request_state="; ".join(heard))


class Confirm(BaseModel):
    confirm: bool


def ask_to_confirm(env: str) -> Elicit[Confirm]:
    return Elicit(f"Deploy to {env}?", Confirm)


def ask_the_model() -> Sample:
    return Sample([user("Name it")], max_tokens=20)


def ask_for_roots() -> ListRoots:
    return ListRoots()


@server.tool()
async def declared(
    env: str,
    sure: Annotated[Confirm, Resolve(ask_to_confirm)],
    name: Annotated[CreateMessageResult, Resolve(ask_the_model)],
    roots: Annotated[ListRootsResult, Resolve(ask_for_roots)],
) -> str:
    """Ask by its parameters."""
    return f"{env} {sure.confirm} {name.content.text} {roots.roots[0].uri}"


@server.tool()
async def waits(ctx: Context) -> str | InputRequiredResult:
    """Want the call again twice, without asking anything."""
    times = len(ctx.request_state or "")
    return "waited" if times == 2 else InputRequiredResult(request_state="x" * (times + 1))


@server.tool()
async def count(to: int, ctx: Context) -> str:
    """Count, and say how far along it is."""
    for number in range(1, to + 1):
        await ctx.report_progress(number, to, f"step {number}")
    return f"counted to {to}"


@server.tool()
async def add(a: int, b: int = 1) -> dict[str, int]:
    """Add two numbers."""
    return {"total": a + b}


@server.prompt()
async def greeting(ctx: Context) -> str | InputRequiredResult:
    """A greeting, for a region."""
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests={"form": QUESTIONS["form"]})
    return f"Greet {told('form', answers['form'])}"


@server.resource("note://{name}")
async def note(name: str, ctx: Context) -> str | InputRequiredResult:
    """A note, for a region."""
    answers = ctx.input_responses
    if not answers:
        return InputRequiredResult(input_requests={"form": QUESTIONS["form"]}, request_state="n")
    return f"{name} for {told('form', answers['form'])}"


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run()
