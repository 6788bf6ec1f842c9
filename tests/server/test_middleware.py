"""Middleware: a function around every request."""

import asyncio
import logging

import pytest

from antiphon import Context, InvalidParams
from messages import SERVER


@pytest.fixture
def echo(app):
    @app.tool
    async def echo(text: str = "x") -> str:
        return text

    return app


async def test_a_middleware_sees_the_request_and_its_result(echo, use):
    seen = []

    @echo.middleware
    async def watch(ctx, proceed):
        seen.append((ctx.method, ctx.name, ctx.client.name))
        result = await proceed(ctx)
        seen.append(result["content"])
        return result

    await use(echo, "echo")
    assert seen == [("tools/call", "echo", "tests"), [{"type": "text", "text": "x"}]]


async def test_the_first_registered_is_the_outermost(echo, use):
    order = []

    def named(name):
        async def around(ctx, proceed):
            order.append(f"{name} in")
            result = await proceed(ctx)
            order.append(f"{name} out")
            return result

        return around

    echo.middleware(named("one"))
    echo.middleware(named("two"))
    await use(echo, "echo")
    assert order == ["one in", "two in", "two out", "one out"]


async def test_it_is_around_every_method_also_those_registered_later(echo, call):
    seen = []

    @echo.middleware
    async def watch(ctx, proceed):
        seen.append(ctx.method)
        return await proceed(ctx)

    echo.on("my/method")(lambda params: {})
    echo.add_prompt(lambda: "", name="p")
    echo.add_resource("a://b", lambda: "")
    methods = [
        ("server/discover", {}),
        ("tools/list", {}),
        ("tools/call", {"name": "echo"}),
        ("prompts/list", {}),
        ("prompts/get", {"name": "p"}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", {"uri": "a://b"}),
        ("my/method", {}),
    ]
    for method, params in methods:
        assert "result" in await call(echo, method, params)
    assert seen == [method for method, _ in methods]


async def test_it_may_change_what_goes_in_and_what_comes_out(echo, use):
    @echo.middleware
    async def shout(ctx, proceed):
        if ctx.method == "tools/call":
            ctx.params["arguments"]["text"] = ctx.params["arguments"]["text"].upper()
        result = await proceed(ctx)
        return {**result, "content": [*result["content"], {"type": "text", "text": "!"}]}

    result = await use(echo, "echo", {"text": "hi"})
    assert [block["text"] for block in result["content"]] == ["HI", "!"]


async def test_it_may_refuse(echo, call):
    @echo.middleware
    async def gate(ctx, proceed):
        if ctx.principal != "ann":
            raise InvalidParams("ann only")
        return await proceed(ctx)

    assert (await call(echo, "tools/call", {"name": "echo"}))["error"] == {"code": -32602, "message": "ann only"}
    assert "result" in await call(echo, "tools/call", {"name": "echo"}, principal="ann")


async def test_an_answer_of_its_own_is_a_whole_result(echo, use):
    # The referee asks for resultType and serverInfo on every result, whoever made it.
    @echo.middleware
    async def cached(ctx, proceed):
        return {"content": [{"type": "text", "text": "from the cache"}]}

    result = await use(echo, "echo")
    assert result["resultType"] == "complete"
    assert result["content"][0]["text"] == "from the cache"


@pytest.mark.parametrize("method", ["tools/list", "server/discover"])
async def test_an_answer_of_its_own_to_a_list_may_be_cached_as_lists_are(echo, call, method):
    # server/utilities/caching: "Servers MUST include caching hints" on these results; the referee looks for them.
    @echo.middleware
    async def cached(ctx, proceed):
        return {"tools": [], "supportedVersions": ["2026-07-28"], "capabilities": {}}

    assert (await call(echo, method))["result"]["resultType"] == "complete"


async def test_what_it_adds_to_one_result_does_not_leak_into_the_next(echo, call, use):
    @echo.middleware
    async def stamp(ctx, proceed):
        result = await proceed(ctx)
        if ctx.request_id == "stamped":
            result["_meta"]["com.example/secret"] = 1
            for tool in result.get("tools", []):
                tool["title"] = "changed"
        return result

    for method, params in (("tools/call", {"name": "echo"}), ("tools/list", {})):
        stamped = (await call(echo, method, params, id="stamped"))["result"]
        plain = (await call(echo, method, params, id="plain"))["result"]
        assert "com.example/secret" in stamped["_meta"]
        assert "com.example/secret" not in plain["_meta"]
        assert SERVER in plain["_meta"]
        assert all("title" not in tool for tool in plain.get("tools", []))


async def test_one_that_forgets_to_return_is_an_internal_error(echo, call, caplog):
    @echo.middleware
    async def forgetful(ctx, proceed):
        await proceed(ctx)

    assert (await call(echo, "tools/call", {"name": "echo"}))["error"]["code"] == -32603


async def test_one_that_fails_is_an_internal_error_without_its_secrets(echo, call, caplog):
    @echo.middleware
    async def broken(ctx, proceed):
        raise RuntimeError("the password is 1234")

    with caplog.at_level(logging.ERROR, "antiphon"):
        reply = await call(echo, "tools/call", {"name": "echo"})
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "the password is 1234" in caplog.text


async def test_it_sees_what_a_handler_raises(app, call):
    seen = []

    @app.tool
    async def fail() -> str:
        raise LookupError("no")

    @app.middleware
    async def watch(ctx, proceed):
        try:
            return await proceed(ctx)
        except LookupError as fault:
            seen.append(str(fault))
            raise InvalidParams("looked everywhere") from None

    assert (await call(app, "tools/call", {"name": "fail"}))["error"]["message"] == "looked everywhere"
    assert seen == ["no"]


async def test_a_tools_error_is_a_result_like_any_other(app, use):
    from antiphon import ToolError

    seen = []

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.middleware
    async def watch(ctx, proceed):
        result = await proceed(ctx)
        seen.append(result.get("isError"))
        return result

    await use(app, "fail")
    assert seen == [True]


async def test_a_plain_function_that_passes_the_awaitable_on_will_do(echo, use):
    @echo.middleware
    def transparent(ctx: Context, proceed):
        return proceed(ctx)

    assert (await use(echo, "echo"))["content"][0]["text"] == "x"


async def test_its_finally_runs_when_the_client_goes_away(app, http):
    from messages import tool_call

    order = []
    started = asyncio.Event()

    @app.tool
    async def wait(ctx: Context) -> None:
        await ctx.progress(1)
        started.set()
        await asyncio.Event().wait()

    @app.middleware
    async def tidy(ctx, proceed):
        try:
            return await proceed(ctx)
        finally:
            order.append("tidied")

    exchange = http.open(tool_call("wait", progress="t"))
    await asyncio.wait_for(started.wait(), 5)
    exchange.disconnect()
    await exchange.finished()
    assert order == ["tidied"]


async def test_one_may_be_added_while_serving(echo, use):
    seen = []
    await use(echo, "echo")

    @echo.middleware
    async def watch(ctx, proceed):
        seen.append(ctx.method)
        return await proceed(ctx)

    await use(echo, "echo")
    assert seen == ["tools/call"]
