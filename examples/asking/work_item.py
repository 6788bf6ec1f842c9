"""Resolve a work item: how, and if it is a duplicate, of which one.

The flow of SEP-2322: the second question exists only because of the first answer.
"""

from typing import Annotated, Literal

from antiphon import Ask, Context, InputRequired, Question, Server, ask, input_required

app = Server("work-items", version="1.0.0")

Resolution = Literal["Fixed", "Won't Fix", "Duplicate", "By Design"]
ORIGINAL = "Since this is a duplicate, which work item is the original?"


@app.tool
async def resolve(item: int, ctx: Context) -> str:
    """Set a work item's state to Resolved."""
    how = (await ctx.elicit(f"Resolving Bug #{item} requires a resolution.", Resolution, key="resolution")).unwrap()
    original = (await ctx.elicit(ORIGINAL, int, key="duplicate_of")).unwrap() if how == "Duplicate" else None
    return _told(item, how, original)


@app.tool
async def resolve_returning(item: int, ctx: Context) -> str | InputRequired:
    """Set a work item's state to Resolved."""
    how = ctx.accepted("resolution", Resolution)
    if how is None:
        return input_required({"resolution": ask.form(f"Resolving Bug #{item} requires a resolution.", Resolution)})
    original = ctx.accepted("duplicate_of", int)
    if how == "Duplicate" and original is None:
        # The resolution need not be carried in a state: answers accumulate.
        return input_required({"duplicate_of": ask.form(ORIGINAL, int)})
    return _told(item, how, original)


def duplicate_of(resolution: str) -> int | Question | None:
    return ask.form(ORIGINAL, int) if resolution == "Duplicate" else None


@app.tool
async def resolve_declaring(
    item: int,
    resolution: Annotated[Resolution, Ask("Resolving Bug #{item} requires a resolution.")],
    duplicate: Annotated[int | None, Ask(duplicate_of)],
) -> str:
    """Set a work item's state to Resolved."""
    return _told(item, resolution, duplicate)


def _told(item: int, how: str, original: int | None) -> str:
    return f"Bug #{item} resolved as {how}" + (f" of Bug #{original}." if original else ".")


if __name__ == "__main__":
    app.run("http")
