"""Which region should the database live in? One question, with the options on offer.

From the Python SDK's page on multi-round-trip requests; the last tool is the same on the low level.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from antiphon import Ask, Context, InputRequired, Server, ask, input_required

app = Server("region", version="1.0.0")
low_level = Server("region-low-level", version="1.0.0")

Region = Literal["eu-west-1", "us-east-1", "ap-south-1"]
QUESTION = "Which region should the database live in?"


@dataclass
class Where:
    region: Region


@app.tool
async def provision(name: str, ctx: Context) -> str:
    """Provision a database. Asks which region to put it in."""
    where = await ctx.elicit(QUESTION, Where, key="region")
    return f"Provisioned {name!r} in {where.unwrap().region}."


@app.tool
async def provision_returning(name: str, ctx: Context) -> str | InputRequired:
    """Provision a database. Asks which region to put it in."""
    where = ctx.accepted("region", Where)
    if where is None:
        return input_required({"region": ask.form(QUESTION, Where)})
    return f"Provisioned {name!r} in {where.region}."


@app.tool
async def provision_declaring(name: str, region: Annotated[Where, Ask(QUESTION)]) -> str:
    """Provision a database. Asks which region to put it in."""
    return f"Provisioned {name!r} in {region.region}."


@low_level.on("tools/list")
async def list_tools(params: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return {"tools": [{"name": "provision", "description": "Provision a database.", "inputSchema": schema}]}


@low_level.on("tools/call")
async def call_tool(params: dict[str, Any], ctx: Context) -> dict[str, Any] | InputRequired:
    where = ctx.accepted("region", Where)
    if where is None:
        return input_required({"region": ask.form(QUESTION, Where)}, state="provision-v1")
    text = f"Provisioned {params['arguments']['name']!r} in {where.region}."
    return {"content": [{"type": "text", "text": text}]}


if __name__ == "__main__":
    app.run("http")
