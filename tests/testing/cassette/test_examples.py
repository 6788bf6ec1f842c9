"""The recordings of examples/suites: each suite passes without its server, each file is as it would be written."""

import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.testing.cassette import Cassette

SUITES = Path(__file__).parents[3] / "examples" / "suites"
TAPES = sorted((SUITES / "cassettes").glob("*.json"))


def test_every_suite_passes_from_its_recording() -> None:
    antiphon = str(Path(sys.executable).with_name("antiphon"))
    command = [antiphon, "test", str(SUITES), "--quiet", "--replay", str(SUITES / "cassettes")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
    assert " passed in " in done.stdout


@pytest.mark.parametrize("tape", TAPES, ids=lambda tape: tape.stem)
def test_a_recording_is_as_it_would_be_written(tape: Path) -> None:
    assert Cassette.load(tape).to_json() == tape.read_text()
