"""The screens in docs/calling.md are what a terminal shows."""

import re
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("pty", reason="pseudo-terminals are POSIX's")
sys.path.insert(0, str(Path(__file__).parent))

from pseudo_terminal import BACKSPACE, DOWN, ENTER, SPACE, PseudoTerminal
from served import SCRIPT

PAGE = (Path(__file__).parents[2] / "docs/calling.md").read_text()
BLOCKS = re.findall(r"^```(.*?)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SERVER = next(body for info, body in BLOCKS if info == 'python title="trips.py"')
SCREENS = [body.rstrip("\n") for info, body in BLOCKS if info == ""]
FOLDER, COLUMNS = "/home/ada", 78


@pytest.fixture
def folder():
    """One with a name so short that it fits on the screen."""
    with tempfile.TemporaryDirectory(prefix="ada", dir="/tmp") as name:
        yield Path(name).resolve()


def test_the_screens_of_the_page_are_the_real_ones(folder):
    (folder / "trips.py").write_text(SERVER)
    asking, reviewing, going_on = SCREENS

    def shown():
        """The screen as if the file were in the page's folder; the rule below a question is drawn anew."""
        text = terminal.text.replace(str(folder), FOLDER)
        return re.sub(r"^(╰─ Esc: .*? )─*╯$", lambda rule: f"{rule[1]:─<{COLUMNS - 1}}╯", text, flags=re.MULTILINE)

    command = [SCRIPT, "call", "trips.py", "book", "traveller=Ada"]
    terminal = PseudoTerminal(command, cwd=folder, columns=COLUMNS, lines=80)
    try:
        terminal.asks("city:").types(DOWN, ENTER).asks("nights")
        terminal.types(BACKSPACE, "20", ENTER).asks("Expected", "? nights")
        terminal.types(BACKSPACE, ENTER).asks("extras").types(DOWN, SPACE).sees("» ● bicycle")
        assert f"$ antiphon call trips.py book traveller=Ada\n{shown()}" == asking
        terminal.types(ENTER).asks("Send this?")
        assert shown().endswith(f"\n{reviewing}")
        terminal.types(ENTER).asks("Book it?").types("y", ENTER)
        assert terminal.ends() == 0
        assert shown().endswith(f"\n{going_on}")
    finally:
        terminal.close()
