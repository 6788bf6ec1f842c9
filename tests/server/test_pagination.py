"""Pagination: long lists in pages, by cursors that mean nothing to the client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Server
from antiphon.transports.memory import MemoryLink
from examples import examples
from messages import LISTED, check_reply, request

ADD = {
    "tools/list": lambda app, key: app.add_tool(lambda: "", name=f"n{key}"),
    "prompts/list": lambda app, key: app.add_prompt(lambda: "", name=f"n{key}"),
    "resources/list": lambda app, key: app.add_resource(f"n://{key}", lambda: ""),
    "resources/templates/list": lambda app, key: app.add_resource(f"n{key}://{{x}}", lambda x: ""),
}


async def page(app, method, cursor=None):
    message = request(method, {} if cursor is None else {"cursor": cursor})
    reply = await MemoryLink(app).send(message)
    check_reply(message, reply)
    return reply


async def pages(app, method):
    found, cursor = [], None
    while True:
        result = (await page(app, method, cursor))["result"]
        found.append(result[LISTED[method]])
        cursor = result.get("nextCursor")
        if cursor is None:
            return found


@pytest.mark.parametrize("method", ADD)
async def test_every_list_comes_in_pages(method):
    app = Server("x", page_size=2)
    for number in range(5):
        ADD[method](app, number)
    found = await pages(app, method)
    assert [len(items) for items in found] == [2, 2, 1]
    whole = Server("x")
    for number in range(5):
        ADD[method](whole, number)
    (everything,) = await pages(whole, method)
    assert [item for items in found for item in items] == everything


@examples(30)
@given(st.integers(0, 12), st.integers(1, 14))
async def test_pages_hold_every_item_once_and_in_order(count, size):
    app = Server("x", page_size=size)
    app.add_tool(lambda: "", name="gone")
    app.remove_tool("gone")
    for number in range(count):
        app.add_tool(lambda: "", name=f"n{number}")
    found = await pages(app, "tools/list")
    assert [item["name"] for items in found for item in items] == [f"n{number}" for number in range(count)]
    assert all(len(items) == size for items in found[:-1])


async def test_every_page_says_how_fresh_it_is_and_for_whom():
    app = Server("x", page_size=1, list_ttl=2.5)
    for number in range(3):
        ADD["tools/list"](app, number)
    first = (await page(app, "tools/list"))["result"]
    second = (await page(app, "tools/list", first["nextCursor"]))["result"]
    assert (first["ttlMs"], first["cacheScope"]) == (2500, "public")
    assert (second["ttlMs"], second["cacheScope"]) == (2500, "public")


async def test_a_cursor_can_be_used_again_and_by_anybody():
    app = Server("x", page_size=1)
    twin = Server("x", page_size=1)
    for number in range(3):
        ADD["tools/list"](app, number)
        ADD["tools/list"](twin, number)
    cursor = (await page(app, "tools/list"))["result"]["nextCursor"]
    answers = [(await page(server, "tools/list", cursor))["result"] for server in (app, app, twin)]
    assert answers[0] == answers[1] == answers[2]


async def test_a_cursor_survives_changes_elsewhere_in_the_list():
    app = Server("x", page_size=2)
    for number in range(5):
        ADD["tools/list"](app, number)
    cursor = (await page(app, "tools/list"))["result"]["nextCursor"]
    app.remove_tool("n0")
    app.add_tool(lambda: "", name="n9")
    rest = (await page(app, "tools/list", cursor))["result"]
    assert [item["name"] for item in rest["tools"]] == ["n2", "n3"]


@pytest.mark.parametrize("cursor", ["", "x", "zz", "\u00e9", "6e30", 5, [], {}, True])
async def test_a_cursor_that_is_none_of_ours_is_invalid_params(cursor):
    app = Server("x", page_size=2)
    ADD["tools/list"](app, 5)
    error = (await page(app, "tools/list", cursor))["error"]
    assert error["code"] == -32602
    assert "cursor" in error["message"]


async def test_without_a_page_size_a_list_is_one_page():
    app = Server("x")
    for number in range(300):
        ADD["tools/list"](app, number)
    assert [len(items) for items in await pages(app, "tools/list")] == [300]


@pytest.mark.parametrize("size", [0, -1])
def test_a_page_holds_at_least_one_item(size):
    with pytest.raises(ValueError, match="page_size"):
        Server("x", page_size=size)
