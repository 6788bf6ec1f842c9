"""The check of replay safety, on servers of other libraries."""

import sys
import time
from pathlib import Path

import pytest

from antiphon.adapt import awaited, step
from antiphon.testing import check_replay_safety

sys.path.insert(0, str(Path(__file__).parent))

from shops import LIBRARIES, Sure, another_shop, done, made, shop


def yes(question):
    return {"region": "eu"} if "region" in question.schema["properties"] else {"sure": True}


@pytest.fixture(params=LIBRARIES)
def library(request):
    done.clear()
    return request.param


def till(library):
    bare, tool, _, _, Context = made(library, "till")
    mcp = awaited(bare)

    @tool
    async def stamp(ctx: Context) -> str:
        answer = await ctx.elicit(f"Is it {time.time()}?", Sure)
        return answer.action

    @tool
    async def keep(path: str, ctx: Context) -> str:
        Path(path).write_text("kept")  # noqa: ASYNC240 -- an effect, for the check to find
        answer = await ctx.elicit("Keep it?", Sure)
        return answer.action

    @tool
    async def keep_once(path: str, ctx: Context) -> str:
        await step(ctx, "keep", Path(path).write_text, "kept")
        answer = await ctx.elicit("Keep it?", Sure)
        return answer.action

    return mcp


async def test_a_tool_that_may_be_replayed_is_found_safe(library):
    report = await check_replay_safety(lambda: another_shop(library), ("provision", {"name": "db"}), yes)
    assert report.ok, report
    assert report.rounds == 4
    assert report.notes == ()


async def test_the_clock_in_a_question_is_found(library):
    report = await check_replay_safety(lambda: till(library), "stamp", yes, max_rounds=5)
    assert not report.ok
    assert {finding.kind for finding in report.findings} >= {"question", "clock"}
    assert all(f"{Path(__file__).name}:" in finding.where for finding in report.findings)


async def test_an_effect_above_a_question_is_found_and_one_in_a_step_is_not(library, tmp_path):
    call = {"path": str(tmp_path / "kept")}
    report = await check_replay_safety(lambda: till(library), ("keep", call), yes)
    assert [finding.kind for finding in report.findings] == ["effect"]
    assert "await step(ctx, 'name', function, ...)" in report.findings[0].advice
    report = await check_replay_safety(lambda: till(library), ("keep_once", call), yes)
    assert report.ok, report


async def test_a_server_itself_is_checked_without_a_fresh_instance(library):
    report = await check_replay_safety(shop(library), ("delete", {"name": "x"}), yes)
    assert report.ok, report
    assert "no way to make another instance of the server 'shop'" in report.notes[0]
