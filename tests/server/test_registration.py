"""What cannot work is refused where it is registered, with what to write instead."""

import functools
import re
from typing import Annotated, Any

import pytest

from antiphon import Client, Context, Server


@pytest.fixture
def app():
    return Server("registered")


def adders(app):
    return app.add_tool, app.add_prompt, functools.partial(app.add_resource, "note://1")


class Shop:
    def open(self) -> str:
        return "open"

    @classmethod
    def made(cls) -> str:
        return "made"


# --- what is refused


def test_a_resource_needs_a_uri(app):
    def note() -> str: ...

    told = re.escape('write @app.resource("note://{id}")')
    with pytest.raises(TypeError, match=told):
        app.resource(note)
    with pytest.raises(TypeError, match=told):
        app.add_resource(note, "note://1")


def test_a_method_must_be_bound(app):
    for add in adders(app):
        with pytest.raises(TypeError, match=r"Shop\.open\(\) is a method: register it on an object"):
            add(Shop.open)
        with pytest.raises(TypeError, match=r"Shop\.made\(\) is a method"):
            add(vars(Shop)["made"].__func__)
        with pytest.raises(TypeError, match="classmethod"):
            add(vars(Shop)["made"])


async def test_a_bound_method_is_fine(app):
    app.add_tool(Shop().open)
    app.add_tool(Shop.made)
    async with Client(app) as client:
        assert (await client.call_tool("open")).text == "open"
        assert (await client.call_tool("made")).text == "made"


@pytest.mark.parametrize("name", ["ctx", "context"])
def test_a_context_is_known_by_its_annotation(app, name):
    scope: dict[str, Any] = {}
    exec(f"async def handle({name}): ...", scope)
    for add in (*adders(app), app.on("x/y")):
        with pytest.raises(TypeError, match=f"handle.* parameter '{name}' has no annotation: write {name}: Context"):
            add(scope["handle"])


def test_only_functions_are_registered(app):
    for add in adders(app):
        with pytest.raises(TypeError, match="'text' is not a function"):
            add("text")
    with pytest.raises(TypeError, match="42 is not a function"):
        app.tool(42)
    with pytest.raises(TypeError, match="42 is not a function"):
        app.prompt(42)
    with pytest.raises(TypeError, match="takes a method"):
        app.on(test_only_functions_are_registered)


def test_a_lambda_needs_a_name(app):
    for add in (app.add_tool, app.add_prompt):
        with pytest.raises(ValueError, match="a lambda has no name: pass name="):
            add(lambda: "x")


async def test_a_lambda_behind_a_uri_is_named_by_it(app):
    app.add_resource("note://1", lambda: "x")
    async with Client(app) as client:
        assert [found.name for found in await client.list_resources()] == ["note://1"]


@pytest.mark.parametrize("about", [{"description": 5}, {"title": ["x"]}, {"icons": ["x.png"]}, {"meta": "x"}])
def test_what_is_told_to_clients_has_its_type(app, about):
    def note() -> str: ...

    for add in adders(app):
        with pytest.raises(TypeError, match=r"note\(\): "):
            add(note, **about)


def test_a_middleware_takes_the_context_and_the_rest(app):
    async def one(ctx: Context) -> dict[str, Any]:
        return {}

    with pytest.raises(TypeError, match=r"one\(\) must take a Context and proceed"):
        app.middleware(one)


# --- what is not


async def test_the_first_argument_of_the_decorator_may_be_the_name(app):
    @app.tool("add-note")
    def add(title: str) -> str:
        return title

    @app.prompt("sum-up", title="Sum up")
    def summarise() -> str:
        return "Sum up."

    assert add("x") == "x"
    async with Client(app) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add-note"]
        assert [(prompt.name, prompt.title) for prompt in await client.list_prompts()] == [("sum-up", "Sum up")]


async def test_partials_and_callable_objects_are_named_after_what_they_call(app):
    class Less:
        """Take away."""

        def __call__(self, by: int, ctx: Context) -> int:
            return 10 - by

    async def power(base: int, exponent: int) -> int:
        """Raise."""
        return base**exponent

    app.add_tool(Less())
    app.add_tool(functools.partial(power, exponent=3))
    app.add_tool(functools.partial(Less(), by=4), name="six")
    async with Client(app) as client:
        assert [(tool.name, tool.description) for tool in await client.list_tools()] == [
            ("Less", "Take away."),
            ("power", "Raise."),
            ("six", "Take away."),
        ]
        assert (await client.call_tool("Less", {"by": 2})).structured == 8
        assert (await client.call_tool("power", {"base": 2})).structured == 8
        assert (await client.call_tool("six")).structured == 6


async def test_a_context_may_be_optional_annotated_or_of_a_state(app):
    def optional(ctx: Context | None = None) -> bool:
        return ctx is not None

    def annotated(ctx: Annotated[Context, "the call"]) -> bool:
        return ctx.name == "annotated"

    def of_state(ctx: Context[dict[str, int]]) -> bool:
        return ctx.name == "of_state"

    async with Client(app) as client:
        for function in (optional, annotated, of_state):
            app.add_tool(function)
            assert (await client.call_tool(function.__name__)).structured is True
        assert all(not tool.input_schema.get("properties") for tool in await client.list_tools())


async def test_plain_data_may_describe_icons_and_annotations(app):
    app.add_tool(Shop().open, icons=[{"src": "https://x.example/a.png"}], annotations={"readOnlyHint": True})
    async with Client(app) as client:
        (tool,) = await client.list_tools()
    assert tool.icons[0].src == "https://x.example/a.png"
    assert tool.annotations.read_only_hint
