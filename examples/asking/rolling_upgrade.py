"""A rolling upgrade between two legs: the newer tool asks for something else, and no answer is lost.

The flow of SEP-2322: the old release asks for a GitHub and a Google login, the new one for GitHub and Microsoft. What
the user said to the old instance about GitHub still counts on the new one.
"""

import asyncio
from typing import Annotated

from antiphon import Ask, Context, InputRequired, Server, ask, input_required


def release(second: str, **options: object) -> Server:
    """One release of the server: the second login is what the upgrade changed."""
    app = Server("logins", version="1.0.0", **options)  # type: ignore[arg-type]

    @app.tool
    async def connect(ctx: Context) -> str:
        """Connect two accounts."""
        github, other = await asyncio.gather(
            ctx.elicit("Your GitHub login?", str, key="github_login"),
            ctx.elicit(f"Your {second} login?", str, key=f"{second.lower()}_login"),
        )
        return f"Connected {github.unwrap()} and {other.unwrap()}"

    @app.tool
    async def connect_returning(ctx: Context) -> str | InputRequired:
        """Connect two accounts."""
        key = f"{second.lower()}_login"
        github, other = ctx.accepted("github_login", str), ctx.accepted(key, str)
        wanted = {}
        if github is None:
            wanted["github_login"] = ask.form("Your GitHub login?", str)
        if other is None:
            wanted[key] = ask.form(f"Your {second} login?", str)
        return input_required(wanted) if wanted else f"Connected {github} and {other}"

    def other_login() -> object:
        return ask.form(f"Your {second} login?", str, key=f"{second.lower()}_login")

    @app.tool
    async def connect_declaring(
        github_login: Annotated[str, Ask("Your GitHub login?")], other: Annotated[str, Ask(other_login)]
    ) -> str:
        """Connect two accounts."""
        return f"Connected {github_login} and {other}"

    return app


app = release("Microsoft")

if __name__ == "__main__":
    app.run("http")
