"""``antiphon init``: a small server that asks, and its tests, to start from."""

import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

SERVER: Final = '''\
"""A server whose tool asks. Call it:  antiphon call notes.py add title=Milk"""

from antiphon import Context, Server

app = Server("notes", version="0.1.0")
notes: dict[str, list[str]] = {"home": [], "work": []}


@app.tool
async def add(title: str, ctx: Context) -> str:
    """Add a note to the list that the user chooses."""
    answer = await ctx.elicit(f"Which list is {title} for?", ["home", "work"])
    # The tool runs again from the top with every answer: change things after the last question.
    chosen = answer.unwrap()
    notes[chosen].append(title)
    return f"Added {title} to {chosen}"


if __name__ == "__main__":
    app.run()
'''
SUITE: Final = """\
# Run it:  antiphon test
server: {app: notes.py}

tests:
  - name: adds a note to the chosen list
    tool: add
    arguments: {title: Milk}
    inputResponses: {value: home}
    expect:
      text: Added Milk to home
      rounds: 2

  - name: adds nothing when the user declines
    tool: add
    arguments: {title: Milk}
    inputResponses: {value: decline}
    expect:
      isError: true
"""
TESTS: Final = '''\
"""Run it:  pytest"""

import pytest
from notes import app, notes


@pytest.fixture
def mcp_server():
    return app


def test_a_note_goes_to_the_chosen_list(mcp_client, answers):
    answers(value="work")
    result = mcp_client.call_tool("add", {"title": "Report"})
    assert result.text == "Added Report to work"
    assert notes["work"] == ["Report"]


def test_the_tool_can_run_again_with_every_answer(mcp_client, answers):
    answers(value="home")
    report = mcp_client.check_replay_safety("add", {"title": "Milk"})
    assert report.ok, report
'''
FILES: Final = {"notes.py": SERVER, "notes.mcp.yaml": SUITE, "test_notes.py": TESTS}


@click.command("init")
@click.argument("folder", default=".", type=click.Path(path_type=Path))
def init_command(*, folder: Path) -> None:
    """Start a new server in FOLDER: a tool that asks, a suite in YAML, and a pytest file.

    FOLDER is made if it does not exist. No file is overwritten. To write tests for a server that you have, use
    antiphon init-tests.
    """
    if folder.is_file():
        raise click.UsageError(f"{folder} is a file. To write tests for that server:  antiphon init-tests {folder}")
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise click.UsageError(f"{', '.join(there)} in {folder} would be overwritten: choose another FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as fault:
        raise click.ClickException(f"Cannot write to {folder}: {fault.strerror}") from None
    go = "" if folder.resolve() == Path.cwd() else f"  cd {shlex.quote(str(folder))}\n"
    need = "" if find_spec("pytest") else "       (first: pip install pytest)"
    click.echo(
        f"Wrote {', '.join(FILES)}. Try:\n\n{go}"
        f"  antiphon call notes.py add title=Milk\n  antiphon test\n  pytest{need}\n"
    )
