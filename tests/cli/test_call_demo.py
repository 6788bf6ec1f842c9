"""The demonstration: it asks at a terminal, and elsewhere gives prepared answers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

pytestmark = pytest.mark.heavy
ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "examples/demo.py"]
DRAWN = [
    "round 1",
    'you ──▶ A   tools/call book {"traveller": "Ada"}',
    "asks trip: Where to, Ada?",
    "round 2",
    'you ──▶ B   tools/call book {"traveller": "Ada"}',
    "asks confirm:",
    "round 3",
    "you ◀── A   the result",
    "both servers are stopped",
]


def in_order(texts, whole):
    place = 0
    for text in texts:
        assert text in whole[place:], f"{text!r} is missing, or in another place:\n{whole}"
        place = whole.index(text, place)


def test_without_a_terminal_the_demo_answers_by_itself_and_says_so():
    done = subprocess.run(
        COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    in_order(["This is not a terminal", *DRAWN], done.stdout)
    assert "Booked: 3 nights in Kyoto for Ada, 280 euros." in done.stdout
    assert "ap1." not in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals are POSIX's")
def test_in_a_terminal_the_demo_asks():
    from pseudo_terminal import BACKSPACE, CTRL_C, DOWN, ENTER, PseudoTerminal

    terminal = PseudoTerminal(COMMAND, cwd=ROOT)
    try:
        terminal.asks("travel asks", "Where to, Ada?", "» Kyoto").types(DOWN, DOWN, ENTER).asks("nights")
        terminal.types(BACKSPACE, "2", ENTER).asks("Send this?").types(ENTER)
        terminal.asks("2 nights in Oslo for 200 euros. Book it?").types(ENTER)
        assert terminal.ends() == 0
        in_order(DRAWN, terminal.text)
        assert "Nothing was booked." in terminal.text
    finally:
        terminal.close()
    terminal = PseudoTerminal(COMMAND, cwd=ROOT)
    try:
        terminal.asks("Where to, Ada?").types(CTRL_C)
        assert terminal.ends() == 130
        assert "Interrupted; both servers are stopped." in terminal.text
    finally:
        terminal.close()
