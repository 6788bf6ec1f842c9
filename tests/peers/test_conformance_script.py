"""The script that runs the official suite tells what it judged, and what it did not."""

import sys
from collections import Counter
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def conformance(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    import conformance

    yield conformance
    for name in ("conformance", "node"):
        del sys.modules[name]


def test_every_scenario_is_counted_once(conformance, capsys):
    leg = conformance.Leg(side="client", revision="x", program="p", required=3, also=("extra",))
    fine, bad = Counter(SUCCESS=1), Counter(FAILURE=1)
    outcomes = [
        conformance.Outcome(scenario="plain", counts=fine),
        conformance.Outcome(scenario="broken", counts=bad, complaints=("why",)),
        conformance.Outcome(scenario="extra", counts=fine),
        conformance.Outcome(scenario="unscored"),
    ]
    counts = conformance.judge(leg, outcomes, ["plain", "broken"], None)
    assert counts.total() == len(outcomes)
    assert conformance.summary(counts) == "2 passed, 1 failed; 1 not judged"
    assert conformance.summary(Counter(passed=2)) == "2 passed, 0 failed"
    assert "    why" in capsys.readouterr().out
