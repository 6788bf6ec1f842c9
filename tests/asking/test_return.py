"""The return style: a handler is a function of what has arrived so far."""

import base64
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from antiphon import (
    Context,
    Elicited,
    InputRequired,
    Missing,
    Root,
    Rooted,
    Sampled,
    Seal,
    Server,
    SignedState,
    ToolError,
    ask,
    input_required,
)
from antiphon.rounds.token import generate_key

from .driver import ABSENT, accept, cancel, converse, decline, in_turn, leg, prompt, resource, roots, sampled, tool
from .handlers import Where

KEY = generate_key(b"r" * 32)


@dataclass
class Confirm:
    confirm: bool


# --- input_required ----------------------------------------------------------------------------------------------


def test_neither_questions_nor_state_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="needs questions, a state, or both"):
        input_required()
    with pytest.raises(TypeError, match="needs questions, a state, or both"):
        input_required({})
    with pytest.raises(TypeError, match="needs questions, a state, or both"):
        input_required(state=None)


@pytest.mark.parametrize(
    "requests",
    [
        {"confirm": "Deploy?"},
        {"confirm": {"method": "elicitation/create", "params": {}}},
        {"confirm": None},
        {1: ask.roots()},
        {None: ask.roots()},
    ],
    ids=repr,
)
def test_what_is_no_question_is_a_type_error(requests: Any) -> None:
    with pytest.raises(TypeError, match="takes names and ask"):
        input_required(requests)


def test_a_state_that_is_not_plain_data_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        input_required(state=object())


@pytest.mark.parametrize("url", ["", "example.com", "/relative", "https:"])
def test_a_page_needs_an_absolute_url(url: str) -> None:
    with pytest.raises(ValueError, match="absolute URL"):
        ask.url("Sign in", url)


# --- asking and reading ------------------------------------------------------------------------------------------


def deploying(app: Server) -> Server:
    @app.tool
    async def deploy(env: str, ctx: Context) -> str | InputRequired:
        confirmed = ctx.accepted("confirm", Confirm)
        if confirmed is None:
            return input_required({"confirm": ask.form(f"Deploy to {env}?", Confirm)})
        return f"Deployed to {env}" if confirmed.confirm else "Not deployed"

    return app


@pytest.mark.parametrize(("ticked", "text"), [(True, "Deployed to prod"), (False, "Not deployed")])
async def test_a_returned_question_is_asked_and_its_answer_is_found(app: Server, ticked: bool, text: str) -> None:
    told = await converse(deploying(app), *tool("deploy", env="prod"), answers={"confirm": accept(confirm=ticked)})
    assert told.rounds[0].questions == {
        "confirm": {
            "method": "elicitation/create",
            "params": {
                "mode": "form",
                "message": "Deploy to prod?",
                "requestedSchema": {
                    "type": "object",
                    "properties": {"confirm": {"type": "boolean"}},
                    "required": ["confirm"],
                },
            },
        }
    }
    assert (told.asked, told.text) == ([["confirm"]], text)


async def test_a_plain_function_returns_questions_too(app: Server) -> None:
    @app.tool
    def deploy(ctx: Context) -> str | InputRequired:
        name = ctx.accepted("name", str)
        return f"Deployed {name}" if name else input_required({"name": ask.form("Which?", str)})

    told = await converse(app, *tool("deploy"), answers={"name": accept(value="orders")})
    assert (told.asked, told.text) == ([["name"]], "Deployed orders")


async def test_the_key_of_the_mapping_is_the_name_on_the_wire(app: Server) -> None:
    @app.tool
    async def deploy(ctx: Context) -> str | InputRequired:
        if ctx.accepted("outer", str):
            return "found"
        return input_required({"outer": ask.form("Which?", str, key="inner")})

    told = await converse(app, *tool("deploy"), answers={"outer": accept(value="x"), "inner": accept(value="y")})
    assert (told.asked, told.text) == ([["outer"]], "found")


async def test_a_response_is_told_apart_by_its_kind(app: Server) -> None:
    seen: dict[str, object] = {}

    @app.tool
    async def review(ctx: Context) -> str | InputRequired:
        seen.update({key: ctx.response(key) for key in ("form", "page", "summary", "roots", "never")})
        if ctx.response("form").kind == "missing":
            return input_required(
                {
                    "form": ask.form("Where?", Where),
                    "page": ask.url("Sign in", "https://example.com/"),
                    "summary": ask.sample("Summarize", max_tokens=10),
                    "roots": ask.roots(),
                }
            )
        return "done"

    first = await leg(app, *tool("review"))
    assert set(first.questions) == {"form", "page", "summary", "roots"}
    assert seen == dict.fromkeys(("form", "page", "summary", "roots", "never"), Missing())
    responses = {
        "form": accept(region="eu"),
        "page": decline(),
        "summary": sampled("fine"),
        "roots": roots("file:///a"),
    }
    last = await leg(app, *tool("review"), state=first.token, responses=responses)
    assert last.result["resultType"] == "complete"
    assert seen["form"] == Elicited("accept", {"region": "eu"})
    assert seen["page"] == Elicited("decline")
    assert isinstance(seen["summary"], Sampled)
    assert seen["summary"].result.text == "fine"
    assert seen["roots"] == Rooted((Root("file:///a"),))
    assert seen["never"] == Missing()
    assert [seen[key].kind for key in ("form", "summary", "roots", "never")] == [  # type: ignore[attr-defined]
        "elicit",
        "sampling",
        "roots",
        "missing",
    ]


async def test_only_an_accepted_and_valid_answer_counts_as_accepted(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def place(ctx: Context) -> str | InputRequired:
        seen.append(ctx.accepted("where", Where))
        return "done" if ctx.round > 1 else input_required({"where": ask.form("Where?", Where)})

    for response in (
        accept(region="eu"),
        accept(region=5),
        accept(region="eu", replicas="many"),
        accept(),
        decline(),
        cancel(),
        sampled("eu"),
        roots("eu"),
        None,
    ):
        await converse(app, *tool("place"), answers={"where": response})
    assert seen[1::2] == [Where("eu"), *[None] * 8]


async def test_the_return_style_may_accept_what_it_did_not_ask_for(app: Server) -> None:
    """As other SDKs do: the handler reads what arrived."""
    first = await leg(deploying(app), *tool("deploy", env="prod"), responses={"confirm": accept(confirm=True)})
    assert first.result["content"][0]["text"] == "Deployed to prod"


@pytest.mark.parametrize(
    "call",
    [prompt("form"), resource("form://static"), resource("form://x/template")],
    ids=["prompt", "static resource", "template resource"],
)
async def test_prompts_and_resources_return_questions(app: Server, call) -> None:
    def answer(ctx: Context) -> str | InputRequired:
        name = ctx.accepted("name", str)
        return f"Hello {name}" if name else input_required({"name": ask.form("Name?", str)})

    @app.prompt
    async def form(ctx: Context) -> str | InputRequired:
        return answer(ctx)

    @app.resource("form://static")
    async def static(ctx: Context) -> str | InputRequired:
        return answer(ctx)

    @app.resource("form://{id}/template")
    def template(id: str, ctx: Context) -> str | InputRequired:
        return answer(ctx)

    told = await converse(app, *call, answers={"name": accept(value="Ada")})
    assert (told.asked, told.text) == ([["name"]], "Hello Ada")
    refused = await converse(app, *call, answers={"name": decline()})
    assert refused.asked == [["name"]]
    assert "declined" in refused.error["message"]


async def test_everything_that_is_missing_for_a_returned_round_is_named(app: Server) -> None:
    @app.tool
    async def review() -> InputRequired:
        return input_required(
            {
                "form": ask.form("Where?", Where),
                "page": ask.url("Sign in", "https://example.com/"),
                "summary": ask.sample("Summarize", max_tokens=10, tool_choice="none"),
                "roots": ask.roots(),
            }
        )

    told = await converse(app, *tool("review"), capabilities={"elicitation": {}})
    assert told.error["code"] == -32021
    assert told.error["data"] == {
        "requiredCapabilities": {"elicitation": {"url": {}}, "sampling": {"tools": {}}, "roots": {}}
    }


# --- answers accumulate ------------------------------------------------------------------------------------------


def wizard(*keys: str, **options: Any) -> Server:
    app = Server("wizard", seal=Seal(KEY), **options)

    @app.tool
    async def plan(ctx: Context) -> str | InputRequired:
        answers = {key: ctx.accepted(key, str) for key in keys}
        for key, answer in answers.items():
            if answer is None:
                return input_required({key: ask.form(f"{key}?", str)})
        return " ".join(map(str, answers.values()))

    @app.tool
    async def plan_at_once(ctx: Context) -> str | InputRequired:
        answers = {key: ctx.accepted(key, str) for key in keys}
        open_ = {key: ask.form(f"{key}?", str) for key, answer in answers.items() if answer is None}
        return input_required(open_) if open_ else " ".join(map(str, answers.values()))

    return app


ANSWERS = {key: accept(value=key.upper()) for key in "abcd"}


async def test_answers_accumulate_over_the_rounds() -> None:
    told = await converse([wizard("a", "b", "c", "d"), wizard("a", "b", "c", "d")], *tool("plan"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a"], ["b"], ["c"], ["d"]], "A B C D")


async def test_a_client_may_answer_only_some_of_a_round() -> None:
    app = wizard("a", "b", "c")
    first = await leg(app, *tool("plan_at_once"))
    second = await leg(app, *tool("plan_at_once"), state=first.token, responses={"b": ANSWERS["b"]})
    assert sorted(second.questions) == ["a", "c"]
    third = await leg(app, *tool("plan_at_once"), state=second.token, responses={"a": ANSWERS["a"]})
    assert sorted(third.questions) == ["c"]
    last = await leg(app, *tool("plan_at_once"), state=third.token, responses={"c": ANSWERS["c"]})
    assert last.result["content"][0]["text"] == "A B C"


async def test_answers_to_an_older_release_still_count() -> None:
    old, new = wizard("a", "b"), wizard("c", "a")
    told = await converse([old, new, new], *tool("plan_at_once"), answers=ANSWERS)
    assert (told.asked, told.text) == ([["a", "b"], ["c"]], "C A")


async def test_answers_that_a_release_does_not_look_at_are_kept_for_one_that_does() -> None:
    told = await converse(
        [wizard("a", "b"), wizard("c"), wizard("a", "b", "c")], *tool("plan_at_once"), answers=ANSWERS
    )
    assert (told.asked, told.text) == ([["a", "b"], ["c"]], "A B C")


async def test_the_newest_answer_under_a_key_wins(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def haggle(ctx: Context) -> str | InputRequired:
        price = ctx.accepted("price", int)
        seen.append(price)
        if price is None or price < 10:
            return input_required({"price": ask.form(f"Not {price}. Your price?", int)})
        return f"Sold for {price}"

    told = await converse(
        app, *tool("haggle"), answers={"price": in_turn(accept(value=1), accept(value=5), accept(value=12))}
    )
    assert told.text == "Sold for 12"
    assert seen == [None, 1, 5, 12]


async def test_an_unusable_newer_response_does_not_hide_an_answer() -> None:
    app = wizard("a", "b")
    first = await leg(app, *tool("plan"))
    second = await leg(app, *tool("plan"), state=first.token, responses={"a": ANSWERS["a"]})
    assert list(second.questions) == ["b"]
    last = await leg(app, *tool("plan"), state=second.token, responses={"a": 5, "b": ANSWERS["b"]})
    assert last.result["content"][0]["text"] == "A B"


async def test_a_returned_question_may_change_on_every_round(app: Server) -> None:
    """Whoever reads what arrived under a key needs no stable question."""
    questions = ["Two and two?", "Three and three?", "Four and four?", "Five and five?", "Six and six?"]

    @app.tool
    async def quiz(ctx: Context) -> str | InputRequired:
        answers: list[int] = ctx.state(list[int]) or []
        if ctx.round > 1:
            answers = [*answers, ctx.accepted("answer", int) or 0]
        if len(answers) < len(questions):
            return input_required({"answer": ask.form(questions[len(answers)], int)}, state=answers)
        return str(answers)

    told = await converse(
        app, *tool("quiz"), answers={"answer": in_turn(*(accept(value=n) for n in (4, 6, 8, 10, 12)))}
    )
    assert told.messages == [[question] for question in questions]
    assert told.text == "[4, 6, 8, 10, 12]"


async def test_steps_and_returned_questions_go_together(app: Server) -> None:
    effects: list[str] = []

    @app.tool
    async def reserve(ctx: Context) -> str | InputRequired:
        ticket = await ctx.step("reserve", lambda: effects.append("reserved") or len(effects))
        if ctx.accepted("confirm", bool) is None:
            return input_required({"confirm": ask.form("Keep it?", bool)})
        return f"ticket {ticket}"

    told = await converse(app, *tool("reserve"), answers={"confirm": in_turn(None, accept(value=True))})
    assert (told.asked, told.text, effects) == ([["confirm"]] * 2, "ticket 1", ["reserved"])


async def test_a_handler_may_return_one_question_and_await_the_next(app: Server) -> None:
    @app.tool
    async def mixed(ctx: Context) -> str | InputRequired:
        name = ctx.accepted("name", str)
        if name is None:
            return input_required({"name": ask.form("Name?", str)})
        return f"{name} {await ctx.confirm('Sure?')}"

    told = await converse(app, *tool("mixed"), answers={"name": accept(value="Ada"), "confirm": accept(confirm=True)})
    assert (told.asked, told.text) == ([["name"], ["confirm"]], "Ada True")


# --- nothing loops on a refusal ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("refusal", "verb"), [(decline(), "declined"), (cancel(), "cancelled")])
async def test_a_question_that_was_just_refused_and_comes_back_ends_the_call(
    app: Server, refusal: object, verb: str
) -> None:
    told = await converse(deploying(app), *tool("deploy", env="prod"), answers={"confirm": refusal})
    assert told.asked == [["confirm"]]
    assert told.failed
    assert verb in told.text
    assert "confirm" in told.text


async def test_one_refusal_among_several_questions_ends_the_call() -> None:
    told = await converse(wizard("a", "b"), *tool("plan_at_once"), answers={"a": ANSWERS["a"], "b": decline()})
    assert told.asked == [["a", "b"]]
    assert told.failed
    assert "declined" in told.text


async def test_a_question_built_to_be_asked_again_is_asked_again(app: Server) -> None:
    @app.tool
    async def insist(ctx: Context) -> str | InputRequired:
        answer = ctx.accepted("name", str)
        return answer or input_required({"name": ask.form("Name?", str, again=True)})

    told = await converse(app, *tool("insist"), answers={"name": in_turn(decline(), cancel(), accept(value="Ada"))})
    assert (told.asked, told.text) == ([["name"]] * 3, "Ada")


async def test_a_page_built_to_be_asked_again_is_asked_again(app: Server) -> None:
    @app.tool
    async def insist(ctx: Context) -> str | InputRequired:
        match ctx.response("page"):
            case Elicited(action="accept"):
                return "opened"
        return input_required({"page": ask.url("Sign in", "https://example.com/", again=True)})

    told = await converse(app, *tool("insist"), answers={"page": in_turn(decline(), {"action": "accept"})})
    assert (told.asked, told.text) == ([["page"]] * 2, "opened")


async def test_another_question_after_a_refusal_is_asked(app: Server) -> None:
    @app.tool
    async def bargain(ctx: Context) -> str | InputRequired:
        match ctx.response("pay"):
            case Elicited(action="accept"):
                return "paid"
            case Elicited(action="decline"):
                return input_required({"pay": ask.form("Pay half?", bool)})
        return input_required({"pay": ask.form("Pay all?", bool)})

    told = await converse(app, *tool("bargain"), answers={"pay": in_turn(decline(), accept(value=True))})
    assert (told.messages, told.text) == ([["Pay all?"], ["Pay half?"]], "paid")


async def test_a_handler_may_deal_with_a_refusal_itself(app: Server) -> None:
    @app.tool
    async def tag(ctx: Context) -> str | InputRequired:
        match ctx.response("confirm"):
            case Elicited(action="decline" | "cancel"):
                raise ToolError("Tagging cancelled by the operator")
            case Elicited():
                return "Tagged"
        return input_required({"confirm": ask.form("Tag?", bool)})

    told = await converse(app, *tool("tag"), answers={"confirm": decline()})
    assert told.failed
    assert told.text == "Tagging cancelled by the operator"


# --- state -------------------------------------------------------------------------------------------------------

codecs = pytest.mark.parametrize("codec", [Seal(KEY), SignedState(KEY)], ids=["Seal", "SignedState"])


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        (Where, Where("eu", 3)),
        (dict[str, int], {"a": 1}),
        (tuple[int, str], (1, "a")),
        (list[Where], [Where("eu")]),
        (str, "step-2"),
        (str, ""),
        (int, 0),
        (bool, False),
        (list[int], []),
        (dict[str, int], {}),
        (Literal["a", "b"], "b"),
    ],
    ids=str,
)
@codecs
async def test_state_comes_back_as_what_went_in(codec: Seal | SignedState, shape: Any, value: object) -> None:
    seen: list[object] = []

    def make() -> Server:
        app = Server("stateful", seal=codec)

        @app.tool
        async def work(ctx: Context) -> str | InputRequired:
            if ctx.round == 1:
                return input_required({"a": ask.form("A?", str)}, state=value)
            seen.append(ctx.state(shape))
            return "done"

        return app

    await converse([make(), make()], *tool("work"), answers=ANSWERS)
    assert seen == [value]
    assert type(seen[0]) is type(value)


@codecs
async def test_without_a_state_there_is_none(codec: Seal | SignedState) -> None:
    app = Server("stateless", seal=codec)
    seen: list[object] = []

    @app.tool
    async def work(ctx: Context) -> str | InputRequired:
        seen.append(ctx.state(dict[str, int]))
        return "done" if ctx.round > 1 else input_required({"a": ask.form("A?", str)})

    await converse(app, *tool("work"), answers=ANSWERS)
    assert seen == [None, None]


async def test_state_without_a_shape_is_plain_data(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def work(ctx: Context) -> str | InputRequired:
        seen.append(ctx.state())
        return "done" if ctx.round > 1 else input_required(state={"where": Where("eu"), "n": (1, 2)})

    await converse(app, *tool("work"))
    assert seen == [None, {"where": {"region": "eu", "replicas": 2}, "n": [1, 2]}]


async def test_a_round_with_only_a_state_asks_nothing_and_comes_back(app: Server) -> None:
    @app.tool
    async def work(count: int, ctx: Context) -> int | InputRequired:
        done = ctx.state(int) or 0
        return done if done == count else input_required(state=done + 1)

    told = await converse(app, *tool("work", count=4))
    assert [sorted(leg_.result.keys() - {"_meta"}) for leg_ in told.rounds[:-1]] == [["requestState", "resultType"]] * 4
    assert told.text == "4"


async def test_an_answer_survives_a_round_with_only_a_state(app: Server) -> None:
    @app.tool
    async def work(ctx: Context) -> str | InputRequired:
        name = ctx.accepted("a", str)
        if name is None:
            return input_required({"a": ask.form("A?", str)})
        return f"{name} {ctx.state(int)}" if ctx.state() else input_required(state=7)

    told = await converse(app, *tool("work"), answers=ANSWERS)
    assert told.text == "A 7"


async def test_the_state_is_hidden_from_the_client(app: Server) -> None:
    secret = "the secret of the state"

    @app.tool
    async def work() -> InputRequired:
        return input_required({"a": ask.form("A?", str)}, state={"secret": secret})

    token = (await leg(app, *tool("work"))).token
    raw = token.partition(".")[2]
    assert secret not in token
    assert secret.encode() not in base64.urlsafe_b64decode(raw + "=" * (-len(raw) % 4))


async def test_a_state_of_another_shape_is_an_error_and_not_passed_on(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    @app.tool
    async def work(ctx: Context) -> str | InputRequired:
        return str(ctx.state(int)) if ctx.round > 1 else input_required(state="text")

    told = await converse(app, *tool("work"))
    assert told.error == {"code": -32603, "message": "Internal error"}
    assert "work" in logged.text


# --- the low level -----------------------------------------------------------------------------------------------


async def test_low_level_handlers_ask_in_every_style(app: Server) -> None:
    @app.on("tools/call")
    async def call_tool(params: dict[str, Any], ctx: Context) -> dict[str, Any] | InputRequired:
        name = ctx.accepted("name", str)
        if name is None:
            return input_required({"name": ask.form("Name?", str)}, state="v1")
        assert ctx.state(str) == "v1"
        return {"content": [{"type": "text", "text": f"{params['name']} for {name}"}]}

    @app.on("prompts/get")
    async def get_prompt(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        name = (await ctx.elicit("Name?", str, key="name")).unwrap()
        return {"messages": [{"role": "user", "content": {"type": "text", "text": f"Hello {name}"}}]}

    @app.on("resources/read")
    def read(params: dict[str, Any], ctx: Context) -> dict[str, Any] | InputRequired:
        name = ctx.accepted("name", str)
        if name is None:
            return input_required({"name": ask.form("Name?", str)})
        return {"contents": [{"uri": params["uri"], "text": f"{name} reads"}], "ttlMs": 0, "cacheScope": "private"}

    answers = {"name": accept(value="Ada")}
    called = await converse(app, *tool("anything"), answers=answers)
    got = await converse(app, *prompt("anything"), answers=answers)
    was_read = await converse(app, *resource("any://thing"), answers=answers)
    assert [told.asked for told in (called, got, was_read)] == [[["name"]]] * 3
    assert [told.text for told in (called, got, was_read)] == ["anything for Ada", "Hello Ada", "Ada reads"]


async def test_a_low_level_handler_does_not_loop_on_a_refusal_either(app: Server) -> None:
    @app.on("tools/call")
    async def call_tool(params: dict[str, Any], ctx: Context) -> InputRequired:
        return input_required({"name": ask.form("Name?", str)})

    told = await converse(app, *tool("anything"), answers={"name": decline()})
    assert told.asked == [["name"]]
    assert told.failed
    assert "declined" in told.text


# --- recorded answers stay ---------------------------------------------------------------------------------------


async def test_an_answer_of_an_earlier_round_is_not_replaced_by_one_that_was_not_asked_for(app: Server) -> None:
    @app.tool
    async def order(ctx: Context) -> str | InputRequired:
        amount = ctx.accepted("amount", int)
        if amount is None:
            return input_required({"amount": ask.form("How many?", int)})
        if ctx.accepted("sure", bool) is not True:
            return input_required({"sure": ask.form(f"Charged for {amount}. Deliver?", bool)})
        return f"Delivered {amount}"

    first = await leg(app, *tool("order"))
    second = await leg(app, *tool("order"), state=first.token, responses={"amount": accept(value=1)})
    assert second.questions["sure"]["params"]["message"] == "Charged for 1. Deliver?"
    late = {"amount": accept(value=1_000_000), "sure": accept(value=True)}
    last = await leg(app, *tool("order"), state=second.token, responses=late)
    assert last.result["content"][0]["text"] == "Delivered 1"
    more = await leg(app, *tool("order"), state=second.token, responses={"amount": accept(value=1_000_000)})
    assert more.questions["sure"]["params"]["message"] == "Charged for 1. Deliver?"
    end = await leg(app, *tool("order"), state=more.token, responses={"sure": accept(value=True)})
    assert end.result["content"][0]["text"] == "Delivered 1"


async def test_an_answer_to_another_question_under_the_same_key_does_not_count(app: Server) -> None:
    @app.tool
    async def delete(ctx: Context) -> str | InputRequired:
        if ctx.round < 3:
            return input_required({"sure": ask.form("Delete 3?" if ctx.round == 1 else "Delete 3000?", bool)})
        return f"{ctx.accepted('sure', bool)}"

    first = await leg(app, *tool("delete"))
    second = await leg(app, *tool("delete"), state=first.token, responses={"sure": accept(value=True)})
    for responses in ({}, {"sure": 5}, {"other": accept(value=True)}):
        last = await leg(app, *tool("delete"), state=second.token, responses=responses)
        assert last.result["content"][0]["text"] == "None"


async def test_an_awaited_answer_is_not_replaced_either_when_it_is_read_by_its_key(app: Server) -> None:
    @app.tool
    async def order(ctx: Context) -> str:
        amount = (await ctx.elicit("How many?", int, key="amount")).unwrap()
        seen = ctx.response("amount")
        sure = await ctx.confirm(f"Deliver {amount}?", key="sure")
        return f"{seen} {amount} {sure}"

    first = await leg(app, *tool("order"))
    second = await leg(app, *tool("order"), state=first.token, responses={"amount": accept(value=1)})
    late = {"amount": accept(value=1_000_000), "sure": 5}
    third = await leg(app, *tool("order"), state=second.token, responses=late)
    last = await leg(app, *tool("order"), state=third.token, responses={**late, "sure": accept(confirm=True)})
    assert last.result["content"][0]["text"] == f"{Elicited('accept', {'value': 1})} 1 True"


# --- results as the wire has them --------------------------------------------------------------------------------

REGION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which region?",
        "requestedSchema": {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]},
    },
}


def provisioning(app: Server, how: str = "handler") -> Server:
    def provision(params: dict[str, Any]) -> dict[str, Any]:
        answer = (params.get("inputResponses") or {}).get("region") or {}
        if params.get("requestState") is None or not answer.get("content"):
            return {"resultType": "input_required", "inputRequests": {"region": REGION}, "requestState": "provision-v1"}
        text = f"{params['requestState']} in {answer['content']['region']}"
        if params["name"] == "thanks":
            return {"content": [{"type": "text", "text": text}], "messages": [], "contents": []}
        return {
            "content": [{"type": "text", "text": text}],
            "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
        }

    if how == "handler":

        @app.on("tools/call")
        async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
            return provision(params)

        @app.on("prompts/get")
        def get_prompt(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
            return {name: value for name, value in provision(params).items() if name != "content"}
    else:
        app.tool(provision, name="provision", input_schema={})

        @app.middleware
        async def replace(ctx: Context, proceed: Any) -> Any:
            state = ctx.state(str)
            region = ctx.accepted("region", {**REGION["params"]["requestedSchema"]})
            responses = None if region is None else {"region": {"content": region}}
            return provision({"name": ctx.name, "requestState": state, "inputResponses": responses})

    return app


@pytest.mark.parametrize("how", ["handler", "middleware"])
async def test_a_raw_result_that_asks_is_sealed_and_its_answer_comes_back_with_its_state(app: Server, how: str) -> None:
    told = await converse(provisioning(app, how), *tool("provision"), answers={"region": accept(region="oslo")})
    assert (told.asked, told.text) == ([["region"]], "provision-v1 in oslo")
    assert told.rounds[0].questions == {"region": REGION}
    assert "provision" not in told.rounds[0].token


async def test_a_raw_result_of_a_prompt_asks_too(app: Server) -> None:
    told = await converse(provisioning(app), *prompt("p"), answers={"region": accept(region="oslo")})
    assert (told.asked, told.text) == ([["region"]], "provision-v1 in oslo")


@pytest.mark.parametrize("how", ["handler", "middleware"])
async def test_a_raw_result_asks_nothing_that_the_client_did_not_declare(app: Server, how: str) -> None:
    told = await converse(provisioning(app, how), *tool("provision"), capabilities={"sampling": {}})
    assert told.error["code"] == -32021
    assert told.error["data"] == {"requiredCapabilities": {"elicitation": {"form": {}}}}


@pytest.mark.parametrize("token", ["provision-v1", "x"])
async def test_a_raw_state_cannot_be_made_by_a_client(app: Server, token: str) -> None:
    done = await leg(provisioning(app), *tool("provision"), state=token, responses={"region": accept(region="oslo")})
    assert done.reply["error"]["code"] == -32602


async def test_a_raw_result_that_asks_again_after_a_refusal_ends_the_call(app: Server) -> None:
    told = await converse(provisioning(app), *tool("provision"), answers={"region": decline()})
    assert told.failed
    assert "declined" in told.text


async def test_a_low_level_handler_is_given_the_answers_to_what_it_asked_and_no_others(app: Server) -> None:
    seen: list[object] = []

    @app.on("tools/call")
    async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params.get("inputResponses"))
        if len(seen) < 3:
            return {"resultType": "input_required", "inputRequests": {f"q{len(seen)}": REGION}}
        return {"content": []}

    first = await leg(app, *tool("x"))
    both = {"q1": accept(region="1"), "q2": accept(region="2")}
    second = await leg(app, *tool("x"), state=first.token, responses=both)
    await leg(app, *tool("x"), state=second.token, responses={**both, "q1": accept(region="other")})
    assert seen == [None, {"q1": accept(region="1")}, {"q2": accept(region="2")}]


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        (REGION, {"elicitation": {"form": {}}}),
        (
            {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}},
            {"elicitation": {"form": {}}},
        ),
        (
            {"method": "elicitation/create", "params": {"mode": "url", "message": "?", "url": "https://a.example"}},
            {"elicitation": {"url": {}}},
        ),
        (ask.sample("Hi", max_tokens=1).to_wire(), {"sampling": {}}),
        (
            ask.sample("Hi", max_tokens=1, tool_choice="auto", context="thisServer").to_wire(),
            {"sampling": {"tools": {}, "context": {}}},
        ),
        ({"method": "roots/list"}, {"roots": {}}),
    ],
    ids=repr,
)
async def test_every_raw_question_is_asked_and_needs_its_capability(app: Server, question: Any, missing: Any) -> None:
    @app.on("tools/call")
    async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        return {"resultType": "input_required", "inputRequests": {"q": question}}

    done = await leg(app, *tool("x"))
    assert done.questions == {"q": {"params": {}, **question}}
    refused = await leg(app, *tool("x"), capabilities={})
    assert refused.reply["error"]["data"] == {"requiredCapabilities": missing}


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"inputRequests": {}},
        {"inputRequests": []},
        {"inputRequests": {"q": "Which region?"}},
        {"inputRequests": {"q": {"method": "tools/call", "params": {}}}},
        {"inputRequests": {"q": {"method": "elicitation/create", "params": []}}},
        {"requestState": 5},
        {"requestState": {"a": 1}},
    ],
    ids=repr,
)
async def test_a_raw_result_that_is_no_question_fails_and_says_why(
    app: Server, logged: pytest.LogCaptureFixture, result: Any
) -> None:
    @app.on("tools/call")
    async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        return {"resultType": "input_required", **result}

    assert (await leg(app, *tool("x"))).reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "inputRequests" in logged.text or "requestState" in logged.text


async def test_a_raw_state_alone_sheds_load(app: Server) -> None:
    @app.on("tools/call")
    async def call_tool(params: dict[str, Any]) -> dict[str, Any]:
        if "requestState" not in params:
            return {"resultType": "input_required", "requestState": "later"}
        return {"content": [{"type": "text", "text": params["requestState"]}]}

    told = await converse(app, *tool("x"))
    assert (told.asked, told.text) == ([[]], "later")


async def test_a_raw_result_of_a_method_that_may_not_ask_is_not_sent(app: Server) -> None:
    @app.on("bank.example/balance")
    async def balance(params: dict[str, Any]) -> dict[str, Any]:
        return {"resultType": "input_required", "inputRequests": {"region": REGION}}

    assert "may not ask" in (await leg(app, "bank.example/balance", {})).reply["error"]["message"]


# --- whatever a client sends -------------------------------------------------------------------------------------

NO_OBJECT = [True, False, 0, 1.5, "accept", "", [], [{"confirm": accept(confirm=True)}]]
GARBAGE = [
    None,
    {},
    {"": accept(confirm=True)},
    {"other": accept(confirm=True)},
    {"confirm": None},
    {"confirm": True},
    {"confirm": 1},
    {"confirm": "accept"},
    {"confirm": []},
    {"confirm": [accept(confirm=True)]},
    {"confirm": {}},
    {"confirm": {"action": "accept"}},
    {"confirm": {"action": "accept", "content": None}},
    {"confirm": {"action": "accept", "content": "true"}},
    {"confirm": {"action": "accept", "content": [True]}},
    {"confirm": {"action": "accept", "content": {}}},
    {"confirm": {"action": "accept", "content": {"confirm": "yes"}}},
    {"confirm": {"action": "accept", "content": {"confirm": 1}}},
    {"confirm": {"action": "accept", "content": {"confirm": {"confirm": True}}}},
    {"confirm": {"action": "approve", "content": {"confirm": True}}},
    {"confirm": {"action": "Accept", "content": {"confirm": True}}},
    {"confirm": {"action": ["accept"], "content": {"confirm": True}}},
    {"confirm": {"action": {"accept": 1}, "content": {"confirm": True}}},
    {"confirm": {"action": 1, "content": {"confirm": True}}},
    {"confirm": {"content": {"confirm": True}}},
    {"confirm": {"confirm": True}},
    {"confirm": sampled("yes")},
    {"confirm": roots("file:///yes")},
    {"confirm": {"roots": 5}},
    {"confirm": {"role": "assistant", "content": [], "model": 5}},
    {"Confirm": accept(confirm=True)},
]


@pytest.mark.parametrize("responses", GARBAGE, ids=repr)
async def test_garbage_for_an_answer_is_no_answer_and_no_crash(app: Server, responses: object) -> None:
    deploying(app)
    call = tool("deploy", env="prod")
    unasked = await leg(app, *call, responses=responses)
    assert list(unasked.questions) == ["confirm"]
    second = await leg(app, *call, state=unasked.token, responses=responses)
    assert list(second.questions) == ["confirm"]
    third = await leg(app, *call, state=second.token, responses=responses)
    assert list(third.questions) == ["confirm"]
    last = await leg(app, *call, state=third.token, responses={"confirm": accept(confirm=True)})
    assert last.result["content"][0]["text"] == "Deployed to prod"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_content_with_a_refusal_is_a_refusal(app: Server, action: str) -> None:
    sly = {"action": action, "content": {"confirm": True}}
    told = await converse(deploying(app), *tool("deploy", env="prod"), answers={"confirm": sly})
    assert told.failed
    assert "Deployed" not in told.text


async def test_content_with_a_refusal_is_not_shown_to_the_handler(app: Server) -> None:
    seen: list[object] = []

    @app.tool
    async def look(ctx: Context) -> str:
        seen.append(ctx.response("confirm"))
        return "done"

    await leg(app, *tool("look"), responses={"confirm": {"action": "decline", "content": {"confirm": True}}})
    assert seen == [Elicited("decline", None)]


@pytest.mark.parametrize("responses", GARBAGE, ids=repr)
async def test_garbage_looks_missing_or_raw_but_never_breaks_the_look(app: Server, responses: object) -> None:
    seen: list[object] = []

    @app.tool
    async def look(ctx: Context) -> str:
        seen.append(ctx.response("confirm"))
        return f"{ctx.accepted('confirm', Confirm)}"

    first = await leg(app, *tool("look"), responses=responses)
    assert first.result["content"][0]["text"] == "None"
    assert isinstance(seen[0], Missing | Elicited | Sampled | Rooted)


@pytest.mark.parametrize("responses", NO_OBJECT, ids=repr)
@pytest.mark.parametrize("call", [tool("deploy", env="prod"), prompt("p"), resource("x://y")], ids=lambda call: call[0])
async def test_responses_that_are_no_object_are_refused_and_use_no_token_up(call, responses: object) -> None:
    app = deploying(Server("strict", seal=Seal(KEY, single_use=True)))
    app.prompt(lambda: "p", name="p")
    app.resource("x://y")(lambda: "y")
    state: Any = ABSENT
    if call[0] == "tools/call":
        state = (await leg(app, *call)).token
    refused = await leg(app, *call, state=state, responses=responses)
    assert refused.reply["error"]["code"] == -32602
    assert "inputResponses" in refused.reply["error"]["message"]
    if call[0] == "tools/call":
        last = await leg(app, *call, state=state, responses={"confirm": accept(confirm=True)})
        assert last.result["content"][0]["text"] == "Deployed to prod"


async def test_a_state_and_responses_that_are_null_count_as_absent(app: Server) -> None:
    first = await leg(deploying(app), *tool("deploy", env="prod"), state=None, responses=None)
    assert list(first.questions) == ["confirm"]
    last = await leg(app, *tool("deploy", env="prod"), state=first.token, responses={"confirm": accept(confirm=True)})
    assert last.result["content"][0]["text"] == "Deployed to prod"
