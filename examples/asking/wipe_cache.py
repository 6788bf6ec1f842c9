"""Confirm, then pick a scope, then wipe: rounds that must run in sequence.

From the TypeScript SDK's page on ``input_required``. The return style carries what it has learned in its state; the
other two need none.
"""

from typing import Annotated, Literal

from antiphon import Ask, Context, InputRequired, Question, Server, ask, input_required

app = Server("wipe-cache", version="1.0.0")


@app.tool
async def wipe_cache(ctx: Context) -> str:
    """Confirm, then pick a scope, then wipe."""
    if not await ctx.confirm("Really wipe the cache?"):
        return "Left alone"
    scope = await ctx.elicit("Which scope?", str, key="scope")
    return f"Wiped {scope.unwrap()}"


@app.tool
async def wipe_cache_returning(ctx: Context) -> str | InputRequired:
    """Confirm, then pick a scope, then wipe."""
    state = ctx.state(dict[str, Literal["confirmed"]])
    if state is None:
        confirmed = ctx.accepted("confirm", bool)
        if confirmed is None:
            return input_required({"confirm": ask.form("Really wipe the cache?", bool)})
        if not confirmed:
            return "Left alone"
        # Mint only what the answer above has proved: the operator confirmed.
        return input_required({"scope": ask.form("Which scope?", str)}, state={"step": "confirmed"})
    scope = ctx.accepted("scope", str)
    if scope is None:
        return input_required({"scope": ask.form("Which scope?", str)}, state=state)
    return f"Wiped {scope}"


def which_scope(confirm: bool) -> str | Question:
    """Only a confirmed wipe needs a scope."""
    return ask.form("Which scope?", str) if confirm else ""


@app.tool
async def wipe_cache_declaring(
    confirm: Annotated[bool, Ask("Really wipe the cache?")], scope: Annotated[str, Ask(which_scope)]
) -> str:
    """Confirm, then pick a scope, then wipe."""
    return f"Wiped {scope}" if confirm else "Left alone"


if __name__ == "__main__":
    app.run("http")
