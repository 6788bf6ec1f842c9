"""Tools: functions become schemas, calls and results."""

import asyncio
import base64
import contextvars
import enum
import functools
import json
import logging
import threading
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest

from antiphon import (
    Accepted,
    Annotations,
    Audio,
    Client,
    Contents,
    Context,
    EmbeddedResource,
    Header,
    Icon,
    Image,
    InvalidParams,
    ResourceLink,
    Server,
    Text,
    ToolAnnotations,
    ToolError,
    ToolResult,
)
from client.until import until

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


@dataclass
class Shape:
    name: str
    points: list[Point] = field(default_factory=list)


class Place(TypedDict):
    city: str
    zip: int


class Order(msgspec.Struct):
    sku: str
    amount: Annotated[int, msgspec.Meta(ge=1)] = 1


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


@pytest.fixture
def listed(call):
    async def listed(app):
        return (await call(app, "tools/list"))["result"]["tools"]

    return listed


def text_of(result):
    assert [block["type"] for block in result["content"]] == ["text"]
    return result["content"][0]["text"]


# --- what is listed -----------------------------------------------------------------------------------------------


async def test_a_function_becomes_a_tool_by_its_hints_and_its_docstring(app, listed):
    @app.tool
    async def add(title: str, body: str = "", tags: list[str] = []) -> dict[str, str]:
        """Add a note.

        Args:
            title: Shown in lists.
        """
        return {}

    (tool,) = await listed(app)
    assert tool["name"] == "add"
    assert tool["description"] == "Add a note."
    assert tool["inputSchema"]["type"] == "object"
    assert tool["inputSchema"]["required"] == ["title"]
    assert tool["inputSchema"]["properties"] == {
        "title": {"type": "string", "description": "Shown in lists."},
        "body": {"type": "string", "default": ""},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
    }
    assert tool["outputSchema"] == {"type": "object", "additionalProperties": {"type": "string"}}


async def test_a_tool_that_says_nothing_of_itself_is_listed_with_nothing_more(app, listed):
    @app.tool
    def plain():
        return "x"

    (tool,) = await listed(app)
    assert set(tool) == {"name", "inputSchema"}


async def test_everything_a_client_may_be_told_can_be_set(app, listed):
    @app.tool(
        name="files.delete-v2",
        title="Delete files",
        description="Deletes for good.",
        annotations=ToolAnnotations(
            title="T", read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
        ),
        icons=[Icon("https://example.com/i.png", mime_type="image/png", sizes=("48x48",), theme="dark")],
        meta={"com.example/x": {"y": 1}},
    )
    def delete() -> None:
        """Not this."""

    (tool,) = await listed(app)
    assert tool["name"] == "files.delete-v2"
    assert tool["title"] == "Delete files"
    assert tool["description"] == "Deletes for good."
    assert tool["annotations"] == {
        "title": "T",
        "readOnlyHint": False,
        "destructiveHint": True,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    assert tool["icons"] == [
        {"src": "https://example.com/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
    ]
    assert tool["_meta"] == {"com.example/x": {"y": 1}}
    assert "outputSchema" not in tool


async def test_the_context_is_not_a_parameter_that_the_model_sees(app, listed, use):
    @app.tool
    async def whoami(name: str, ctx: Context) -> str:
        return f"{name} {ctx.method}"

    (tool,) = await listed(app)
    assert list(tool["inputSchema"]["properties"]) == ["name"]
    assert text_of(await use(app, "whoami", {"name": "I"})) == "I tools/call"
    assert (await use(app, "whoami", {"name": "I", "ctx": {}}))["isError"]


def test_a_function_takes_the_context_at_most_once(app):
    with pytest.raises(TypeError, match="twice"):

        @app.tool
        async def twice(one: Context, two: Context) -> str: ...


async def test_the_decorator_gives_the_function_back(app):
    @app.tool
    def one(a: int) -> int:
        return a

    @app.tool(title="Two")
    def two(a: int) -> int:
        return a

    assert (one(1), two(2)) == (1, 2)


async def test_tools_are_listed_in_the_order_of_their_registration_every_time(app, listed):
    names = [f"tool{number}" for number in (3, 1, 2, 9, 5)]
    for name in names:
        app.add_tool(lambda: "x", name=name)
    for _ in range(3):
        assert [tool["name"] for tool in await listed(app)] == names


async def test_methods_callables_and_partials_are_tools_too(app, use):
    class Counter:
        def __init__(self):
            self.count = 0

        async def add(self, by: int) -> int:
            self.count += by
            return self.count

        def __call__(self, by: int) -> int:
            return self.count - by

    async def power(base: int, exponent: int) -> int:
        return base**exponent

    counter = Counter()
    app.add_tool(counter.add)
    app.add_tool(counter, name="less")
    app.add_tool(functools.partial(power, exponent=3), name="cube")
    assert (await use(app, "add", {"by": 5}))["structuredContent"] == 5
    assert (await use(app, "less", {"by": 2}))["structuredContent"] == 3
    assert (await use(app, "cube", {"base": 2}))["structuredContent"] == 8


async def test_a_decorator_between_may_hide_that_a_function_is_async(app, use):
    def traced(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @app.tool
    @traced
    async def echo(text: str) -> str:
        return text

    assert text_of(await use(app, "echo", {"text": "hi"})) == "hi"


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "a" * 129, "a\n"])
def test_a_name_that_clients_may_stumble_over_is_refused(app, name):
    with pytest.raises(ValueError, match="name"):
        app.add_tool(lambda: "x", name=name)


async def test_names_may_be_long_and_dotted(app, use):
    for name in ("a" * 128, "admin.tools.list", "DATA_EXPORT_v2", "get-user"):
        app.add_tool(lambda: "x", name=name)
        assert text_of(await use(app, name)) == "x"


def test_two_tools_of_one_name_are_refused(app):
    app.add_tool(lambda: "x", name="one")
    with pytest.raises(ValueError, match="'one'"):
        app.add_tool(lambda: "y", name="one")


def test_what_no_peer_can_send_is_refused_when_the_tool_is_registered(app):
    def spread(*values: int) -> str: ...

    def odd(value: threading.Lock) -> str: ...

    for function in (spread, odd):
        with pytest.raises(TypeError, match="value") as caught:
            app.add_tool(function)
        assert function.__name__ in str(caught.value)


async def test_tools_come_and_go_while_the_server_runs(app, listed, use, call):
    app.add_tool(lambda: "x", name="one")
    assert [tool["name"] for tool in await listed(app)] == ["one"]
    app.add_tool(lambda: "y", name="two")
    assert [tool["name"] for tool in await listed(app)] == ["one", "two"]
    app.remove_tool("one")
    assert [tool["name"] for tool in await listed(app)] == ["two"]
    assert "Unknown tool" in (await call(app, "tools/call", {"name": "one"}))["error"]["message"]
    app.remove_tool("two")
    assert await listed(app) == []
    with pytest.raises(KeyError, match="two"):
        app.remove_tool("two")


async def test_a_server_without_tools_has_no_tools_at_all(app, call):
    assert "tools" not in (await call(app, "server/discover"))["result"]["capabilities"]
    for method in ("tools/list", "tools/call"):
        assert (await call(app, method, {"name": "x"}))["error"]["code"] == -32601


# --- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "sent", "arrived"),
    [
        (str, "x", "x"),
        (int, 5, 5),
        (int, 5.0, 5),
        (float, 1.5, 1.5),
        (float, 2, 2.0),
        (bool, True, True),
        (list[int], [1, 2], [1, 2]),
        (set[str], ["a"], {"a"}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (dict[str, float], {"a": 1.0}, {"a": 1.0}),
        (Literal["a", 2], 2, 2),
        (Colour, "blue", Colour.BLUE),
        (Optional[int], None, None),
        (int | None, 3, 3),
        (int | str, "3", "3"),
        (date, "2026-07-28", date(2026, 7, 28)),
        (bytes, base64.b64encode(PNG).decode(), PNG),
        (Point, {"x": 1}, Point(1)),
        (Shape, {"name": "s", "points": [{"x": 1, "y": 2}]}, Shape("s", [Point(1, 2)])),
        (Place, {"city": "Ulm", "zip": 1}, {"city": "Ulm", "zip": 1}),
        (Order, {"sku": "a"}, Order("a")),
        (Person, {"name": "Ann", "age": 3}, Person(name="Ann", age=3)),
        (list[Person], [{"name": "Ann", "age": 3}], [Person(name="Ann", age=3)]),
        (Annotated[int, msgspec.Meta(ge=1, le=3)], 3, 3),
        (Annotated[str, pydantic.Field(max_length=3)], "abc", "abc"),
        (Any, {"a": [None]}, {"a": [None]}),
        (dict, {"a": 1}, {"a": 1}),
    ],
    ids=str,
)
async def test_arguments_arrive_as_what_the_hints_say(app, use, hint, sent, arrived):
    seen = []

    def take(value: hint) -> str:
        seen.append(value)
        return "taken"

    app.add_tool(take)
    result = await use(app, "take", {"value": sent})
    assert not result.get("isError"), result
    assert seen == [arrived]
    assert type(seen[0]) is type(arrived)


@pytest.mark.parametrize(
    ("hint", "sent", "words"),
    [
        (str, 5, ["'value'", "str"]),
        (int, "5", ["'value'", "int"]),
        (int, 5.5, ["'value'", "int"]),
        (int, True, ["'value'", "int"]),
        (bool, 1, ["'value'", "bool"]),
        (list[int], "x", ["'value'", "array"]),
        (list[int], [1, "x"], ["'value[1]'", "int"]),
        (Literal["a", "b"], "c", ["'value'", "'a'", "'b'"]),
        (Colour, "green", ["'value'", "'red'", "'blue'"]),
        (Point, {"x": "a"}, ["'value.x'", "int"]),
        (Point, {}, ["'value'", "'x'", "missing"]),
        (Shape, {"name": "s", "points": [{"y": 2}]}, ["'value.points[0]'", "'x'"]),
        (Place, {"city": "Ulm"}, ["'value'", "'zip'"]),
        (Order, {"sku": "a", "amount": 0}, ["'value.amount'", "1"]),
        (Person, {"name": "Ann", "age": -1}, ["value.age", "0"]),
        (Annotated[int, msgspec.Meta(ge=1, le=3)], 4, ["'value'", "3"]),
        (Annotated[str, pydantic.Field(max_length=3)], "abcd", ["'value'", "3"]),
        (date, "yesterday", ["'value'", "date"]),
        (int, None, ["'value'", "int"]),
    ],
    ids=str,
)
async def test_a_bad_argument_is_a_tool_error_that_says_what_was_expected(app, use, hint, sent, words):
    ran = []

    def take(value: hint) -> str:
        ran.append(value)
        return "taken"

    app.add_tool(take)
    result = await use(app, "take", {"value": sent})
    assert result["isError"] is True
    assert "structuredContent" not in result
    text = text_of(result)
    assert "take" in text
    assert all(word in text for word in words), text
    assert not ran


async def test_missing_and_unknown_arguments_are_named(app, use):
    @app.tool
    def take(needed: int, other: int = 0) -> str:
        return "taken"

    assert "'needed'" in text_of(await use(app, "take"))
    told = text_of(await use(app, "take", {"needed": 1, "neded": 1}))
    assert "'neded'" in told
    assert "needed" in told
    assert "other" in told


async def test_constraints_and_descriptions_stand_in_the_schema(app, listed):
    @app.tool
    def take(
        count: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many.")],
        name: Annotated[str, pydantic.Field(min_length=2, description="Whose.")],
        kind: Annotated[Literal["a", "b"], "Which."] = "a",
    ) -> None: ...

    (tool,) = await listed(app)
    properties = tool["inputSchema"]["properties"]
    assert properties["count"] == {"type": "integer", "minimum": 1, "maximum": 9, "description": "How many."}
    assert properties["name"] == {"type": "string", "minLength": 2, "description": "Whose."}
    assert properties["kind"]["enum"] == ["a", "b"]
    assert properties["kind"]["description"] == "Which."


async def test_a_mutable_default_is_fresh_for_every_call(app, use):
    @app.tool
    def grow(items: list[str] = []) -> int:
        items.append("x")
        return len(items)

    for _ in range(3):
        assert (await use(app, "grow"))["structuredContent"] == 1


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}, {"arguments": {}}])
async def test_arguments_may_be_left_out(app, call, arguments):
    @app.tool
    def ping() -> str:
        return "pong"

    reply = await call(app, "tools/call", {"name": "ping", **arguments})
    assert text_of(reply["result"]) == "pong"


@pytest.mark.parametrize("arguments", [[], "x", 1, True])
async def test_arguments_that_are_no_object_are_a_protocol_error(app, call, arguments):
    app.add_tool(lambda: "x", name="ping")
    reply = await call(app, "tools/call", {"name": "ping", "arguments": arguments})
    assert reply["error"]["code"] == -32602
    assert "arguments" in reply["error"]["message"]


async def test_an_unknown_tool_is_a_protocol_error_that_names_it(app, call):
    app.add_tool(lambda: "x", name="ping")
    reply = await call(app, "tools/call", {"name": "pong"})
    assert reply["error"] == {"code": -32602, "message": "Unknown tool: pong"}


# --- raw schemas --------------------------------------------------------------------------------------------------

ADDRESS = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "$defs": {"address": {"$anchor": "addr", "type": "object", "properties": {"zip": {"type": "integer"}}}},
    "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
    "if": {"required": ["address"]},
    "then": {"required": ["name"]},
    "else": True,
    "additionalProperties": False,
}


async def test_a_raw_schema_is_listed_word_for_word_and_validated(app, listed, use):
    @app.tool(input_schema=ADDRESS)
    def store(values: dict[str, Any]) -> str:
        """Store it."""
        return json.dumps(values)

    (tool,) = await listed(app)
    assert tool["inputSchema"] == ADDRESS
    assert tool["description"] == "Store it."
    assert text_of(await use(app, "store", {"name": "a"})) == '{"name": "a"}'
    for bad, words in [
        ({}, []),
        ({"name": 5}, ["name"]),
        ({"address": {}}, ["name"]),
        ({"name": "a", "address": {"zip": "x"}}, ["address", "zip", "integer"]),
        ({"name": "a", "more": 1}, ["more"]),
    ]:
        result = await use(app, "store", bad)
        assert result["isError"], bad
        assert all(word in text_of(result) for word in words), text_of(result)


async def test_under_a_raw_schema_a_function_may_take_the_properties_by_name(app, use):
    @app.tool(input_schema={"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a"]})
    async def add(a: int, ctx: Context, b: int = 1) -> int:
        return a + b

    assert (await use(app, "add", {"a": 2, "b": 3}))["structuredContent"] == 5
    assert (await use(app, "add", {"a": 2}))["structuredContent"] == 3
    assert (await use(app, "add", {"b": 2}))["isError"]


async def test_a_raw_schema_without_parameters_suits_a_function_without_any(app, use):
    @app.tool(input_schema={"type": "object", "additionalProperties": False})
    def ping() -> str:
        return "pong"

    assert text_of(await use(app, "ping")) == "pong"
    assert (await use(app, "ping", {"a": 1}))["isError"]


async def test_extra_properties_that_an_open_schema_lets_through_do_not_break_the_call(app, use):
    properties = {"a": {"type": "integer"}, "b": {"type": "integer"}}

    @app.tool(input_schema={"type": "object", "properties": properties, "required": ["a"]})
    def show(a: int, b: int = 0) -> int:
        return a + b

    assert (await use(app, "show", {"a": 1, "more": 2}))["structuredContent"] == 1


async def test_a_parameter_that_the_function_needs_and_the_raw_schema_does_not_is_named_in_time(app, use):
    # Either when the tool is registered, or to the model, which can mend it: never an internal error.
    def add(a: int, b: int) -> int:
        return a + b

    properties = {"a": {"type": "integer"}, "b": {"type": "integer"}}
    try:
        app.add_tool(add, input_schema={"type": "object", "properties": properties, "required": ["a"]})
    except TypeError as fault:
        assert "'b'" in str(fault)
        return
    result = await use(app, "add", {"a": 1})
    assert result["isError"]
    assert "'b'" in text_of(result)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "no-such-type"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.com/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/nothing"}}},
        {"$schema": "https://example.com/my-dialect", "type": "object"},
    ],
)
def test_a_raw_schema_that_is_none_is_refused_when_the_tool_is_registered(app, schema):
    with pytest.raises(ValueError):
        app.add_tool(lambda values: "x", name="bad", input_schema=schema)


def test_a_parameter_that_the_raw_schema_lacks_is_refused(app):
    def two(a: int, c: int) -> None: ...

    with pytest.raises(TypeError, match="'c'"):
        app.add_tool(two, input_schema={"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "b"]})


async def test_a_raw_output_schema_is_listed_and_kept(app, listed, use, call, caplog):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    @app.tool(output_schema=schema)
    def count(good: bool):
        return {"n": 1} if good else {"n": "secret"}

    (tool,) = await listed(app)
    assert tool["outputSchema"] == schema
    assert (await use(app, "count", {"good": True}))["structuredContent"] == {"n": 1}
    with caplog.at_level(logging.ERROR):
        reply = await call(app, "tools/call", {"name": "count", "arguments": {"good": False}})
    assert reply["error"]["code"] == -32603
    assert "secret" not in json.dumps(reply)
    assert "count" in caplog.text


async def test_a_promised_structure_must_also_be_in_a_whole_result(app, call):
    # server/tools, Output Schema: "Servers MUST provide structured results that conform to this schema."
    @app.tool(output_schema={"type": "object", "required": ["n"]})
    def count(kind: str) -> ToolResult:
        return {
            "good": ToolResult(structured={"n": 1}),
            "bad": ToolResult(structured={}),
            "none": ToolResult(content="one"),
            "failed": ToolResult(content="no", is_error=True),
        }[kind]

    async def outcome(kind):
        return await call(app, "tools/call", {"name": "count", "arguments": {"kind": kind}})

    assert (await outcome("good"))["result"]["structuredContent"] == {"n": 1}
    assert (await outcome("failed"))["result"]["isError"] is True
    assert (await outcome("bad"))["error"]["code"] == -32603
    assert (await outcome("none"))["error"]["code"] == -32603


# --- results ------------------------------------------------------------------------------------------------------


async def test_text_is_content(app, listed, use):
    @app.tool
    def say() -> str:
        return "hé\n"

    assert "outputSchema" not in (await listed(app))[0]
    result = await use(app, "say")
    assert result["content"] == [{"type": "text", "text": "hé\n"}]
    assert "structuredContent" not in result
    assert not result.get("isError", False)


@pytest.mark.parametrize(
    ("hint", "value", "data", "schema"),
    [
        (int, 5, 5, {"type": "integer"}),
        (float, 1.5, 1.5, {"type": "number"}),
        (bool, True, True, {"type": "boolean"}),
        (dict[str, int], {"a": 1}, {"a": 1}, {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[int], [1, 2], [1, 2], {"type": "array", "items": {"type": "integer"}}),
        (list[int], [], [], {"type": "array", "items": {"type": "integer"}}),
        (Point, Point(1, 2), {"x": 1, "y": 2}, None),
        (list[Point], [Point(1, 2)], [{"x": 1, "y": 2}], None),
        (Place, {"city": "Ulm", "zip": 1}, {"city": "Ulm", "zip": 1}, None),
        (Order, Order("a"), {"sku": "a", "amount": 1}, None),
        (Person, Person(name="Ann", age=3), {"name": "Ann", "age": 3}, None),
        (Colour, Colour.RED, "red", None),
        (date, date(2026, 7, 28), "2026-07-28", {"type": "string", "format": "date"}),
        (int | None, None, None, None),
    ],
    ids=str,
)
async def test_data_is_structured_content_and_its_json_is_text(app, listed, use, hint, value, data, schema):
    def give() -> hint:
        return value

    app.add_tool(give)
    (tool,) = await listed(app)
    if schema is not None:
        assert tool["outputSchema"] == schema
    assert "outputSchema" in tool
    result = await use(app, "give")
    assert result["structuredContent"] == data
    text = text_of(result)
    assert text == data if isinstance(data, str) else json.loads(text) == data


async def test_a_list_of_strings_is_structured_and_readable(app, listed, use):
    @app.tool
    def names() -> list[str]:
        return ["a", "b"]

    assert (await listed(app))[0]["outputSchema"] == {"type": "array", "items": {"type": "string"}}
    result = await use(app, "names")
    assert result["structuredContent"] == ["a", "b"]
    assert all(name in json.dumps(result["content"]) for name in ("a", "b"))


async def test_an_unpromised_structure_is_given_all_the_same(app, listed, use):
    @app.tool
    def anything():
        return {"a": [1, Point(1)]}

    assert "outputSchema" not in (await listed(app))[0]
    assert (await use(app, "anything"))["structuredContent"] == {"a": [1, {"x": 1, "y": 0}]}


async def test_nothing_is_no_content(app, use):
    @app.tool
    def silent() -> None: ...

    @app.tool
    def unannotated():
        pass

    for name in ("silent", "unannotated"):
        result = await use(app, name)
        assert result["content"] == []
        assert "structuredContent" not in result


async def test_a_value_that_breaks_the_return_annotation_is_our_fault_not_the_models(app, call, caplog):
    @app.tool
    def count() -> int:
        return "secret"  # type: ignore[return-value]

    reply = await call(app, "tools/call", {"name": "count"})
    assert reply["error"]["code"] == -32603
    assert "secret" not in json.dumps(reply)


ENCODED = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("value", "block"),
    [
        (Image(PNG), {"type": "image", "data": ENCODED, "mimeType": "image/png"}),
        (Image(PNG, "image/webp"), {"type": "image", "data": ENCODED, "mimeType": "image/webp"}),
        (Audio(PNG), {"type": "audio", "data": ENCODED, "mimeType": "audio/wav"}),
        (
            Text("x", annotations=Annotations(audience=("user",), priority=0.5, last_modified="2026-01-01T00:00:00Z")),
            {
                "type": "text",
                "text": "x",
                "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"},
            },
        ),
        (
            ResourceLink("note://1", "one", mime_type="text/plain", size=3),
            {"type": "resource_link", "uri": "note://1", "name": "one", "mimeType": "text/plain", "size": 3},
        ),
        (
            EmbeddedResource(Contents("note://1", text="x", mime_type="text/plain")),
            {"type": "resource", "resource": {"uri": "note://1", "text": "x", "mimeType": "text/plain"}},
        ),
        (
            Contents("note://1", blob=PNG, mime_type="image/png"),
            {"type": "resource", "resource": {"uri": "note://1", "blob": ENCODED, "mimeType": "image/png"}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("annotated", [True, False])
async def test_content_is_content(app, listed, use, value, block, annotated):
    def give():
        return value

    if annotated:
        give.__annotations__["return"] = type(value)
    app.add_tool(give)
    assert "outputSchema" not in (await listed(app))[0]
    result = await use(app, "give")
    assert result["content"] == [block]
    assert "structuredContent" not in result


async def test_content_comes_in_lists_too(app, listed, use):
    @app.tool
    def mixed() -> list[str | Image | EmbeddedResource]:
        return ["look", Image(PNG), EmbeddedResource(Contents("note://1", text="x"))]

    assert "outputSchema" not in (await listed(app))[0]
    result = await use(app, "mixed")
    assert [block["type"] for block in result["content"]] == ["text", "image", "resource"]


async def test_files_are_opened_with_their_types(app, use, tmp_path):
    (tmp_path / "a.jpg").write_bytes(PNG)
    (tmp_path / "a.mp3").write_bytes(PNG)
    app.add_tool(lambda: [Image.open(tmp_path / "a.jpg"), Audio.open(tmp_path / "a.mp3")], name="both")
    result = await use(app, "both")
    assert [block["mimeType"] for block in result["content"]] == ["image/jpeg", "audio/mpeg"]


@pytest.mark.parametrize("contents", [Contents(text="x"), Contents("note://1"), Contents("n://1", text="x", blob=b"y")])
async def test_an_embedded_resource_needs_a_uri_and_one_content(app, call, contents):
    # server/prompts, Embedded Resources: a URI, and either text or a blob; anything else must not reach the wire.
    app.add_tool(lambda: EmbeddedResource(contents), name="half")
    reply = await call(app, "tools/call", {"name": "half"})
    assert reply["error"]["code"] == -32603


async def test_a_whole_result_says_it_all(app, use):
    @app.tool
    def whole() -> ToolResult:
        return ToolResult(content=["a", Image(PNG)], structured={"n": 1}, is_error=True, meta={"com.example/took": 5})

    result = await use(app, "whole")
    assert [block["type"] for block in result["content"]] == ["text", "image"]
    assert result["structuredContent"] == {"n": 1}
    assert result["isError"] is True
    assert result["_meta"]["com.example/took"] == 5


async def test_a_structure_alone_is_told_as_text_too(app, use):
    app.add_tool(lambda: ToolResult(structured=[1]), name="data")
    app.add_tool(lambda: ToolResult(structured=None), name="null")
    assert (await use(app, "data"))["content"] == [{"type": "text", "text": "[1]"}]
    result = await use(app, "null")
    assert result["structuredContent"] is None
    assert result["content"] == [{"type": "text", "text": "null"}]


# --- failures -----------------------------------------------------------------------------------------------------


async def test_a_tool_error_is_for_the_model(app, use):
    @app.tool
    async def fail() -> int:
        raise ToolError("The date must be in the future.")

    result = await use(app, "fail")
    assert result["isError"] is True
    assert result["resultType"] == "complete"
    assert text_of(result) == "The date must be in the future."


@pytest.mark.parametrize("takes_context", [True, False])
async def test_a_tool_error_in_a_task_group_is_for_the_model(app, use, takes_context):
    async def fail(what):
        raise ToolError(what)

    async def several():
        async with asyncio.TaskGroup() as outer, asyncio.TaskGroup() as inner:
            outer.create_task(asyncio.Event().wait())
            inner.create_task(fail("The first date must be in the future."))

    if takes_context:

        @app.tool
        async def tool(ctx: Context) -> None:
            await several()
    else:

        @app.tool
        async def tool() -> None:
            await several()

    result = await use(app, "tool")
    assert result["isError"] is True
    assert text_of(result) == "The first date must be in the future."


async def test_a_tool_error_beside_another_in_a_task_group_is_a_failure(app, call, caplog):
    async def fail(fault):
        raise fault

    @app.tool
    async def tool() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail(ToolError("for the model")))
            group.create_task(fail(RuntimeError("the disk is full")))

    reply = await call(app, "tools/call", {"name": "tool"})
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "the disk is full" in caplog.text


async def test_a_protocol_error_in_a_task_group_is_told(app, call):
    async def fail():
        raise InvalidParams("no such page")

    @app.resource("page://{number}")
    async def page(number: str) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
        return number

    reply = await call(app, "resources/read", {"uri": "page://1"})
    assert reply["error"] == {"code": -32602, "message": "no such page"}


@pytest.mark.parametrize("is_async", [True, False])
async def test_any_other_exception_is_an_internal_error_and_a_traceback_in_the_log(app, call, caplog, is_async):
    async def soon():
        raise RuntimeError("the password is 1234")

    def now():
        raise RuntimeError("the password is 1234")

    app.add_tool(soon if is_async else now, name="leak")
    with caplog.at_level(logging.ERROR, "antiphon"):
        reply = await call(app, "tools/call", {"name": "leak"}, id="abc")
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "the password is 1234" in caplog.text
    assert caplog.records[0].exc_text.split("\n")[1].startswith(f'  File "{__file__}", line '), (
        "the author's frame first"
    )
    assert "'abc'" in caplog.text


async def test_a_protocol_error_is_passed_on(app, call):
    @app.tool
    async def picky() -> None:
        raise InvalidParams("not so", data={"a": 1})

    assert (await call(app, "tools/call", {"name": "picky"}))["error"] == {
        "code": -32602,
        "message": "not so",
        "data": {"a": 1},
    }


async def test_a_stop_iteration_in_a_thread_is_an_error_and_no_hang(app, call):
    @app.tool
    def stop() -> str:
        raise StopIteration

    async with asyncio.timeout(5):
        assert (await call(app, "tools/call", {"name": "stop"}))["error"]["code"] == -32603


async def test_a_cancellation_inside_the_handler_is_its_failure_and_not_the_callers(app, call):
    @app.tool
    async def clumsy() -> str:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        inner.cancel()
        await inner
        return "never"

    async with asyncio.timeout(5):
        assert (await call(app, "tools/call", {"name": "clumsy"}))["error"]["code"] == -32603
    assert asyncio.current_task().cancelling() == 0


UNFIT = {
    "an object": object(),
    "an object inside": {"a": object()},
    "half a character": "\ud800",
    "half a character inside": {"a": "\ud800"},
    "an object in the result's meta": ToolResult(content="x", meta={"com.example/x": object()}),
    "half a character in a whole result": ToolResult(content="\ud800"),
    "half a character in its structure": ToolResult(content="x", structured="\ud800"),
    "an object in a block's meta": Text("x", meta={"x": object()}),
    "a coroutine function": asyncio.sleep,
}


@pytest.mark.parametrize("what", UNFIT)
async def test_a_result_that_is_not_json_is_an_internal_error(app, http, what):
    app.add_tool(lambda: UNFIT[what], name="odd")
    reply = await http.tool("odd")
    assert reply.status == 200
    assert reply.error == {"code": -32603, "message": "Internal error"}


@pytest.mark.parametrize(
    "fault",
    [
        InvalidParams("no", data=object()),
        InvalidParams("\ud800"),
        InvalidParams("no", data={"a": "\ud800"}),
        ToolError("\ud800"),
    ],
    ids=["an object as data", "half a character", "half a character as data", "half a character for the model"],
)
async def test_an_error_that_is_not_json_is_an_internal_error(app, http, fault, caplog):
    @app.tool
    async def fail() -> None:
        raise fault

    reply = await http.tool("fail")
    assert reply.status == 200
    assert reply.error["code"] == -32603


async def test_whole_numbers_of_any_size_survive(app, http):
    @app.tool
    def big(n: int) -> int:
        return n * 10

    reply = await http.tool("big", {"n": 10**30}, id=10**30)
    assert reply.result["structuredContent"] == 10**31


# --- plain functions ----------------------------------------------------------------------------------------------

where = contextvars.ContextVar("where", default="nowhere")


async def test_plain_functions_run_in_threads_and_side_by_side(app, use):
    together = threading.Barrier(3, timeout=5)

    @app.tool
    def meet() -> bool:
        together.wait()
        return threading.current_thread() is threading.main_thread()

    results = await asyncio.gather(*(use(app, "meet") for _ in range(3)))
    assert [result["structuredContent"] for result in results] == [False] * 3


async def test_async_functions_run_on_the_event_loop(app, use):
    @app.tool
    async def here() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await use(app, "here"))["structuredContent"] is True


async def test_context_variables_reach_plain_functions(app, use):
    @app.tool
    def locate() -> str:
        return where.get()

    where.set("here")
    assert text_of(await use(app, "locate")) == "here"


async def test_no_more_plain_functions_run_at_once_than_there_are_threads(use):
    app = Server("small", threads=2)
    inside = threading.Semaphore(0)
    release = threading.Event()

    @app.tool
    def wait() -> None:
        inside.release()
        assert release.wait(5)

    calls = [asyncio.ensure_future(use(app, "wait")) for _ in range(3)]
    for _ in range(2):
        assert await asyncio.to_thread(inside.acquire, timeout=5)
    assert not inside.acquire(blocking=False)
    release.set()
    await asyncio.gather(*calls)


# --- parameters in headers ----------------------------------------------------------------------------------------


async def test_a_parameter_can_be_mirrored_into_a_header(app, listed, http):
    @app.tool
    def query(region: Annotated[str, Header("Region")], limit: Annotated[int, Header("Limit")] = 5) -> str:
        return f"{region} {limit}"

    (tool,) = await listed(app)
    assert tool["inputSchema"]["properties"]["region"]["x-mcp-header"] == "Region"
    arguments = {"region": "us west", "limit": 7}
    good = await http.tool("query", arguments, headers={"mcp-param-region": "us west", "mcp-param-limit": "7.0"})
    assert text_of(good.result) == "us west 7"
    encoded = await http.tool(
        "query", {"region": "é"}, headers={"mcp-param-region": f"=?base64?{base64.b64encode('é'.encode()).decode()}?="}
    )
    assert text_of(encoded.result) == "é 5"
    for headers in (
        {},
        {"mcp-param-region": "us west"},
        {"mcp-param-region": "eu", "mcp-param-limit": "7"},
        {"mcp-param-region": "us west", "mcp-param-limit": "8"},
        {"mcp-param-region": "=?base64?SGVs!!!bG8=?=", "mcp-param-limit": "7"},
        {"mcp-param-region": b"us west\xff", "mcp-param-limit": "7"},
    ):
        bad = await http.tool("query", arguments, headers=headers)
        assert (bad.status, bad.error["code"]) == (400, -32020), headers


async def test_without_http_nobody_looks_for_headers(app, use):
    @app.tool
    def query(region: Annotated[str, Header("Region")]) -> str:
        return region

    assert text_of(await use(app, "query", {"region": "eu"})) == "eu"


async def test_a_raw_schema_can_mirror_parameters_as_well(app, http):
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    app.add_tool(lambda values: "fine", name="query", input_schema=schema)
    assert (await http.tool("query", {"region": "eu"}, headers={"mcp-param-region": "eu"})).status == 200
    assert (await http.tool("query", {"region": "eu"})).status == 400
    assert (await http.tool("query", {"region": None})).status == 200
    assert (await http.tool("query", {})).status == 200


@pytest.mark.parametrize(
    "property_",
    [
        {"type": "number", "x-mcp-header": "A"},
        {"type": "string", "x-mcp-header": ""},
        {"type": "string", "x-mcp-header": "a b"},
        {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}},
        {"type": ["string", "null"], "x-mcp-header": "A"},
    ],
)
def test_a_mirrored_parameter_that_clients_would_refuse_is_refused_here(app, property_):
    schema = {"type": "object", "properties": {"a": property_}}
    with pytest.raises(ValueError, match="x-mcp-header"):
        app.add_tool(lambda values: "x", name="bad", input_schema=schema)


# --- handlers that do as they like --------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [KeyboardInterrupt, SystemExit, type("Panic", (BaseException,), {})])
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_a_handler_raises_its_call_is_answered(app, call, caplog, fault, is_async):
    async def soon():
        raise fault("no more")

    def now():
        raise fault("no more")

    app.add_tool(soon if is_async else now, name="end")
    reply = await call(app, "tools/call", {"name": "end"})
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "no more" in caplog.text


@pytest.mark.parametrize("is_async", [True, False])
def test_a_generator_is_no_tool(app, is_async):
    def some():
        yield 1

    async def few():
        yield 1

    with pytest.raises(TypeError, match="is a generator; return the whole result"):
        app.add_tool(few if is_async else some)


RAW = {"type": "object", "properties": {"order": {"type": "object"}, "note": {"type": "string"}}}


@pytest.mark.parametrize("how", ["any", "whole", "named", "keywords"])
async def test_a_handler_may_change_its_arguments_before_it_asks(app, how):
    seen = []

    async def ask(ctx, order):
        seen.append(order.pop("size"))
        order["more"] = object()
        return str(await ctx.confirm(f"Order size {seen[-1]}?"))

    if how == "any":

        @app.tool(name="buy")
        async def anything(order: Any, note: str, ctx: Context) -> str:
            return await ask(ctx, order)
    elif how == "whole":

        @app.tool(name="buy", input_schema=RAW)
        async def whole(arguments: dict, ctx: Context) -> str:
            arguments["note"] = "changed"
            return await ask(ctx, arguments["order"])
    elif how == "named":

        @app.tool(name="buy", input_schema=RAW)
        async def named(order: dict, ctx: Context) -> str:
            return await ask(ctx, order)
    else:

        @app.tool(name="buy", input_schema=RAW)
        async def keywords(ctx: Context, **arguments: Any) -> str:
            return await ask(ctx, arguments["order"])

    async with Client(app, elicit=lambda question: Accepted(True)) as client:
        arguments = {"order": {"size": 3}, "note": "n"}
        assert (await client.call_tool("buy", arguments)).text == "True"
    assert seen == [3, 3]


async def test_a_call_that_is_cancelled_before_its_turn_never_runs():
    app = Server("tests", threads=1)
    ran, open_ = [], threading.Event()

    @app.tool
    def work(number: int) -> str:
        ran.append(number)
        open_.wait(10)
        return "worked"

    async with Client(app) as client:
        calls = [asyncio.create_task(client.call_tool("work", {"number": number})) for number in range(3)]
        await until(lambda: ran)
        for waiting in calls[1:]:
            waiting.cancel()
        await asyncio.wait(calls[1:])
        open_.set()
        assert (await calls[0]).text == "worked"
        assert (await client.call_tool("work", {"number": 9})).text == "worked"
    assert ran == [0, 9]


async def test_steps_within_steps_need_no_free_thread():
    app = Server("tests", threads=2)

    @app.tool
    def outer(ctx: Context) -> str:
        return ctx.sync.step("outer", lambda: ctx.sync.step("inner", lambda: "both"))

    async with Client(app) as client, asyncio.timeout(10):
        results = await asyncio.gather(*(client.call_tool("outer") for _ in range(8)))
    assert [result.text for result in results] == ["both"] * 8


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_progress_is_a_number(app, call, caplog, number):
    @app.tool
    async def far(ctx: Context) -> None:
        await ctx.progress(number)

    reply = await call(app, "tools/call", {"name": "far"})
    assert reply["error"]["code"] == -32603
    assert "ctx.progress takes finite numbers" in caplog.text
