"""The suites in examples/suites: ours and foreign servers that ask, in both eras; live, recorded and replayed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.testing.report.terminal import render
from antiphon.testing.suite.loading import load
from antiphon.testing.suite.runner import Settings, run

ROOT = Path(__file__).parents[2]
SUITES = ROOT / "examples" / "suites"
FOREIGN = {
    "official_python": {"2026-07-28", "2025-11-25"},
    "official_typescript": {"2026-07-28", "2025-11-25"},
    "mcp_lite": {"2025-03-26"},
}
INSTALL_TIMEOUT = 360.0
PATIENCE = 60.0


@pytest.fixture(scope="module")
def node():
    """The node binary and its packages, which are installed the first time."""
    found = subprocess.run(
        [sys.executable, ROOT / "scripts" / "node.py"], capture_output=True, timeout=INSTALL_TIMEOUT, check=True
    )
    return json.loads(found.stdout)


@pytest.fixture
def library(node):
    """Where mcp-lite answers."""
    command = [node["node"], SUITES / "servers" / "mcp_lite.mjs", node["modules"], "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture
def servers(node, library, monkeypatch):
    """What the suites expect of the machine."""
    here = f"{Path(sys.executable).parent}{os.pathsep}{Path(node['node']).parent}"
    monkeypatch.setenv("PATH", f"{here}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("NODE_MODULES", node["modules"])
    monkeypatch.setenv("MCP_LITE_URL", library)


@pytest.mark.heavy
@pytest.mark.peers
async def test_foreign_servers_pass_their_suites_and_so_do_the_recordings(servers, tmp_path, monkeypatch):
    suites = [load(SUITES / f"{name}.mcp.yaml") for name in FOREIGN]
    # Whether a loaded machine is quick enough is not what they are about.
    live = await run(suites, settings=Settings(record=tmp_path, jobs=5, timeout=PATIENCE))
    assert live.passed, render(live)
    for name, revisions in FOREIGN.items():
        asking = [each for each in live.outcomes if each.suite == name and any(turn.questions for turn in each.turns)]
        assert {each.era for each in asking} == revisions

    # Nothing is left that could be started.
    monkeypatch.setenv("PATH", os.devnull)
    for suite in suites:
        era = "modern" if suite.target.era == "both" else ""
        replayed = await run(suite, settings=Settings(replay=tmp_path, era=era))
        assert replayed.passed, render(replayed)
        assert [each.name for each in replayed.outcomes] == [case.name for case in suite.cases]
        assert replayed.count("passed") == len(suite.cases)


async def test_our_examples_pass_theirs():
    ours = [load(file) for file in SUITES.glob("*.mcp.yaml") if file.name.removesuffix(".mcp.yaml") not in FOREIGN]
    summary = await run(ours)
    assert summary.passed, render(summary)
    assert summary.count("passed") >= 2
