"""Tag a release, and take no for an answer.

From the TypeScript SDK's page on ``input_required``: a client that declines.
"""

from dataclasses import dataclass
from typing import Annotated

from antiphon import (
    Accepted,
    Answer,
    Ask,
    Cancelled,
    Context,
    Declined,
    Elicited,
    InputRequired,
    Server,
    ToolError,
    ask,
    input_required,
)

app = Server("tag-release", version="1.0.0")

CANCELLED = "Tagging cancelled by the operator"


@dataclass
class Confirm:
    confirm: bool


@app.tool
async def tag_release(tag: str, ctx: Context) -> str:
    """Tag a release after the operator confirms."""
    match await ctx.elicit(f"Tag {tag}?", Confirm):
        case Accepted(Confirm(confirm=True)):
            return f"Tagged {tag}"
        case Accepted():
            return "Left untagged"
        case Declined() | Cancelled():
            raise ToolError(CANCELLED)


@app.tool
async def tag_release_returning(tag: str, ctx: Context) -> str | InputRequired:
    """Tag a release after the operator confirms."""
    match ctx.response("confirm"):
        case Elicited(action="decline" | "cancel"):
            raise ToolError(CANCELLED)
    answer = ctx.accepted("confirm", Confirm)
    if answer is None:
        return input_required({"confirm": ask.form(f"Tag {tag}?", Confirm)})
    return f"Tagged {tag}" if answer.confirm else "Left untagged"


@app.tool
async def tag_release_declaring(tag: str, confirm: Annotated[Answer[bool], Ask("Tag {tag}?")]) -> str:
    """Tag a release after the operator confirms."""
    match confirm:
        case Accepted(True):
            return f"Tagged {tag}"
        case Accepted():
            return "Left untagged"
        case Declined() | Cancelled():
            raise ToolError(CANCELLED)


if __name__ == "__main__":
    app.run("http")
