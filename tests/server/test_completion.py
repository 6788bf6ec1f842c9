"""Completion: suggestions for prompt arguments and template variables."""

import enum
from typing import Annotated, Literal

import pytest

from antiphon import Completion, Context


class Colour(enum.Enum):
    RED = "red"
    ROSE = "rose"
    BLUE = "blue"


@pytest.fixture
def complete(call):
    async def complete(app, target, argument, value="", context=None, **about):
        kind = "uri" if "://" in target else "name"
        ref = {"type": "ref/resource" if kind == "uri" else "ref/prompt", kind: target}
        params = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context is not None:
            params["context"] = {"arguments": context}
        return await call(app, "completion/complete", params, **about)

    return complete


@pytest.fixture
def shop(app):
    @app.prompt
    def review(language: str, framework: str = "") -> str:
        return ""

    @app.resource("shop://{city}/{item}")
    def item(city: str, item: str) -> str:
        return ""

    return app


async def test_a_function_suggests_values_for_a_prompt_argument(shop, complete, call):
    @shop.complete("review", "language")
    async def languages(value: str):
        return [name for name in ("python", "pascal", "rust") if name.startswith(value)]

    assert (await call(shop, "server/discover"))["result"]["capabilities"]["completions"] == {}
    reply = await complete(shop, "review", "language", "p")
    assert reply["result"]["completion"] == {"values": ["python", "pascal"], "total": 2, "hasMore": False}


async def test_the_target_may_be_the_prompts_function(app, complete):
    @app.prompt
    def plain(a: str) -> str:
        return ""

    @app.prompt(name="renamed")
    def other(a: str) -> str:
        return ""

    app.complete(plain, "a")(lambda value: ["one"])
    app.complete(other, "a")(lambda value: ["two"])
    assert (await complete(app, "plain", "a"))["result"]["completion"]["values"] == ["one"]
    assert (await complete(app, "renamed", "a"))["result"]["completion"]["values"] == ["two"]


async def test_the_target_may_be_the_function_of_templates(app, complete):
    @app.resource("one://{a}")
    @app.resource("two://{a}", name="other")
    def plain(a: str) -> str:
        return ""

    app.complete(plain, "a")(lambda value: ["found"])
    for uri in ("one://{a}", "two://{a}"):
        assert (await complete(app, uri, "a"))["result"]["completion"]["values"] == ["found"]


def test_a_function_that_is_no_target_is_named(app):
    @app.resource("one://fixed")
    def fixed() -> str:
        return ""

    for function in (fixed, test_a_function_that_is_no_target_is_named):
        with pytest.raises(ValueError, match=f"no prompt or resource template '{function.__name__}' to complete"):
            app.complete(function, "a")


async def test_the_target_may_be_the_templates_function(app, complete):
    class Shop:
        def item(self, city: str) -> str:
            return city

    shop = Shop()
    app.add_resource("shop://{city}", shop.item)
    app.complete(shop.item, "city")(lambda value: ["Kyoto"])
    assert (await complete(app, "shop://{city}", "city", ""))["result"]["completion"]["values"] == ["Kyoto"]


async def test_a_function_suggests_values_for_a_template_variable(shop, complete):
    @shop.complete("shop://{city}/{item}", "city")
    def cities(value: str):
        return iter(["Ulm", "Unna"])

    assert (await complete(shop, "shop://{city}/{item}", "city"))["result"]["completion"]["values"] == ["Ulm", "Unna"]


async def test_a_completer_may_see_the_other_arguments_and_the_context(shop, complete):
    @shop.complete("review", "framework")
    async def frameworks(value: str, arguments: dict[str, str], ctx: Context):
        return [f"{arguments.get('language')}-{value}-{ctx.client.name}"]

    reply = await complete(shop, "review", "framework", "fla", {"language": "python"})
    assert reply["result"]["completion"]["values"] == ["python-fla-tests"]
    reply = await complete(shop, "review", "framework", "fla")
    assert reply["result"]["completion"]["values"] == ["None-fla-tests"]


async def test_literals_and_enums_complete_themselves(app, complete):
    @app.prompt
    def paint(
        colour: Colour,
        size: Annotated[Literal["small", "Smaller", "large"], "How big."],
        other: Literal["x", "y"] | None = None,
    ) -> str:
        return ""

    @app.resource("paint://{colour}")
    def paints(colour: Colour) -> str:
        return ""

    async def values(target, argument, value):
        return (await complete(app, target, argument, value))["result"]["completion"]["values"]

    assert await values("paint", "colour", "r") == ["red", "rose"]
    assert await values("paint", "size", "SM") == ["small", "Smaller"]
    assert await values("paint", "other", "") == ["x", "y"]
    assert await values("paint://{colour}", "colour", "") == ["red", "rose", "blue"]
    assert await values("paint", "colour", "z") == []


async def test_at_most_a_hundred_values_travel(shop, complete):
    @shop.complete("review", "language")
    def many(value: str):
        return [str(number) for number in range(250)]

    completion = (await complete(shop, "review", "language"))["result"]["completion"]
    assert completion["values"] == [str(number) for number in range(100)]
    assert completion["total"] == 250
    assert completion["hasMore"] is True


async def test_a_completer_may_tell_how_many_there_are(shop, complete):
    shop.complete("review", "language")(lambda value: Completion(["a"], total=1000, has_more=True))
    shop.complete("review", "framework")(lambda value: Completion(["a"]))
    stated = await complete(shop, "review", "language")
    assert stated["result"]["completion"] == {"values": ["a"], "total": 1000, "hasMore": True}
    bare = await complete(shop, "review", "framework")
    assert bare["result"]["completion"]["values"] == ["a"]
    assert "total" not in bare["result"]["completion"]


async def test_values_that_were_cut_off_are_said_to_exist(shop, complete):
    shop.complete("review", "language")(lambda value: Completion([str(number) for number in range(150)]))
    completion = (await complete(shop, "review", "language"))["result"]["completion"]
    assert len(completion["values"]) == 100
    assert completion["hasMore"] is True


@pytest.mark.parametrize("found", [None, [], ()])
async def test_nothing_to_suggest_is_an_empty_list(shop, complete, found):
    shop.complete("review", "language")(lambda value: found)
    assert (await complete(shop, "review", "language"))["result"]["completion"]["values"] == []


async def test_arguments_without_a_completer_have_no_suggestions(shop, complete):
    shop.complete("review", "language")(lambda value: ["x"])
    assert (await complete(shop, "review", "framework"))["result"]["completion"]["values"] == []
    assert (await complete(shop, "shop://{city}/{item}", "item"))["result"]["completion"]["values"] == []


async def test_a_reference_to_a_plain_resource_has_no_suggestions(shop, complete):
    shop.add_resource("shop://open", lambda: "")
    shop.complete("review", "language")(lambda value: ["x"])
    assert (await complete(shop, "shop://open", "x"))["result"]["completion"]["values"] == []


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": {"type": "ref/prompt", "name": "review"}},
        {"ref": {"type": "ref/prompt", "name": "other"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "nothing", "value": ""}},
        {"ref": {"type": "ref/prompt"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/resource"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/tool", "name": "review"}, "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/resource", "uri": "no://where"}, "argument": {"name": "x", "value": ""}},
        {"ref": "review", "argument": {"name": "language", "value": ""}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": 5}},
        {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language"}},
        {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "language", "value": ""},
            "context": {"arguments": {"a": 1}},
        },
    ],
)
async def test_bad_references_are_invalid_params(shop, call, params):
    shop.complete("review", "language")(lambda value: ["x"])
    assert (await call(shop, "completion/complete", params))["error"]["code"] == -32602


async def test_a_server_that_completes_nothing_does_not_know_the_method(shop, complete, call):
    assert "completions" not in (await call(shop, "server/discover"))["result"]["capabilities"]
    assert (await complete(shop, "review", "language"))["error"]["code"] == -32601


async def test_a_failing_completer_is_an_internal_error(shop, complete, caplog):
    @shop.complete("review", "language")
    def broken(value: str):
        raise RuntimeError("the password is 1234")

    assert (await complete(shop, "review", "language"))["error"] == {"code": -32603, "message": "Internal error"}


def test_there_must_be_something_to_complete(shop):
    with pytest.raises(ValueError, match="'other'"):
        shop.complete("other", "language")
    with pytest.raises(ValueError, match=r"'nothing'.*language, framework"):
        shop.complete("review", "nothing")


def test_a_completer_takes_the_value_first(shop):
    with pytest.raises(TypeError, match="value"):
        shop.complete("review", "language")(lambda text, more: [])


async def test_a_prompt_that_is_gone_takes_its_completers_along(shop, complete):
    shop.complete("review", "language")(lambda value: ["old"])
    shop.remove_prompt("review")
    assert (await complete(shop, "review", "language"))["error"]["code"] == -32602

    @shop.prompt
    def review(language: str) -> str:
        return ""

    assert (await complete(shop, "review", "language"))["result"]["completion"]["values"] == []
