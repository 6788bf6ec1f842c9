"""The script that runs the official suite tells what it judged, and what it did not."""

import ast
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


def test_every_scenario_of_authorization_is_judged(conformance):
    legs = {leg.revision: leg for leg in conformance.LEGS if leg.side == "client"}
    assert (legs["2025-11-25"].required, legs["2026-07-28"].required) == (18, 32)
    for leg in legs.values():
        assert set(conformance.EXTENSIONS) <= set(leg.also)
    assert set(conformance.OLDER) <= set(legs["2025-11-25"].also)
    program = (SCRIPTS.parent / legs["2026-07-28"].program).read_text()
    assert len(program.splitlines()) <= 120
    imported = [node.module for node in ast.walk(ast.parse(program)) if isinstance(node, ast.ImportFrom)]
    assert {module for module in imported if module.startswith("antiphon")} == {"antiphon", "antiphon.auth"}
