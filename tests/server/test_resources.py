"""Resources: functions become the contents under a URI, or under every URI of a template."""

import base64
import enum
import json
import logging

import pytest

from antiphon import Annotations, Contents, Context, Icon, ResourceNotFound, ResourceResult, Server

PNG = b"\x89PNG\x00\xff"


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@pytest.fixture
def read(call):
    async def read(app, uri, **about):
        return await call(app, "resources/read", {"uri": uri}, **about)

    return read


async def test_a_static_resource_is_listed_and_read(app, call, read):
    @app.resource("config://app", mime_type="text/toml")
    async def config() -> str:
        """The configuration."""
        return "a = 1"

    assert (await call(app, "resources/list"))["result"]["resources"] == [
        {"uri": "config://app", "name": "config", "description": "The configuration.", "mimeType": "text/toml"}
    ]
    assert (await call(app, "resources/templates/list"))["result"]["resourceTemplates"] == []
    assert (await read(app, "config://app"))["result"]["contents"] == [
        {"uri": "config://app", "mimeType": "text/toml", "text": "a = 1"}
    ]


async def test_a_template_is_listed_as_one_and_read_as_many(app, call, read):
    @app.resource("note://{id}", mime_type="text/markdown")
    async def note(id: str) -> str:
        """A note."""
        return f"# {id}"

    assert (await call(app, "resources/templates/list"))["result"]["resourceTemplates"] == [
        {"uriTemplate": "note://{id}", "name": "note", "description": "A note.", "mimeType": "text/markdown"}
    ]
    assert (await call(app, "resources/list"))["result"]["resources"] == []
    for id_ in ("1", "abc"):
        assert (await read(app, f"note://{id_}"))["result"]["contents"] == [
            {"uri": f"note://{id_}", "mimeType": "text/markdown", "text": f"# {id_}"}
        ]


async def test_everything_a_client_may_be_told_can_be_set(app, call):
    about = {
        "name": "readme",
        "title": "Read me",
        "description": "All about it.",
        "mime_type": "text/markdown",
        "annotations": Annotations(audience=("user", "assistant"), priority=1.0),
        "icons": [Icon("https://example.com/i.svg", mime_type="image/svg+xml")],
        "meta": {"com.example/a": 1},
    }
    app.resource("file:///README.md", size=120, **about)(lambda: "")
    app.add_resource("file:///{name}", lambda name: "", **about)
    expected = {
        "name": "readme",
        "title": "Read me",
        "description": "All about it.",
        "mimeType": "text/markdown",
        "annotations": {"audience": ["user", "assistant"], "priority": 1.0},
        "icons": [{"src": "https://example.com/i.svg", "mimeType": "image/svg+xml"}],
        "_meta": {"com.example/a": 1},
    }
    assert (await call(app, "resources/list"))["result"]["resources"] == [
        {"uri": "file:///README.md", "size": 120, **expected}
    ]
    assert (await call(app, "resources/templates/list"))["result"]["resourceTemplates"] == [
        {"uriTemplate": "file:///{name}", **expected}
    ]


@pytest.mark.parametrize(
    ("value", "contents"),
    [
        ("text", {"text": "text", "mimeType": "text/plain"}),
        ("", {"text": "", "mimeType": "text/plain"}),
        (PNG, {"blob": base64.b64encode(PNG).decode(), "mimeType": "application/octet-stream"}),
        (bytearray(PNG), {"blob": base64.b64encode(PNG).decode(), "mimeType": "application/octet-stream"}),
        ({"a": [1]}, {"text": '{"a":[1]}', "mimeType": "application/json"}),
        ([1, 2], {"text": "[1,2]", "mimeType": "application/json"}),
        (Contents(text="x", mime_type="text/x"), {"text": "x", "mimeType": "text/x"}),
        (Contents(text="x", meta={"a": 1}), {"text": "x", "_meta": {"a": 1}}),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_text_bytes_and_data_become_contents(app, read, value, contents):
    app.add_resource("any://thing", lambda: value)
    assert (await read(app, "any://thing"))["result"]["contents"] == [{"uri": "any://thing", **contents}]


async def test_a_stated_type_goes_for_whatever_is_returned(app, read):
    app.add_resource("img://a", lambda: PNG, mime_type="image/png")
    app.add_resource("img://b", lambda: Contents(blob=PNG), mime_type="image/png")
    app.add_resource("img://c", lambda: {"a": 1}, mime_type="application/vnd.x+json")
    for uri, kind in (("img://a", "image/png"), ("img://b", "image/png"), ("img://c", "application/vnd.x+json")):
        assert (await read(app, uri))["result"]["contents"][0]["mimeType"] == kind


async def test_one_read_may_give_several_contents(app, read):
    app.add_resource("dir://a", lambda: [Contents("dir://a/1", text="1"), Contents("dir://a/2", blob=b"2")])
    contents = (await read(app, "dir://a"))["result"]["contents"]
    assert [item["uri"] for item in contents] == ["dir://a/1", "dir://a/2"]


async def test_freshness_and_scope_are_told(app, read):
    app.add_resource("a://default", lambda: "")
    app.add_resource("a://shared", lambda: "", ttl=1.5, scope="public")
    app.add_resource("a://own", lambda: ResourceResult(contents=[Contents(text="")], ttl=2, scope="public"), ttl=9)
    app.add_resource("a://{x}", lambda x: x, ttl=60)

    async def freshness(uri):
        result = (await read(app, uri))["result"]
        return result["ttlMs"], result["cacheScope"]

    assert await freshness("a://default") == (0, "private")
    assert await freshness("a://shared") == (1500, "public")
    assert await freshness("a://own") == (2000, "public")
    assert await freshness("a://x") == (60000, "private")


async def test_a_whole_result_may_carry_meta(app, read):
    app.add_resource("a://b", lambda: ResourceResult(contents=[Contents(text="")], meta={"com.example/a": 1}))
    assert (await read(app, "a://b"))["result"]["_meta"]["com.example/a"] == 1


def test_a_freshness_below_zero_is_refused():
    # server/utilities/caching: "Servers MUST provide a ttlMs value that is >= 0".
    with pytest.raises(ValueError, match="ttl"):
        Server("x").add_resource("a://b", lambda: "", ttl=-1)
    with pytest.raises(ValueError, match="ttl"):
        Server("x", list_ttl=-1)


async def test_a_freshness_below_zero_never_reaches_the_wire(app, read):
    # The referee looks at ttlMs; an internal error is as good an answer as a zero.
    app.add_resource("a://b", lambda: ResourceResult(contents=[Contents(text="")], ttl=-1))
    await read(app, "a://b")


async def test_a_resource_that_does_not_exist_is_named_in_the_error(app, read):
    app.add_resource("note://{key}", lambda key: key)
    for uri in ("other://1", "NOTE://1", "note://a/b", "", "no uri at all", "\u00e9://1"):
        error = (await read(app, uri))["error"]
        assert error == {"code": -32602, "message": "Resource not found", "data": {"uri": uri}}


async def test_a_handler_may_find_that_a_resource_does_not_exist(app, read):
    @app.resource("note://{id}")
    def note(id: str, ctx: Context) -> str:
        raise ResourceNotFound(ctx.name)

    error = (await read(app, "note://7"))["error"]
    assert error == {"code": -32602, "message": "Resource not found", "data": {"uri": "note://7"}}


async def test_variables_are_decoded_and_typed(app, read):
    seen = []

    @app.resource("shop://{name}/{count}{?size}")
    def item(name: str, count: int, size: Size = Size.SMALL) -> str:
        seen.append((name, count, size))
        return ""

    await read(app, "shop://green%20tea/3?size=l")
    await read(app, "shop://caf%C3%A9/4")
    assert seen == [("green tea", 3, Size.LARGE), ("café", 4, Size.SMALL)]


async def test_a_uri_whose_variables_do_not_fit_names_nothing(app, read):
    @app.resource("shop://{count}")
    def item(count: int) -> str:
        raise AssertionError("must not run")

    error = (await read(app, "shop://many"))["error"]
    assert (error["code"], error["data"]) == (-32602, {"uri": "shop://many"})


async def test_a_static_resource_goes_before_a_template_and_templates_in_their_order(app, read):
    app.add_resource("note://{key}", lambda key: "first")
    app.add_resource("note://{+path}", lambda path: "second")
    app.add_resource("note://special", lambda: "static")

    async def text(uri):
        return (await read(app, uri))["result"]["contents"][0]["text"]

    assert await text("note://special") == "static"
    assert await text("note://a") == "first"
    assert await text("note://a/b") == "second"


def test_a_function_takes_exactly_the_variables_of_its_uri(app):
    for uri, function in [
        ("a://{x}", lambda: ""),
        ("a://{x}", lambda y: ""),
        ("a://{x}", lambda x, y: ""),
        ("a://b", lambda x: ""),
    ]:
        with pytest.raises(TypeError, match="a://"):
            app.add_resource(uri, function)


@pytest.mark.parametrize("uri", ["a://{", "a://{x", "a://{}", "a://x}"])
def test_a_broken_template_is_refused(app, uri):
    with pytest.raises(ValueError, match="a://"):
        app.add_resource(uri, lambda x="": "")


async def test_a_failing_resource_is_an_internal_error_without_its_secrets(app, read, caplog):
    @app.resource("a://b")
    def leak() -> str:
        raise RuntimeError("the password is 1234")

    with caplog.at_level(logging.ERROR, "antiphon"):
        reply = await read(app, "a://b")
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert "the password is 1234" in caplog.text


@pytest.mark.parametrize(
    "value",
    [Contents(), Contents(text="a", blob=b"b"), object(), "\ud800"],
    ids=["nothing", "both", "an object", "half a character"],
)
async def test_what_is_no_content_never_reaches_the_wire(app, http, value, caplog):
    app.add_resource("a://b", lambda: value)
    reply = await http.call("resources/read", {"uri": "a://b"})
    assert reply.status == 200
    assert reply.error["code"] == -32603


async def test_resources_keep_their_order_come_and_go(app, call, read):
    for uri in ("a://3", "a://1", "a://2"):
        app.add_resource(uri, lambda: "")
    app.add_resource("b://{x}", lambda x: "")

    async def uris():
        return [item["uri"] for item in (await call(app, "resources/list"))["result"]["resources"]]

    assert await uris() == ["a://3", "a://1", "a://2"]
    app.remove_resource("a://1")
    app.remove_resource("b://{x}")
    assert await uris() == ["a://3", "a://2"]
    assert (await call(app, "resources/templates/list"))["result"]["resourceTemplates"] == []
    assert (await read(app, "a://1"))["error"]["data"] == {"uri": "a://1"}
    assert (await read(app, "b://1"))["error"]["data"] == {"uri": "b://1"}
    with pytest.raises(KeyError, match="a://1"):
        app.remove_resource("a://1")
    with pytest.raises(ValueError, match="a://2"):
        app.add_resource("a://2", lambda: "")


async def test_a_server_without_resources_has_no_resources_at_all(app, call):
    assert "resources" not in (await call(app, "server/discover"))["result"]["capabilities"]
    for method in ("resources/list", "resources/templates/list", "resources/read"):
        assert (await call(app, method, {"uri": "x"}))["error"]["code"] == -32601


async def test_the_decorator_gives_the_function_back(app):
    @app.resource("a://{x}")
    def double(x: str) -> str:
        return x * 2

    assert double("a") == "aa"


async def test_a_resource_can_be_read_by_a_name_that_no_header_can_carry(app, http):
    app.add_resource("note://{+key}", lambda key: key)
    uri = "note://h%C3%A9/世"
    encoded = f"=?base64?{base64.b64encode(uri.encode()).decode()}?="
    reply = await http.call("resources/read", {"uri": uri}, headers={"mcp-name": encoded})
    assert reply.status == 200
    assert reply.messages
    assert json.dumps(reply.message)
