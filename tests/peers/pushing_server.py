"""The official Python server, asking in the middle of its calls: `python pushing_server.py` [`--http PORT`].

It does so only with clients of the older revisions.
"""

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import SamplingMessage, TextContent
from pydantic import BaseModel, Field

server = MCPServer("pushing-python", version="2.3.0", log_level="ERROR")


class Where(BaseModel):
    region: str
    replicas: int = Field(default=2, ge=1)


@server.tool()
async def one_by_one(ctx: Context) -> str:
    """Ask everything, one after the other."""
    where = await ctx.elicit("Where?", Where)
    visit = await ctx.elicit_url("Sign in", "https://example.com/sign-in", elicitation_id="1")
    asked = [SamplingMessage(role="user", content=TextContent(type="text", text="Name it"))]
    name = await ctx.session.create_message(asked, max_tokens=20, related_request_id=ctx.request_id)
    roots = await ctx.session.list_roots()
    await ctx.report_progress(1, 1)
    told = [f"{where.data.region}x{where.data.replicas}", visit.action, name.content.text, str(roots.roots[0].uri)]
    return "; ".join(told)


if __name__ == "__main__":
    if "--http" in sys.argv:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[sys.argv.index("--http") + 1]))
    else:
        server.run()
