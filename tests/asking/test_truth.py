"""Nothing that stands in place of an answer is ever taken for a yes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from antiphon import (
    Accepted,
    Ask,
    Cancelled,
    Context,
    Declined,
    Elicited,
    InputRequired,
    Missing,
    Rooted,
    Sample,
    Sampled,
    Server,
    Text,
    ToolError,
    ask,
    input_required,
)

from .driver import ABSENT, accept, cancel, converse, decline, leg, tool

INTERNAL = {"code": -32603, "message": "Internal error"}
SAMPLE = Sample(role="assistant", content=Text("no"), model="parrot")


# --- answers and questions have no truth value --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "advice"),
    [
        (Accepted(True), "ctx.confirm"),
        (Accepted(False), ".unwrap()"),
        (Declined(), "match"),
        (Cancelled(), "match"),
        (Missing(), "ctx.accepted"),
        (Elicited("accept", {"value": False}), "ctx.accepted"),
        (Sampled(SAMPLE), "match"),
        (Rooted(()), "match"),
        (SAMPLE, ".text"),
        (ask.form("Delete everything?", bool), "input_required"),
        (ask.url("Open", "https://a.example"), "input_required"),
        (input_required({"sure": ask.roots()}), "return"),
        (Ask("Delete everything?"), "Annotated"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_stands_in_place_of_an_answer_is_neither_true_nor_false(held: object, advice: str) -> None:
    with pytest.raises(TypeError, match="neither true nor false") as told:
        bool(held)
    assert advice in str(told.value)
    with pytest.raises(TypeError, match="neither true nor false"):
        _ = not held


@pytest.mark.parametrize("answer", [accept(value=True), accept(value=False), decline(), cancel()], ids=repr)
async def test_an_answer_that_is_used_as_a_condition_deletes_nothing(
    app: Server, logged: pytest.LogCaptureFixture, answer: Any
) -> None:
    deleted: list[str] = []

    @app.tool
    async def clear(ctx: Context) -> str:
        if await ctx.elicit("Delete everything?", bool):
            deleted.append("everything")
        return "done"

    told = await converse(app, *tool("clear"), answers={"value": answer})
    assert told.error == INTERNAL
    assert deleted == []
    assert "ctx.confirm(...)" in logged.text


# --- what was not awaited -----------------------------------------------------------------------------------------

UNAWAITED: dict[str, Callable[[Context], Any]] = {
    "elicit": lambda ctx: ctx.elicit("Who?", str),
    "elicit_url": lambda ctx: ctx.elicit_url("Open", "https://a.example"),
    "confirm": lambda ctx: ctx.confirm("Sure?"),
    "sample": lambda ctx: ctx.sample("Sum up", max_tokens=10),
    "roots": lambda ctx: ctx.roots(),
    "step": lambda ctx: ctx.step("effect", print, "ran"),
    "now": lambda ctx: ctx.now(),
    "random": lambda ctx: ctx.random(),
}
every_verb = pytest.mark.parametrize("verb", list(UNAWAITED))


@every_verb
async def test_a_condition_that_was_not_awaited_ends_the_call_whatever_the_handler_catches(
    app: Server, logged: pytest.LogCaptureFixture, verb: str
) -> None:
    @app.tool
    async def clear(ctx: Context) -> str:
        try:
            sure = bool(UNAWAITED[verb](ctx))
        except Exception:
            sure = True
        return f"cleared: {sure}"

    told = await converse(app, *tool("clear"), answers={})
    assert told.error == INTERNAL
    assert f"ctx.{verb}(...) was not awaited" in logged.text
    assert f"write 'await ctx.{verb}(...)'" in logged.text


@every_verb
async def test_what_was_never_awaited_ends_the_call(app: Server, logged: pytest.LogCaptureFixture, verb: str) -> None:
    @app.tool
    async def work(ctx: Context) -> str:
        return f"done by {UNAWAITED[verb](ctx)!r}"

    assert (await converse(app, *tool("work"), answers={})).error == INTERNAL
    assert f"ctx.{verb}(...) was not awaited" in logged.text


async def _returns(_: Context) -> str:
    return "done"


async def _raises(_: Context) -> str:
    raise ToolError("an error of its own")


async def _fails(_: Context) -> str:
    raise ValueError("an error of its own")


async def _asks_by_returning(_: Context) -> InputRequired:
    return input_required({"other": ask.form("Something else?", str)})


async def _asks(ctx: Context) -> str:
    return (await ctx.elicit("Something else?", str, key="other")).unwrap()


async def _asks_beside(ctx: Context) -> str:
    return "".join(await asyncio.gather(_asks(ctx), _asks(ctx)))


@pytest.mark.parametrize("then", [_returns, _raises, _fails, _asks_by_returning, _asks, _asks_beside])
async def test_however_the_handler_ends_after_it_the_call_fails_and_nothing_is_asked(
    app: Server, logged: pytest.LogCaptureFixture, then: Callable[[Context], Any]
) -> None:
    @app.tool
    async def clear(ctx: Context) -> Any:
        try:
            if ctx.confirm("Sure?"):
                pass
        except Exception:
            pass
        return await then(ctx)

    told = await converse(app, *tool("clear"), answers={"other": accept(value="x")})
    assert told.error == INTERNAL
    assert told.asked == []
    assert "ctx.confirm(...) was not awaited" in logged.text


async def test_a_handler_that_fails_after_a_question_that_it_never_awaited_is_told_both(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    @app.tool
    async def clear(ctx: Context) -> str:
        ctx.confirm("Sure?")
        raise ToolError("an error of its own")

    assert (await converse(app, *tool("clear"))).error == INTERNAL
    assert "ctx.confirm(...) was not awaited" in logged.text
    assert "an error of its own" in logged.text


@pytest.mark.parametrize("has_middleware", [True, False])
async def test_a_refusal_of_the_first_question_ends_a_call_that_has_made_the_second(
    app: Server, has_middleware: bool
) -> None:
    if has_middleware:

        @app.middleware
        async def passing(ctx: Context, proceed: Any) -> Any:
            return await proceed(ctx)

    @app.tool
    async def work(ctx: Context) -> str:
        first, second = ctx.elicit("a?", str, key="a"), ctx.elicit("b?", str, key="b")
        return (await first).unwrap() + (await second).unwrap()

    told = await converse(app, *tool("work"), answers={"a": decline()})
    assert told.failed
    assert told.text == "The user declined the request."
    told = await converse(app, *tool("work"), answers={"a": accept(value="x"), "b": accept(value="y")})
    assert (told.asked, told.text) == ([["a"], ["b"]], "xy")


async def test_a_middleware_may_await_its_question_after_the_handler_was_refused(app: Server) -> None:
    @app.middleware
    async def after(ctx: Context, proceed: Any) -> Any:
        question = ctx.elicit("Why?", str, key="why")
        result = await proceed(ctx)
        return {"content": [{"type": "text", "text": (await question).unwrap()}]} if "isError" in result else result

    @app.tool
    async def work(ctx: Context) -> str:
        return (await ctx.elicit("a?", str, key="a")).unwrap()

    told = await converse(app, *tool("work"), answers={"a": decline(), "why": accept(value="because")})
    assert (told.asked, told.text) == ([["a"], ["why"]], "because")


async def test_a_middleware_that_does_not_await_its_question_ends_the_call_before_the_handler_runs(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    ran: list[str] = []

    @app.middleware
    async def guard(ctx: Context, proceed: Any) -> Any:
        try:
            if not ctx.confirm("Run it?"):
                raise ToolError("not agreed")
        except TypeError:
            pass
        return await proceed(ctx)

    @app.tool
    async def work() -> str:
        ran.append("work")
        return "done"

    assert (await converse(app, *tool("work"))).error == INTERNAL
    assert ran == []
    assert "ctx.confirm(...) was not awaited" in logged.text


@pytest.mark.parametrize("proceeds", [True, False])
async def test_a_middleware_that_leaves_a_question_behind_ends_the_call(
    app: Server, logged: pytest.LogCaptureFixture, proceeds: bool
) -> None:
    @app.middleware
    async def guard(ctx: Context, proceed: Any) -> Any:
        result = await proceed(ctx) if proceeds else {"content": []}
        ctx.confirm("Was that right?")
        return result

    @app.tool
    async def work() -> str:
        return "done"

    assert (await converse(app, *tool("work"))).error == INTERNAL
    assert "ctx.confirm(...) was not awaited" in logged.text


async def test_an_attribute_of_a_question_that_was_not_awaited_says_what_to_write(
    app: Server, logged: pytest.LogCaptureFixture
) -> None:
    @app.tool
    async def name(ctx: Context) -> str:
        return ctx.elicit("Who?", str).unwrap()  # type: ignore[attr-defined, no-any-return]

    @app.tool
    async def careless(ctx: Context) -> str:
        try:
            return ctx.sample("Who?", max_tokens=5).text  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            return "done"

    assert (await converse(app, *tool("name"))).error == INTERNAL
    assert "write '(await ctx.elicit(...)).unwrap'" in logged.text
    assert (await converse(app, *tool("careless"))).error == INTERNAL
    assert "write '(await ctx.sample(...)).text'" in logged.text


@pytest.mark.parametrize("kind", ["tool", "plain tool", "prompt", "resource", "low level"])
async def test_a_question_that_is_returned_by_itself_says_what_to_write(
    app: Server, logged: pytest.LogCaptureFixture, kind: str
) -> None:
    async def work() -> Any:
        return ask.form("Who?", str)

    method, params = tool("work")
    if kind == "tool":
        app.tool(work)
    elif kind == "plain tool":

        @app.tool(name="work")
        def plain(ctx: Context) -> Any:
            return ask.form("Who?", str)
    elif kind == "prompt":
        app.prompt(work)
        method = "prompts/get"
    elif kind == "resource":
        app.resource("x://y")(work)
        method, params = "resources/read", {"uri": "x://y"}
    else:

        @app.on("tools/call")
        async def call_tool(params: dict[str, Any]) -> Any:
            return ask.form("Who?", str)

    done = await leg(app, method, params, responses=ABSENT)
    assert done.reply["error"] == INTERNAL
    assert "return input_required({" in logged.text
