"""The benchmark runs: every row is measured, whatever the figures are, and the pages are written from them."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICK_TIMEOUT = 900.0


def run(*command, timeout=120.0):
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_the_pages_are_what_their_figures_make_of_them():
    done = run(ROOT / "benchmarks" / "publish.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_pages_need_no_peers(tmp_path):
    """Where a section or a server could not be measured, the page says so, and the rest stands."""
    figures = json.loads((ROOT / "docs" / "performance.json").read_text("utf-8"))
    del figures["sessions"], figures["streams"], figures["clients"]
    for cell in [each for each in figures["http"]["cells"] if each.startswith("official")]:
        del figures["http"]["cells"][cell]
    figures["unavailable"] = {"official": "No module named `mcp` | <b>\nand more"}
    (tmp_path / "less.json").write_text(json.dumps(figures), "utf-8")
    done = run(ROOT / "benchmarks" / "publish.py", tmp_path / "less.json", "--into", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "docs" / "performance.md").read_text("utf-8")
    assert "* official: No module named mcp b" in page
    assert page.count("Not measured in this run.") == 3
    assert not (tmp_path / "docs" / "scale.md").exists()


@pytest.mark.heavy
def test_a_quick_run_measures_every_row(tmp_path):
    done = run(
        ROOT / "benchmarks" / "run.py", "--quick", "--results", tmp_path, "--publish", tmp_path, timeout=QUICK_TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads((tmp_path / "latest.json").read_text("utf-8"))
    assert figures["unavailable"] == {}
    assert [goal["title"] for goal in figures["goals"] if goal["verdict"] == "not measured"] == []
    published = json.loads((ROOT / "docs" / "performance.json").read_text("utf-8"))
    for section, found in published.items():
        if isinstance(found, dict) and "cells" in found:
            wanted = {cell for cell in found["cells"] if not longer(section, cell)}
            assert wanted <= figures[section]["cells"].keys(), section
    page = (tmp_path / "docs" / "performance.md").read_text("utf-8")
    assert "Not measured" not in page
    assert (tmp_path / "docs" / "scale.md").exists()
    pictures = sorted((tmp_path / "docs" / "images").glob("performance-*.svg"))
    assert len(pictures) == 4
    for picture in pictures:
        assert len(list(ET.parse(picture).iter())) > 20, picture


def longer(section, cell):
    """Whether only a run of full length has this cell."""
    end = cell.rpartition("|")[2]
    return {"http": end in {"1", "64"}, "bodies": end == "10 KB", "asking": end in {"2", "5", "20"}}.get(section, False)
