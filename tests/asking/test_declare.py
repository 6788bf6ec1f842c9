"""The declared style: a parameter that is a question, which the model can neither see nor send."""

import asyncio
import inspect
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import pytest
from typing_extensions import TypeAliasType

from antiphon import (
    Accepted,
    Answer,
    Ask,
    Cancelled,
    Context,
    Declined,
    Question,
    Root,
    Sample,
    Seal,
    Server,
    ask,
    input_required,
)
from antiphon.rounds.token import generate_key

from .driver import accept, cancel, converse, decline, in_turn, leg, prompt, resource, roots, sampled, tool
from .handlers import Colour, Where

KEY = generate_key(b"d" * 32)


@dataclass
class Nested:
    where: Where


class Unwritten:
    """What no schema can say."""


UNWRITTEN = Unwritten()


def opened_folders() -> Question:
    return ask.roots()


async def schema_of(app: Server, name: str) -> dict[str, Any]:
    listed = await leg(app, "tools/list", {})
    return next(each["inputSchema"] for each in listed.result["tools"] if each["name"] == name)


# --- a text ------------------------------------------------------------------------------------------------------


def wiping(app: Server) -> Server:
    @app.tool
    async def wipe(cache: str, sure: Annotated[bool, Ask("Really wipe {cache}?")]) -> str:
        """Wipe a cache."""
        return f"Wiped {cache}" if sure else "Left alone"

    return app


@pytest.mark.parametrize(("ticked", "text"), [(True, "Wiped users"), (False, "Left alone")])
async def test_a_declared_question_is_asked_under_its_parameters_name(app: Server, ticked: bool, text: str) -> None:
    told = await converse(wiping(app), *tool("wipe", cache="users"), answers={"sure": accept(value=ticked)})
    assert told.messages == [["Really wipe users?"]]
    assert (told.asked, told.text) == ([["sure"]], text)


async def test_a_declared_question_is_not_in_the_input_schema(app: Server) -> None:
    schema = await schema_of(wiping(app), "wipe")
    assert list(schema["properties"]) == ["cache"]
    assert schema["required"] == ["cache"]


@pytest.mark.parametrize("sent", [True, False, None, "yes", accept(value=True)])
async def test_a_model_that_sends_the_answer_itself_is_ignored(app: Server, sent: object) -> None:
    told = await converse(wiping(app), *tool("wipe", cache="users", sure=sent), answers={"sure": accept(value=False)})
    assert (told.asked, told.text) == ([["sure"]], "Left alone")


async def test_an_answer_that_nobody_asked_for_is_ignored(app: Server) -> None:
    first = await leg(wiping(app), *tool("wipe", cache="users"), responses={"sure": accept(value=True)})
    assert list(first.questions) == ["sure"]


async def test_a_refusal_ends_the_call_with_an_error_that_the_model_may_read(app: Server) -> None:
    for refusal, verb in ((decline(), "declined"), (cancel(), "cancelled")):
        told = await converse(wiping(Server("again")), *tool("wipe", cache="users"), answers={"sure": refusal})
        assert told.failed
        assert verb in told.text
        assert told.asked == [["sure"]]


async def test_an_invalid_answer_is_asked_for_again(app: Server) -> None:
    answers = {"sure": in_turn(accept(value="yes"), {"action": "accept"}, accept(value=True))}
    told = await converse(wiping(app), *tool("wipe", cache="users"), answers=answers)
    assert (told.asked, told.text) == ([["sure"]] * 3, "Wiped users")


async def test_every_shape_can_be_declared(app: Server) -> None:
    @app.tool
    async def plan(
        where: Annotated[Where, Ask("Where?")],
        size: Annotated[Literal["s", "l"], Ask("Size?")],
        count: Annotated[int, Ask("How many?"), msgspec.Meta(ge=1, le=9)],
        tags: Annotated[list[Literal["x", "y"]], Ask("Tags?")],
        note: Annotated[str | None, Ask("A note?")],
    ) -> str:
        return f"{where} {size} {count} {tags} {note}"

    answers = {
        "where": accept(region="eu"),
        "size": accept(value="l"),
        "count": in_turn(accept(value=10), accept(value=9)),
        "tags": accept(value=["x"]),
        "note": accept(),
    }
    told = await converse(app, *tool("plan"), answers=answers)
    assert told.asked == [["count", "note", "size", "tags", "where"], ["count"]]
    assert told.text == f"{Where('eu')} l 9 ['x'] None"


async def test_a_text_may_show_defaults_attributes_and_formats(app: Server) -> None:
    @app.tool
    async def pay(
        price: float,
        sure: Annotated[bool, Ask("Pay {price:.2f} {currency} to {who.region} ({{really}})?")],
        who: Annotated[Where, Ask("To whom?")],
        currency: str = "EUR",
    ) -> str:
        return f"paid {sure}"

    told = await converse(
        app, *tool("pay", price=9.5), answers={"who": accept(region="Ada"), "sure": accept(value=True)}
    )
    assert told.messages == [["To whom?"], ["Pay 9.50 EUR to Ada ({really})?"]]
    assert told.text == "paid True"


async def test_braces_in_an_argument_are_just_text(app: Server) -> None:
    told = await converse(
        wiping(app), *tool("wipe", cache="{sure} {0} {cache.__class__}"), answers={"sure": accept(value=True)}
    )
    assert told.messages == [["Really wipe {sure} {0} {cache.__class__}?"]]


# --- several -----------------------------------------------------------------------------------------------------


async def test_independent_questions_are_one_round(app: Server) -> None:
    @app.tool
    async def provision(
        name: Annotated[str, Ask("Database name?")],
        region: Annotated[str, Ask("Which region?")],
        size: Annotated[int, Ask("How large?")],
    ) -> str:
        return f"{name} {region} {size}"

    answers = {"name": accept(value="orders"), "region": accept(value="eu"), "size": accept(value=3)}
    told = await converse(app, *tool("provision"), answers=answers)
    assert (told.asked, told.text) == ([["name", "region", "size"]], "orders eu 3")


async def test_a_question_that_needs_another_answer_waits_for_it_alone(app: Server) -> None:
    @app.tool
    async def provision(
        last: Annotated[bool, Ask("{name} in {region} with {size}?")],
        region: Annotated[str, Ask("Where should {name} live?")],
        name: Annotated[str, Ask("Database name?")],
        size: Annotated[int, Ask("How large?")],
    ) -> str:
        return f"{name} {region} {size} {last}"

    answers = {
        "name": accept(value="orders"),
        "region": accept(value="eu"),
        "size": accept(value=3),
        "last": accept(value=True),
    }
    told = await converse(app, *tool("provision"), answers=answers)
    assert told.asked == [["name", "size"], ["region"], ["last"]]
    assert told.messages[2] == ["orders in eu with 3?"]
    assert told.text == "orders eu 3 True"


async def test_answering_some_asks_for_the_rest_and_what_has_become_possible(app: Server) -> None:
    @app.tool
    async def provision(
        name: Annotated[str, Ask("Database name?")],
        size: Annotated[int, Ask("How large?")],
        region: Annotated[str, Ask("Where should {name} live?")],
    ) -> str:
        return f"{name} {region} {size}"

    first = await leg(app, *tool("provision"))
    assert sorted(first.questions) == ["name", "size"]
    second = await leg(app, *tool("provision"), state=first.token, responses={"name": accept(value="orders")})
    assert sorted(second.questions) == ["region", "size"]


async def test_a_refusal_ends_the_call_though_other_questions_are_open(app: Server) -> None:
    @app.tool
    async def provision(name: Annotated[str, Ask("Name?")], region: Annotated[str, Ask("Region?")]) -> str:
        return "unreachable"

    for refused in ("name", "region"):
        first = await leg(app, *tool("provision"))
        last = await leg(app, *tool("provision"), state=first.token, responses={refused: decline()})
        assert last.result.get("isError"), f"{refused} was refused, and the call went on"


async def test_the_body_runs_only_when_everything_is_answered(app: Server) -> None:
    runs: list[str] = []

    @app.tool
    async def provision(
        name: Annotated[str, Ask("Name?")], sure: Annotated[bool, Ask("{name}, sure?")], ctx: Context
    ) -> str:
        runs.append(name)
        return f"{name} {sure} {ctx.round}"

    told = await converse(app, *tool("provision"), answers={"name": accept(value="x"), "sure": accept(value=True)})
    assert (told.text, runs) == ("x True 3", ["x"])


async def test_declared_and_awaited_questions_go_together(app: Server) -> None:
    effects: list[str] = []

    @app.tool
    async def provision(name: Annotated[str, Ask("Name?")], ctx: Context) -> str:
        await ctx.step("reserve", effects.append, name)
        return f"{name} {await ctx.confirm('Sure?')}"

    answers = {"name": accept(value="x"), "confirm": accept(confirm=True)}
    told = await converse(app, *tool("provision"), answers=answers)
    assert (told.asked, told.text, effects) == ([["name"], ["confirm"]], "x True", ["x"])


async def test_a_plain_function_may_declare(app: Server) -> None:
    @app.tool
    def wipe(cache: str, sure: Annotated[bool, Ask("Really wipe {cache}?")]) -> str:
        return f"{cache} {sure}"

    told = await converse(app, *tool("wipe", cache="users"), answers={"sure": accept(value=True)})
    assert told.text == "users True"


# --- a function --------------------------------------------------------------------------------------------------


async def test_a_function_sees_arguments_and_other_answers_by_name(app: Server) -> None:
    seen: list[tuple[object, ...]] = []

    def which(item: int, how: str) -> int | Question | None:
        seen.append((item, how))
        return ask.form(f"#{item} duplicates which?", int) if how == "duplicate" else None

    @app.tool
    async def resolve(
        item: int,
        how: Annotated[Literal["fixed", "duplicate"], Ask("How is #{item} resolved?")],
        original: Annotated[int | None, Ask(which)],
    ) -> str:
        return f"{how} {original}"

    fixed = await converse(app, *tool("resolve", item=7), answers={"how": accept(value="fixed")})
    assert (fixed.asked, fixed.text) == ([["how"]], "fixed None")
    answers = {"how": accept(value="duplicate"), "original": accept(value=3)}
    duplicate = await converse(app, *tool("resolve", item=7), answers=answers)
    assert (duplicate.asked, duplicate.text) == ([["how"], ["original"]], "duplicate 3")
    assert set(seen) == {(7, "fixed"), (7, "duplicate")}


async def test_an_asynchronous_function_may_decide(app: Server) -> None:
    async def budget(team: str) -> int | Question:
        await asyncio.sleep(0)
        return 100 if team == "rich" else ask.form(f"A budget for {team}?", int)

    @app.tool
    async def spend(team: str, budget: Annotated[int, Ask(budget)]) -> str:
        return str(budget)

    assert (await converse(app, *tool("spend", team="rich"))).text == "100"
    told = await converse(app, *tool("spend", team="poor"), answers={"budget": accept(value=1)})
    assert (told.asked, told.text) == ([["budget"]], "1")


async def test_a_function_may_ask_every_kind_of_question(app: Server) -> None:
    @app.tool
    async def review(
        box: Annotated[bool, Ask(lambda: ask.form("Continue?", bool))],
        page: Annotated[Answer[None], Ask(lambda: ask.url("Sign in", "https://example.com/"))],
        summary: Annotated[Sample, Ask(lambda: ask.sample("Summarize", max_tokens=9))],
        folders: Annotated[list[Root], Ask(opened_folders)],
    ) -> str:
        return f"{box} {page.action} {summary.text} {len(folders)}"

    answers = {
        "box": accept(value=True),
        "page": {"action": "accept"},
        "summary": sampled("fine"),
        "folders": roots("file:///a"),
    }
    told = await converse(app, *tool("review"), answers=answers)
    assert (told.asked, told.text) == ([["box", "folders", "page", "summary"]], "True accept fine 1")


async def test_a_builder_itself_may_be_the_function(app: Server) -> None:
    @app.tool
    async def look(folders: Annotated[list[Root], Ask(ask.roots)]) -> str:
        return str(len(folders))

    told = await converse(app, *tool("look"), answers={"folders": roots("file:///a", "file:///b")})
    assert (told.asked, told.text) == ([["folders"]], "2")


async def test_a_functions_own_defaults_stay_unless_the_tool_has_such_an_argument(app: Server) -> None:
    def question(name: str, tone: str = "politely", limit: int = 5) -> Question:
        return ask.form(f"{name}, {tone}, {limit}?", bool)

    @app.tool
    async def work(name: str, limit: int, sure: Annotated[bool, Ask(question)]) -> str:
        return str(sure)

    told = await converse(app, *tool("work", name="Ada", limit=9), answers={"sure": accept(value=True)})
    assert told.messages == [["Ada, politely, 9?"]]


async def test_a_function_may_name_its_question(app: Server) -> None:
    @app.tool
    async def work(login: Annotated[str, Ask(lambda: ask.form("Login?", str, key="github_login"))]) -> str:
        return login

    told = await converse(app, *tool("work"), answers={"github_login": accept(value="ada")})
    assert (told.asked, told.text) == ([["github_login"]], "ada")


async def test_an_error_in_a_function_is_the_tools_error(app: Server) -> None:
    def broken() -> Question:
        raise RuntimeError("no database")

    @app.tool
    async def work(name: Annotated[str, Ask(broken)]) -> str:
        return name

    told = await converse(app, *tool("work"))
    assert told.error == {"code": -32603, "message": "Internal error"}


# --- Answer[T] ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "answer"),
    [(accept(region="eu"), Accepted(Where("eu"))), (decline(), Declined()), (cancel(), Cancelled())],
)
async def test_a_tool_that_wants_the_answer_deals_with_a_refusal_itself(
    app: Server, response: object, answer: object
) -> None:
    seen: list[object] = []

    @app.tool
    async def place(where: Annotated[Answer[Where], Ask("Where?")]) -> str:
        seen.append(where)
        return "done"

    told = await converse(app, *tool("place"), answers={"where": response})
    assert (told.asked, told.text, seen) == ([["where"]], "done", [answer])


async def test_a_function_that_needs_no_question_gives_an_accepted_answer(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def place(where: Annotated[Answer[str], Ask(lambda: "eu")]) -> str:
        seen.append(where)
        return "done"

    assert (await converse(app, *tool("place"))).text == "done"
    assert seen == [Accepted("eu")]


async def test_the_answer_of_one_question_may_stand_in_another(app: Server) -> None:
    def follow_up(where: Answer[str]) -> str | Question:
        return ask.form("Why not?", str) if isinstance(where, Declined) else "because"

    @app.tool
    async def place(where: Annotated[Answer[str], Ask("Where?")], why: Annotated[str, Ask(follow_up)]) -> str:
        return f"{where.action} {why}"

    refused = await converse(app, *tool("place"), answers={"where": decline(), "why": accept(value="later")})
    assert (refused.asked, refused.text) == ([["where"], ["why"]], "decline later")
    given = await converse(app, *tool("place"), answers={"where": accept(value="eu")})
    assert given.text == "accept because"


# --- prompts and resources, capabilities, time -------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [prompt("brief", topic="news"), resource("brief://all"), resource("brief://of/news")],
    ids=["prompt", "static resource", "template resource"],
)
async def test_prompts_and_resources_declare(app: Server, call) -> None:
    @app.prompt
    async def brief(topic: str, reader: Annotated[str, Ask("Who reads of {topic}?")]) -> str:
        return f"{topic} for {reader}"

    @app.resource("brief://all")
    async def static(reader: Annotated[str, Ask("Who reads?")]) -> str:
        return f"news for {reader}"

    @app.resource("brief://of/{topic}")
    def template(topic: str, reader: Annotated[str, Ask("Who reads of {topic}?")]) -> str:
        return f"{topic} for {reader}"

    told = await converse(app, *call, answers={"reader": accept(value="Ada")})
    assert (told.asked, told.text) == ([["reader"]], "news for Ada")


async def test_a_prompts_declared_question_is_not_an_argument(app: Server) -> None:
    @app.prompt
    async def brief(topic: str, reader: Annotated[str, Ask("Who reads of {topic}?")]) -> str:
        return f"{topic} for {reader}"

    listed = await leg(app, "prompts/list", {})
    assert [each["name"] for each in listed.result["prompts"][0]["arguments"]] == ["topic"]
    sent = await leg(app, *prompt("brief", topic="news", reader="the model"))
    assert list(sent.questions) == ["reader"]


async def test_everything_that_is_missing_for_a_round_is_named(app: Server) -> None:
    @app.tool
    async def review(
        box: Annotated[bool, Ask("Continue?")],
        page: Annotated[Answer[None], Ask(lambda: ask.url("Sign in", "https://example.com/"))],
        summary: Annotated[Sample, Ask(lambda: ask.sample("Summarize", max_tokens=9))],
        folders: Annotated[list[Root], Ask(opened_folders)],
    ) -> str:
        return "unreachable"

    told = await converse(app, *tool("review"), capabilities={})
    assert told.error["code"] == -32021
    assert told.error["data"] == {
        "requiredCapabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
    }


@pytest.mark.parametrize("source", ["Sure?", lambda: ask.form("Sure?", bool)], ids=["text", "function"])
async def test_a_declared_question_may_have_a_time_of_its_own(source) -> None:
    clock = [1000.0]
    app = Server("timed", seal=Seal(KEY, ttl=600), clock=lambda: clock[0])

    @app.tool
    async def work(sure: Annotated[bool, Ask(source, ttl=30)]) -> str:
        return str(sure)

    first = await leg(app, *tool("work"))
    clock[0] += 31
    late = await leg(app, *tool("work"), state=first.token, responses={"sure": accept(value=True)})
    assert late.reply["error"]["code"] == -32602


# --- bad graphs --------------------------------------------------------------------------------------------------


def test_a_question_about_nothing_fails_at_registration(app: Server) -> None:
    with pytest.raises(TypeError, match=r"'sure'.*'cash'"):

        @app.tool
        async def wipe(cache: str, sure: Annotated[bool, Ask("Really wipe {cash}?")]) -> str:
            return ""


def test_a_function_that_needs_what_is_not_there_fails_at_registration(app: Server) -> None:
    def question(cash: str) -> Question:
        return ask.form(cash, bool)

    with pytest.raises(TypeError, match=r"'sure'.*'cash'"):

        @app.tool
        async def wipe(cache: str, sure: Annotated[bool, Ask(question)]) -> str:
            return ""


def test_a_question_about_itself_fails_at_registration(app: Server) -> None:
    with pytest.raises(TypeError, match="'sure'"):

        @app.tool
        async def wipe(sure: Annotated[bool, Ask("Really {sure}?")]) -> str:
            return ""


def test_questions_that_wait_for_each_other_fail_at_registration(app: Server) -> None:
    with pytest.raises(TypeError, match=r"'a'.*'b'|'b'.*'a'"):

        @app.tool
        async def work(
            a: Annotated[str, Ask("{b}?")], b: Annotated[str, Ask("{c}?")], c: Annotated[str, Ask("{a}?")]
        ) -> str:
            return ""


@pytest.mark.parametrize("text", ["{}", "{0}", "{", "}", "{sure", "{cache:{width}}", "{ctx}"])
def test_a_text_that_cannot_be_filled_in_fails_at_registration(app: Server, text: str) -> None:
    async def wipe(cache: str, ctx: Context, sure: bool) -> str:
        return ""

    wipe.__annotations__["sure"] = Annotated[bool, Ask(text)]
    with pytest.raises(TypeError, match="'sure'"):
        app.tool(wipe)


@pytest.mark.parametrize("shape", [Nested, dict[str, int], list[Where], object, Any, Answer], ids=str)
def test_a_shape_that_a_form_cannot_ask_for_fails_at_registration(app: Server, shape: Any) -> None:
    async def wipe(sure: bool) -> str:
        return ""

    wipe.__annotations__["sure"] = Annotated[shape, Ask("Sure?")]
    with pytest.raises(TypeError, match="'sure'"):
        app.tool(wipe)


def test_a_function_that_cannot_be_called_by_name_fails_at_registration(app: Server) -> None:
    def question(cache: str, /) -> Question:
        return ask.form(cache, bool)

    with pytest.raises(TypeError, match="'sure'"):

        @app.tool
        async def wipe(cache: str, sure: Annotated[bool, Ask(question)]) -> str:
            return ""


@pytest.mark.parametrize("source", [None, 5, b"text", ask.roots()])
def test_only_a_text_or_a_function_can_be_a_question(source: Any) -> None:
    with pytest.raises(TypeError, match="a text or a function"):
        Ask(source)


@pytest.mark.parametrize("kind", ["prompt", "resource"])
def test_bad_graphs_of_prompts_and_resources_fail_at_registration(app: Server, kind: str) -> None:
    async def brief(reader: Annotated[str, Ask("{nobody}?")]) -> str:
        return ""

    with pytest.raises(TypeError, match="'reader'"):
        app.prompt(brief) if kind == "prompt" else app.resource("brief://x")(brief)


async def test_a_tool_that_failed_to_register_is_not_there(app: Server) -> None:
    with pytest.raises(TypeError):

        @app.tool
        async def wipe(sure: Annotated[bool, Ask("{nothing}?")]) -> str:
            return ""

    @app.tool
    async def other() -> str:
        return "ok"

    listed = await leg(app, "tools/list", {})
    assert [each["name"] for each in listed.result["tools"]] == ["other"]


# --- other spellings ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "template", "low level"])
async def test_a_default_declares_as_an_annotation_does(app: Server, kind: str) -> None:
    async def wipe(sure: bool = Ask("Really wipe?")) -> str:
        return f"wiped: {sure}"

    call = tool("wipe", sure=True)
    if kind == "tool":
        app.tool(wipe)
        assert (await schema_of(app, "wipe")).get("properties", {}) == {}
    elif kind == "prompt":
        app.prompt(wipe)
        call = prompt("wipe", sure="true")
    elif kind == "resource":
        app.resource("wipe://it")(wipe)
        call = resource("wipe://it")
    elif kind == "template":

        @app.resource("wipe://{what}")
        def template(what: str, sure: bool = Ask("Really wipe {what}?")) -> str:
            return f"wiped: {sure}"

        call = resource("wipe://it")
    else:

        @app.on("tools/call")
        async def call_tool(params: dict[str, Any], sure: bool = Ask("Really wipe?")) -> dict[str, Any]:
            return {"content": [{"type": "text", "text": f"wiped: {sure}"}]}

    for ticked in (True, False):
        told = await converse(app, *call, answers={"sure": accept(value=ticked)})
        assert (told.asked, told.text) == ([["sure"]], f"wiped: {ticked}")


async def test_a_default_may_be_a_function_and_take_limits_from_the_annotation(app: Server) -> None:
    @app.tool
    async def scale(
        now: int,
        wanted: Annotated[int, msgspec.Meta(ge=1, le=9)] = Ask("How many, instead of {now}?", ttl=30),
        sure: bool = Ask(lambda wanted: ask.form("That many?", bool) if wanted > 5 else True),
    ) -> str:
        return f"{wanted} {sure}"

    told = await converse(app, *tool("scale", now=2), answers={"wanted": in_turn(accept(value=10), accept(value=3))})
    assert (told.asked, told.text) == ([["wanted"], ["wanted"]], "3 True")
    assert told.rounds[0].questions["wanted"]["params"]["requestedSchema"]["properties"]["value"]["maximum"] == 9


FORM = ask.form("Sure?", bool)


@dataclass
class Options:
    sure: Annotated[bool, Ask("Sure?")]


@dataclass
class Defaults:
    sure: bool = Ask("Sure?")


MISPLACED: list[tuple[Any, Any]] = [
    (Annotated[bool, Ask], ...),
    (Annotated[bool, FORM], ...),
    (Annotated[bool, ask.form], ...),
    (Annotated[bool, input_required({"sure": FORM})], ...),
    (Annotated[bool | None, Ask], None),
    (Annotated[bool, Ask] | None, None),
    (Annotated[bool, Ask("Sure?")] | None, None),
    (list[Annotated[bool, Ask("Sure?")]], ...),
    (dict[str, list[Annotated[bool, Ask("Sure?")]]], ...),
    (Options, ...),
    (list[Options], ...),
    (Defaults, ...),
    (Ask, ...),
    (Ask("Sure?"), ...),
    (bool, FORM),
    (bool, Ask),
    (bool, ask.form),
    (bool, input_required({"sure": FORM})),
    (inspect.Parameter.empty, Ask("Sure?")),
    (Annotated[bool, Ask("Sure?")], Ask("Really?")),
    (Annotated[bool, Ask("Sure?"), Ask("Really?")], ...),
]


@pytest.mark.parametrize("kind", ["tool", "prompt", "resource", "low level"])
@pytest.mark.parametrize(("hint", "default"), MISPLACED, ids=lambda item: type(item).__name__)
def test_a_question_in_the_wrong_place_fails_at_registration_and_names_the_right_one(
    app: Server, hint: Any, default: Any, kind: str
) -> None:
    async def wipe(params: dict[str, Any], sure: Any) -> Any:
        return {"content": []}

    if hint is inspect.Parameter.empty:
        del wipe.__annotations__["sure"]
    else:
        wipe.__annotations__["sure"] = hint
    wipe.__defaults__ = None if default is ... else (default,)
    register = {
        "tool": app.tool,
        "prompt": app.prompt,
        "resource": app.resource("x://{params}/{sure}"),
        "low level": app.on("tools/call"),
    }[kind]
    with pytest.raises(TypeError, match="'sure'") as told:
        register(wipe)
    assert 'sure: bool = Ask("...")' in str(told.value) or "sure: Annotated[" in str(told.value)


Sure = TypeAliasType("Sure", Annotated[bool, Ask("Sure?")])


@dataclass
class Tree:
    branches: "list[Tree]"


async def test_an_alias_declares_as_what_it_stands_for_beside_a_recursive_type(app: Server) -> None:
    async def wipe(tree: Tree, sure: Any) -> str:
        return f"{tree} {sure}"

    wipe.__annotations__["sure"] = Sure
    app.tool(wipe)
    call = tool("wipe", tree={"branches": []}, sure=True)
    told = await converse(app, *call, answers={"sure": accept(value=False)})
    assert (told.asked, told.text) == ([["sure"]], "Tree(branches=[]) False")


# --- what a function returns is checked --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "made"),
    [
        (bool, "Delete everything?"),
        (bool, "no"),
        (bool, 1),
        (bool, None),
        (bool, [ask.form("Sure?", bool)]),
        (bool, Declined()),
        (bool, Ask("Sure?")),
        (bool, input_required({"sure": ask.form("Sure?", bool)})),
        (int, "7"),
        (Literal["a", "b"], "c"),
        (list[str], "abc"),
        (Where, {"replicas": 2}),
        (Answer[bool], "no"),
        (Annotated[int, msgspec.Meta(ge=5)], 1),
        (Unwritten, "no"),
    ],
    ids=lambda item: type(item).__name__,
)
async def test_what_is_no_question_must_fit_the_type_or_the_tool_does_not_run(
    app: Server, logged: pytest.LogCaptureFixture, shape: Any, made: Any
) -> None:
    ran: list[object] = []

    async def wipe(sure: Any) -> str:
        ran.append(sure)
        return "wiped"

    wipe.__annotations__["sure"] = Annotated[shape, Ask(lambda: made)]
    app.tool(wipe)
    told = await converse(app, *tool("wipe"))
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert ran == []
    assert "'sure'" in logged.text
    assert "does not fit" in logged.text


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (ask.form("Sure?", str), accept(value="no")),
        (ask.form("How sure?", int), accept(value=0)),
        (ask.form("Sure?", {"type": "object", "properties": {"sure": {"type": "boolean"}}}), accept(sure=False)),
        (ask.url("Open", "https://a.example"), {"action": "accept"}),
        (ask.sample("Is that safe?", max_tokens=5), sampled("no")),
        (ask.roots(), roots()),
    ],
    ids=repr,
)
async def test_an_answer_of_another_type_than_the_parameters_does_not_reach_the_tool(
    app: Server, logged: pytest.LogCaptureFixture, question: Question, answer: Any
) -> None:
    @app.tool
    async def wipe(sure: Annotated[bool, Ask(lambda: question)]) -> str:
        return f"wiped: {sure}"

    assert (await converse(app, *tool("wipe"), answers={"sure": answer})).error["message"] == "Internal error"
    assert "does not fit" in logged.text


@pytest.mark.parametrize(
    ("shape", "made", "given"),
    [
        (bool, True, True),
        (Where, Where("oslo"), Where("oslo")),
        (Where, {"region": "oslo"}, Where("oslo")),
        (float, 3, 3.0),
        (Colour, Colour.RED, Colour.RED),
        (Answer[bool], False, Accepted(False)),
        (bool | None, None, None),
        (Unwritten, UNWRITTEN, UNWRITTEN),
        (Any, UNWRITTEN, UNWRITTEN),
    ],
    ids=lambda item: type(item).__name__,
)
async def test_a_value_that_fits_is_given_as_the_type(app: Server, shape: Any, made: Any, given: Any) -> None:
    seen: list[object] = []

    async def work(value: Any) -> str:
        seen.append(value)
        return "done"

    work.__annotations__["value"] = Annotated[shape, Ask(lambda: made)]
    app.tool(work)
    assert (await converse(app, *tool("work"))).text == "done"
    assert seen == [given]
    assert type(seen[0]) is type(given)
