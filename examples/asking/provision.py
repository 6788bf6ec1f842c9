"""Provision a database: two questions that do not depend on each other, in one round.

From the TypeScript SDK's page on ``input_required``.
"""

import asyncio
from typing import Annotated

from antiphon import Ask, Context, InputRequired, Server, ask, input_required

app = Server("provision", version="1.0.0")


@app.tool
async def provision(ctx: Context) -> str:
    """Provision a database."""
    name, region = await asyncio.gather(
        ctx.elicit("Database name?", str, key="name"),
        ctx.elicit("Which region?", str, key="region"),
    )
    return f"Provisioned {name.unwrap()} in {region.unwrap()}"


@app.tool
async def provision_returning(ctx: Context) -> str | InputRequired:
    """Provision a database."""
    name, region = ctx.accepted("name", str), ctx.accepted("region", str)
    wanted = {}
    if name is None:
        wanted["name"] = ask.form("Database name?", str)
    if region is None:
        wanted["region"] = ask.form("Which region?", str)
    return input_required(wanted) if wanted else f"Provisioned {name} in {region}"


@app.tool
async def provision_declaring(
    name: Annotated[str, Ask("Database name?")], region: Annotated[str, Ask("Which region?")]
) -> str:
    """Provision a database."""
    return f"Provisioned {name} in {region}"


if __name__ == "__main__":
    app.run("http")
