"""Prompts: functions become messages for a model."""

import base64
import enum
import logging
from typing import Annotated, Literal

import pytest

from antiphon import (
    Audio,
    Contents,
    Context,
    EmbeddedResource,
    Icon,
    Image,
    InvalidParams,
    Message,
    PromptResult,
    ResourceLink,
    Text,
    ToolError,
)

PNG = b"\x89PNG"


class Tone(enum.Enum):
    WARM = "warm"
    COLD = "cold"


@pytest.fixture
def get(call):
    async def get(app, name, arguments=None, **about):
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
        return await call(app, "prompts/get", params, **about)

    return get


async def test_a_function_becomes_a_prompt_by_its_signature_and_docstring(app, call):
    @app.prompt
    def summarise(topic: str, ctx: Context, length: Annotated[str, "In words."] = "100") -> str:
        """Sum something up.

        Args:
            topic: What about.
        """
        return ""

    reply = await call(app, "prompts/list")
    assert reply["result"]["prompts"] == [
        {
            "name": "summarise",
            "description": "Sum something up.",
            "arguments": [
                {"name": "topic", "description": "What about.", "required": True},
                {"name": "length", "description": "In words."},
            ],
        }
    ]


async def test_a_prompt_without_arguments_and_words_is_just_a_name(app, call):
    @app.prompt
    def greet():
        return "hi"

    assert (await call(app, "prompts/list"))["result"]["prompts"] == [{"name": "greet"}]


async def test_everything_a_client_may_be_told_can_be_set(app, call):
    @app.prompt(
        name="code.review",
        title="Review",
        description="Reviews code.",
        icons=[Icon("data:image/png;base64,AA==")],
        meta={"com.example/a": 1},
    )
    def review() -> str:
        return ""

    assert (await call(app, "prompts/list"))["result"]["prompts"] == [
        {
            "name": "code.review",
            "title": "Review",
            "description": "Reviews code.",
            "icons": [{"src": "data:image/png;base64,AA=="}],
            "_meta": {"com.example/a": 1},
        }
    ]


async def test_a_prompt_is_filled_in(app, get):
    @app.prompt
    def summarise(topic: str, ctx: Context, length: str = "short") -> str:
        """Sum up."""
        return f"{length} about {topic} for {ctx.client.name}"

    reply = await get(app, "summarise", {"topic": "tea"})
    assert reply["result"]["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "short about tea for tests"}}
    ]
    assert reply["result"]["description"] == "Sum up."


@pytest.mark.parametrize("is_async", [True, False])
async def test_prompts_are_async_or_plain(app, get, is_async):
    async def soon(topic: str) -> str:
        return topic

    def now(topic: str) -> str:
        return topic

    app.add_prompt(soon if is_async else now, name="echo")
    reply = await get(app, "echo", {"topic": "tea"})
    assert reply["result"]["messages"][0]["content"]["text"] == "tea"


async def test_a_list_is_several_messages(app, get):
    @app.prompt
    def talk() -> list[Message | str]:
        return ["one", Message.assistant("two"), Message.user(Text("three"))]

    messages = (await get(app, "talk"))["result"]["messages"]
    assert [(message["role"], message["content"]["text"]) for message in messages] == [
        ("user", "one"),
        ("assistant", "two"),
        ("user", "three"),
    ]


@pytest.mark.parametrize(
    ("content", "block"),
    [
        (Image(PNG), {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}),
        (Audio(PNG), {"type": "audio", "data": base64.b64encode(PNG).decode(), "mimeType": "audio/wav"}),
        (ResourceLink("note://1", "one"), {"type": "resource_link", "uri": "note://1", "name": "one"}),
        (
            EmbeddedResource(Contents("note://1", text="x", mime_type="text/plain")),
            {"type": "resource", "resource": {"uri": "note://1", "text": "x", "mimeType": "text/plain"}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_messages_carry_every_kind_of_content(app, get, content, block):
    app.add_prompt(lambda: content, name="bare")
    app.add_prompt(lambda: [Message.assistant(content)], name="framed")
    assert (await get(app, "bare"))["result"]["messages"] == [{"role": "user", "content": block}]
    assert (await get(app, "framed"))["result"]["messages"] == [{"role": "assistant", "content": block}]


async def test_a_whole_result_says_it_all(app, get):
    @app.prompt
    def whole() -> PromptResult:
        """Listed."""
        return PromptResult(messages=[Message.user("x")], description="Got.", meta={"com.example/a": 1})

    result = (await get(app, "whole"))["result"]
    assert result["description"] == "Got."
    assert result["_meta"]["com.example/a"] == 1


async def test_arguments_come_as_strings_and_arrive_typed(app, get):
    seen = []

    @app.prompt
    def typed(count: int, ratio: float, loud: bool, tone: Tone, kind: Literal["a", "b"] = "a") -> str:
        seen.append((count, ratio, loud, tone, kind))
        return ""

    await get(app, "typed", {"count": "3", "ratio": "1.5", "loud": "true", "tone": "cold"})
    assert seen == [(3, 1.5, True, Tone.COLD, "a")]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (None, ["'count'"]),
        ({}, ["'count'"]),
        ({"count": "x"}, ["'count'", "int"]),
        ({"count": "1", "tone": "lukewarm"}, ["'tone'", "'warm'", "'cold'"]),
        ({"count": "1", "more": "x"}, ["'more'"]),
        ({"count": 1}, ["strings"]),
        ([], ["arguments"]),
        ("x", ["arguments"]),
    ],
)
async def test_bad_arguments_are_invalid_params_that_say_what_is_wrong(app, get, arguments, words):
    @app.prompt
    def typed(count: int, tone: Tone = Tone.WARM) -> str:
        raise AssertionError("must not run")

    error = (await get(app, "typed", arguments))["error"]
    assert error["code"] == -32602
    assert all(word in error["message"] for word in words), error


async def test_an_unknown_prompt_is_named(app, get):
    app.add_prompt(lambda: "", name="one")
    assert (await get(app, "two"))["error"] == {"code": -32602, "message": "Unknown prompt: two"}


async def test_a_failing_prompt_is_an_internal_error_without_its_secrets(app, get, caplog):
    @app.prompt
    def leak() -> str:
        raise RuntimeError("the password is 1234")

    with caplog.at_level(logging.ERROR, "antiphon"):
        reply = await get(app, "leak")
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "the password is 1234" in caplog.text


async def test_a_prompt_may_say_what_was_wrong_with_its_arguments(app, get):
    @app.prompt
    def picky(topic: str) -> str:
        raise InvalidParams(f"no {topic} here")

    @app.prompt
    def worried(topic: str) -> str:
        raise ToolError("cannot do that today")

    assert (await get(app, "picky", {"topic": "tea"}))["error"] == {"code": -32602, "message": "no tea here"}
    assert "cannot do that today" in (await get(app, "worried", {"topic": "tea"}))["error"]["message"]


@pytest.mark.parametrize("value", [5, {"a": 1}, object(), [1]], ids=["a number", "a dict", "an object", "a list"])
async def test_what_is_no_message_is_an_internal_error(app, get, value, caplog):
    app.add_prompt(lambda: value, name="odd")
    assert (await get(app, "odd"))["error"]["code"] == -32603


async def test_prompts_keep_their_order_come_and_go(app, call, get):
    for name in ("c", "a", "b"):
        app.add_prompt(lambda: "", name=name)

    async def names():
        return [prompt["name"] for prompt in (await call(app, "prompts/list"))["result"]["prompts"]]

    assert await names() == ["c", "a", "b"]
    app.remove_prompt("a")
    assert await names() == ["c", "b"]
    assert (await get(app, "a"))["error"]["code"] == -32602
    with pytest.raises(KeyError, match="a"):
        app.remove_prompt("a")
    with pytest.raises(ValueError, match="'b'"):
        app.add_prompt(lambda: "", name="b")


async def test_a_server_without_prompts_has_no_prompts_at_all(app, call):
    assert "prompts" not in (await call(app, "server/discover"))["result"]["capabilities"]
    for method in ("prompts/list", "prompts/get"):
        assert (await call(app, method, {"name": "x"}))["error"]["code"] == -32601
