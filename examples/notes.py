"""The sample of the README: a server that keeps notes."""

from antiphon import Context, Image, ResourceNotFound, Server, ToolError

app = Server("notes", version="1.0.0", instructions="Keeps notes.")

NOTES: dict[str, dict[str, object]] = {"1": {"title": "Welcome", "body": "Write something down.", "tags": []}}
DOT = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010804000000b51c0c020000000b4944415478da63fcff1f0002eb01f8"
    "8f2c9ee60000000049454e44ae426082"
)


@app.tool
async def add(title: str, body: str = "", tags: list[str] = []) -> dict[str, str]:
    """Add a note.

    Args:
        title: Shown in lists.
        body: Markdown.
        tags: To find it again.
    """
    if not title.strip():
        raise ToolError("A note needs a title.")
    key = str(len(NOTES) + 1)
    NOTES[key] = {"title": title, "body": body, "tags": tags}
    app.changed("resources")
    return {"id": key, "uri": f"note://{key}"}


@app.tool
def picture() -> Image:
    """A picture of one dot."""
    return Image(DOT)


@app.resource("note://{id}", mime_type="text/markdown")
async def note(id: str) -> str:  # noqa: A002
    """A note as Markdown."""
    found = NOTES.get(id)
    if found is None:
        raise ResourceNotFound(f"note://{id}")
    return f"# {found['title']}\n\n{found['body']}\n"


@app.prompt
def summarise(topic: str, ctx: Context) -> str:
    """Summarise the notes on a topic."""
    return f"Summarise for {ctx.client.name or 'me'} what the notes say about {topic}."


if __name__ == "__main__":
    app.run()  # stdio; app.run("http", port=8000) serves streamable HTTP at /mcp
