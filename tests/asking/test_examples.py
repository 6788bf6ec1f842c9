"""The examples: every tool of every file in examples/asking, answered and refused, round by round."""

import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antiphon import Seal
from antiphon.rounds.token import generate_key

from .driver import EVERYTHING, Told, accept, cancel, converse, decline, leg, roots, sampled, tool

EXAMPLES = Path(__file__).parents[2] / "examples" / "asking"
KEY = generate_key(b"e" * 32)
COVERED = {
    "delete_record",
    "deploy",
    "four_kinds",
    "load_shedding",
    "provision",
    "region",
    "rolling_upgrade",
    "tag_release",
    "wipe_cache",
    "work_item",
}

styles = pytest.mark.parametrize("style", ["", "_returning", "_declaring"], ids=["await", "return", "declare"])
_loads = itertools.count()


def load(name: str) -> ModuleType:
    """The example as a module of its own, however often it was loaded before."""
    spec = importlib.util.spec_from_file_location(f"example_{name}_{next(_loads)}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == COVERED


# --- deploy ------------------------------------------------------------------------------------------------------


def box(style: str, *, ticked: bool) -> dict[str, Any]:
    """The confirmation as each style's form wants it."""
    return accept(value=ticked) if style == "_declaring" else accept(confirm=ticked)


@styles
@pytest.mark.parametrize(("ticked", "text"), [(True, "Deployed to prod"), (False, "Not deployed")])
async def test_deploy_asks_once_and_does_as_it_is_told(style: str, ticked: bool, text: str) -> None:
    told = await converse(
        load("deploy").app, *tool(f"deploy{style}", env="prod"), answers={"confirm": box(style, ticked=ticked)}
    )
    assert told.asked == [["confirm"]]
    assert told.messages == [["Deploy to prod?"]]
    assert (told.text, told.failed) == (text, False)


@styles
@pytest.mark.parametrize("refusal", [decline(), cancel()])
async def test_deploy_does_not_deploy_when_refused(style: str, refusal: object) -> None:
    told = await converse(load("deploy").app, *tool(f"deploy{style}", env="prod"), answers={"confirm": refusal})
    assert told.asked == [["confirm"]]
    assert "Deployed" not in told.text
    assert told.failed == (style != "")


# --- tag_release -------------------------------------------------------------------------------------------------


@styles
@pytest.mark.parametrize(("ticked", "text"), [(True, "Tagged v1"), (False, "Left untagged")])
async def test_tag_release_tags_what_is_confirmed(style: str, ticked: bool, text: str) -> None:
    told = await converse(
        load("tag_release").app, *tool(f"tag_release{style}", tag="v1"), answers={"confirm": box(style, ticked=ticked)}
    )
    assert told.asked == [["confirm"]]
    assert told.messages == [["Tag v1?"]]
    assert (told.text, told.failed) == (text, False)


@styles
@pytest.mark.parametrize("refusal", [decline(), cancel()])
async def test_tag_release_takes_no_for_an_answer(style: str, refusal: object) -> None:
    told = await converse(load("tag_release").app, *tool(f"tag_release{style}", tag="v1"), answers={"confirm": refusal})
    assert told.asked == [["confirm"]]
    assert (told.text, told.failed) == ("Tagging cancelled by the operator", True)


# --- provision ---------------------------------------------------------------------------------------------------


@styles
async def test_provision_asks_both_questions_in_one_round(style: str) -> None:
    told = await converse(
        load("provision").app,
        *tool(f"provision{style}"),
        answers={"name": accept(value="orders"), "region": accept(value="eu")},
    )
    assert told.asked == [["name", "region"]]
    assert told.messages == [["Database name?", "Which region?"]]
    assert told.text == "Provisioned orders in eu"


@styles
@pytest.mark.parametrize("refused", ["name", "region"])
async def test_provision_ends_when_one_question_is_refused(style: str, refused: str) -> None:
    answers = {"name": accept(value="orders"), "region": accept(value="eu"), refused: decline()}
    told = await converse(load("provision").app, *tool(f"provision{style}"), answers=answers)
    assert told.asked == [["name", "region"]]
    assert told.failed
    assert "declined" in told.text


@styles
async def test_provision_asks_again_only_for_what_was_left_out(style: str) -> None:
    app = load("provision").app
    call = tool(f"provision{style}")
    first = await leg(app, *call)
    second = await leg(app, *call, state=first.token, responses={"region": accept(value="eu")})
    assert list(second.questions) == ["name"]
    last = await leg(app, *call, state=second.token, responses={"name": accept(value="orders")})
    assert last.result["content"][0]["text"] == "Provisioned orders in eu"


# --- wipe_cache --------------------------------------------------------------------------------------------------


@styles
async def test_wipe_cache_confirms_then_asks_for_the_scope(style: str) -> None:
    yes = accept(value=True) if style else accept(confirm=True)
    told = await converse(
        load("wipe_cache").app,
        *tool(f"wipe_cache{style}"),
        answers={"confirm": yes, "scope": accept(value="sessions")},
    )
    assert told.asked == [["confirm"], ["scope"]]
    assert told.messages == [["Really wipe the cache?"], ["Which scope?"]]
    assert told.text == "Wiped sessions"


@styles
async def test_wipe_cache_leaves_alone_what_is_not_confirmed(style: str) -> None:
    no = accept(value=False) if style else accept(confirm=False)
    told = await converse(load("wipe_cache").app, *tool(f"wipe_cache{style}"), answers={"confirm": no})
    assert (told.asked, told.text) == ([["confirm"]], "Left alone")


@styles
async def test_wipe_cache_ends_when_refused(style: str) -> None:
    app = load("wipe_cache").app
    told = await converse(app, *tool(f"wipe_cache{style}"), answers={"confirm": decline()})
    assert told.asked == [["confirm"]]
    assert "Wiped" not in told.text
    yes = accept(value=True) if style else accept(confirm=True)
    late = await converse(app, *tool(f"wipe_cache{style}"), answers={"confirm": yes, "scope": decline()})
    assert late.asked == [["confirm"], ["scope"]]
    assert late.failed


# --- four_kinds --------------------------------------------------------------------------------------------------


def four(style: str, **others: Any) -> dict[str, Any]:
    return {
        "confirm": accept(value=True) if style else accept(confirm=True),
        "signin": {"action": "accept"},
        "summary": sampled("Two files changed."),
        "roots": roots("file:///a", "file:///b"),
        **others,
    }


@styles
async def test_four_kinds_asks_all_kinds_in_one_result(style: str) -> None:
    told = await converse(load("four_kinds").app, *tool(f"review{style}"), answers=four(style))
    assert told.asked == [["confirm", "roots", "signin", "summary"]]
    assert {key: question["method"] for key, question in told.rounds[0].questions.items()} == {
        "confirm": "elicitation/create",
        "signin": "elicitation/create",
        "summary": "sampling/createMessage",
        "roots": "roots/list",
    }
    assert told.rounds[0].questions["signin"]["params"]["mode"] == "url"
    assert told.text == "Going on, signed in: Two files changed. (2 roots)"


@styles
async def test_four_kinds_hears_that_nobody_signed_in(style: str) -> None:
    told = await converse(load("four_kinds").app, *tool(f"review{style}"), answers=four(style, signin=decline()))
    assert told.text == "Going on, not signed in: Two files changed. (2 roots)"


@styles
async def test_four_kinds_names_everything_a_bare_client_lacks(style: str) -> None:
    told = await converse(load("four_kinds").app, *tool(f"review{style}"), capabilities={})
    assert told.error["code"] == -32021
    assert told.error["data"] == {
        "requiredCapabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    }


# --- region ------------------------------------------------------------------------------------------------------


async def region(style: str, answer: object) -> Told:
    module = load("region")
    if style == "_low_level":
        return await converse(module.low_level, *tool("provision", name="orders"), answers={"region": answer})
    return await converse(module.app, *tool(f"provision{style}", name="orders"), answers={"region": answer})


region_styles = pytest.mark.parametrize("style", ["", "_returning", "_declaring", "_low_level"])


@region_styles
async def test_region_offers_its_options(style: str) -> None:
    told = await region(style, accept(region="eu-west-1"))
    assert told.asked == [["region"]]
    params = told.rounds[0].questions["region"]["params"]
    assert params["message"] == "Which region should the database live in?"
    assert params["requestedSchema"]["properties"]["region"]["enum"] == ["eu-west-1", "us-east-1", "ap-south-1"]
    assert told.text == "Provisioned 'orders' in eu-west-1."


@region_styles
async def test_region_ends_when_refused(style: str) -> None:
    told = await region(style, decline())
    assert told.asked == [["region"]]
    assert told.failed
    assert "declined" in told.text


@region_styles
async def test_region_asks_again_for_an_option_that_is_not_on_offer(style: str) -> None:
    answers = iter([accept(region="mars"), accept(region="us-east-1")])
    told = await region(style, lambda _: next(answers))
    assert told.asked == [["region"], ["region"]]
    assert told.text == "Provisioned 'orders' in us-east-1."


# --- delete_record -----------------------------------------------------------------------------------------------


async def delete(module: ModuleType, style: str, answer: object, **about: Any) -> Told:
    call = tool(f"delete_record{style}", record_id="u1", table_name="users")
    return await converse(module.app, *call, answers={"confirm": answer}, **about)


@styles
async def test_delete_record_deletes_what_is_confirmed(style: str) -> None:
    module = load("delete_record")
    told = await delete(module, style, accept(confirmed=True))
    assert told.asked == [["confirm"]]
    assert told.messages == [['Delete record "u1" from "users"?']]
    assert told.text == "Record deleted"
    assert module.TABLES == {"users": {"u2": "Grace"}}


@styles
@pytest.mark.parametrize(
    "answer", [accept(confirmed=False), decline(), cancel(), {"action": "decline", "content": {"confirmed": True}}]
)
async def test_delete_record_never_deletes_without_a_yes(style: str, answer: object) -> None:
    module = load("delete_record")
    told = await delete(module, style, answer)
    assert told.asked == [["confirm"]]
    assert told.text == "Deletion cancelled"
    assert module.TABLES == {"users": {"u1": "Ada", "u2": "Grace"}}


@styles
async def test_delete_record_never_deletes_for_a_client_that_cannot_be_asked(style: str) -> None:
    module = load("delete_record")
    told = await delete(module, style, accept(confirmed=True), capabilities={})
    assert told.asked == []
    if style:
        assert told.error["code"] == -32021
    else:
        assert (told.text, told.failed) == ("Elicitation not supported", True)
    assert module.TABLES == {"users": {"u1": "Ada", "u2": "Grace"}}


# --- work_item ---------------------------------------------------------------------------------------------------

DUPLICATE_KEY = {"": "duplicate_of", "_returning": "duplicate_of", "_declaring": "duplicate"}


@styles
async def test_work_item_asks_for_the_original_only_of_a_duplicate(style: str) -> None:
    app, call, key = load("work_item").app, tool(f"resolve{style}", item=4522), DUPLICATE_KEY[style]
    fixed = await converse(app, *call, answers={"resolution": accept(value="Fixed")})
    assert (fixed.asked, fixed.text) == ([["resolution"]], "Bug #4522 resolved as Fixed.")
    answers = {"resolution": accept(value="Duplicate"), key: accept(value=4301)}
    duplicate = await converse(app, *call, answers=answers)
    assert duplicate.asked == [["resolution"], [key]]
    assert duplicate.messages == [
        ["Resolving Bug #4522 requires a resolution."],
        ["Since this is a duplicate, which work item is the original?"],
    ]
    assert duplicate.text == "Bug #4522 resolved as Duplicate of Bug #4301."


@styles
async def test_work_item_ends_when_refused(style: str) -> None:
    app, call, key = load("work_item").app, tool(f"resolve{style}", item=4522), DUPLICATE_KEY[style]
    told = await converse(app, *call, answers={"resolution": decline()})
    assert (told.asked, told.failed) == ([["resolution"]], True)
    late = await converse(app, *call, answers={"resolution": accept(value="Duplicate"), key: cancel()})
    assert (late.asked, late.failed) == ([["resolution"], [key]], True)


# --- rolling_upgrade ---------------------------------------------------------------------------------------------

LOGINS = {
    "github_login": accept(value="ada"),
    "google_login": accept(value="ada@google"),
    "microsoft_login": accept(value="ada@microsoft"),
}


@styles
async def test_a_rolling_upgrade_between_two_legs_loses_no_answer(style: str) -> None:
    module = load("rolling_upgrade")
    old, new = module.release("Google", seal=Seal(KEY)), module.release("Microsoft", seal=Seal(KEY))
    told = await converse([old, new, new], *tool(f"connect{style}"), answers=LOGINS)
    assert told.asked == [["github_login", "google_login"], ["microsoft_login"]]
    assert told.text == "Connected ada and ada@microsoft"


@styles
async def test_a_rolling_upgrade_that_is_taken_back_loses_no_answer_either(style: str) -> None:
    module = load("rolling_upgrade")
    old, new = module.release("Google", seal=Seal(KEY)), module.release("Microsoft", seal=Seal(KEY))
    told = await converse([old, new, old], *tool(f"connect{style}"), answers=LOGINS)
    assert told.asked == [["github_login", "google_login"], ["microsoft_login"]]
    assert told.text == "Connected ada and ada@google"


@styles
async def test_without_an_upgrade_two_logins_are_one_round(style: str) -> None:
    told = await converse(load("rolling_upgrade").app, *tool(f"connect{style}"), answers=LOGINS)
    assert told.asked == [["github_login", "microsoft_login"]]
    assert told.text == "Connected ada and ada@microsoft"


@styles
async def test_a_refused_login_ends_the_call_on_either_release(style: str) -> None:
    module = load("rolling_upgrade")
    old, new = module.release("Google", seal=Seal(KEY)), module.release("Microsoft", seal=Seal(KEY))
    answers = {**LOGINS, "microsoft_login": decline()}
    told = await converse([old, new, new], *tool(f"connect{style}"), answers=answers)
    assert told.asked == [["github_login", "google_login"], ["microsoft_login"]]
    assert told.failed


# --- load_shedding -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 1000, 1001, 3500])
async def test_load_shedding_goes_on_where_another_instance_stopped(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTIPHON_KEYS", KEY)
    instances = [load("load_shedding").app, load("load_shedding").app]
    told = await converse(instances, *tool("sum_of_squares", count=count), capabilities={})
    shed = max(0, -(-count // 1000) - 1)
    assert [done.questions for done in told.rounds[:-1]] == [{}] * shed
    assert told.text == str(sum(number * number for number in range(count)))


async def test_load_shedding_needs_no_capability_but_a_shared_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    one, other = load("load_shedding").app, load("load_shedding").app
    first = await leg(one, *tool("sum_of_squares", count=2000), capabilities=EVERYTHING)
    stranded = await leg(other, *tool("sum_of_squares", count=2000), state=first.token)
    assert stranded.reply["error"]["message"] == "Invalid or expired requestState"
