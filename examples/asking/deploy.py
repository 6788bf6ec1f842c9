"""Deploy after the operator confirms: one question, one box to tick.

From the TypeScript SDK's page on ``input_required``, in all three styles.
"""

from dataclasses import dataclass
from typing import Annotated

from antiphon import Ask, Context, InputRequired, Server, ask, input_required

app = Server("deploy", version="1.0.0")


@dataclass
class Confirm:
    confirm: bool


@app.tool
async def deploy(env: str, ctx: Context) -> str:
    """Deploy after the operator confirms."""
    if await ctx.confirm(f"Deploy to {env}?"):
        return f"Deployed to {env}"
    return "Not deployed"


@app.tool
async def deploy_returning(env: str, ctx: Context) -> str | InputRequired:
    """Deploy after the operator confirms."""
    answer = ctx.accepted("confirm", Confirm)
    if answer is None:
        return input_required({"confirm": ask.form(f"Deploy to {env}?", Confirm)})
    return f"Deployed to {env}" if answer.confirm else "Not deployed"


@app.tool
async def deploy_declaring(env: str, confirm: Annotated[bool, Ask("Deploy to {env}?")]) -> str:
    """Deploy after the operator confirms."""
    return f"Deployed to {env}" if confirm else "Not deployed"


if __name__ == "__main__":
    app.run("http")
