"""All four kinds of question in one result: a form, a page, a completion and the roots.

From the TypeScript SDK's page on ``input_required``. (Sampling and roots are deprecated by revision 2026-07-28.)
"""

import asyncio
from typing import Annotated

from antiphon import (
    Answer,
    Ask,
    Context,
    Elicited,
    InputRequired,
    Question,
    Root,
    Rooted,
    Sample,
    Sampled,
    Server,
    ask,
    input_required,
)

app = Server("four-kinds", version="1.0.0")

SIGN_IN = "https://example.com/auth"


@app.tool
async def review(ctx: Context) -> str:
    """Review a change with everybody's help."""
    go, signed_in, summary, roots = await asyncio.gather(
        ctx.confirm("Continue?", key="confirm"),
        ctx.elicit_url("Sign in to continue", SIGN_IN, key="signin"),
        ctx.sample("Summarize the diff", max_tokens=200, key="summary"),
        ctx.roots(key="roots"),
    )
    return _told(go, signed_in.action == "accept", summary.text, len(roots))


@app.tool
async def review_returning(ctx: Context) -> str | InputRequired:
    """Review a change with everybody's help."""
    match ctx.accepted("confirm", bool), ctx.response("signin"), ctx.response("summary"), ctx.response("roots"):
        case bool(go), Elicited(action=action), Sampled(summary), Rooted(roots):
            return _told(go, action == "accept", summary.text, len(roots))
    return input_required(
        {
            "confirm": ask.form("Continue?", bool),
            "signin": ask.url("Sign in to continue", SIGN_IN),
            "summary": ask.sample("Summarize the diff", max_tokens=200),
            "roots": ask.roots(),
        }
    )


def sign_in() -> Question:
    return ask.url("Sign in to continue", SIGN_IN)


def summarize() -> Question:
    return ask.sample("Summarize the diff", max_tokens=200)


@app.tool
async def review_declaring(
    confirm: Annotated[bool, Ask("Continue?")],
    signin: Annotated[Answer[None], Ask(sign_in)],
    summary: Annotated[Sample, Ask(summarize)],
    roots: Annotated[list[Root], Ask(ask.roots)],
) -> str:
    """Review a change with everybody's help."""
    return _told(confirm, signin.action == "accept", summary.text, len(roots))


def _told(go: bool, signed_in: bool, summary: str, roots: int) -> str:
    pace, who = "Going on" if go else "Stopping", "signed in" if signed_in else "not signed in"
    return f"{pace}, {who}: {summary} ({roots} roots)"


if __name__ == "__main__":
    app.run("http")
