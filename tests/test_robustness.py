"""Whatever comes over the wire gets a well-formed answer or the right status, and the server goes on serving."""

import asyncio
import json
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon import Context, Header, Server
from asgi import Http
from examples import examples
from messages import CACHED, NAMED, check_notification, check_reply, headers_for, request, tool_call

EXAMPLES = examples(100)
HTTP_STATUSES = {200, 202, 400, 403, 404, 405, 406, 413, 415, 431}

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
REQUESTS = [
    tool_call("echo", {"text": "hi"}),
    tool_call("work", {"steps": 2}, progress="t", log_level="debug"),
    tool_call("routed", {"region": "eu", "count": 3}),
    request("tools/list"),
    request("server/discover"),
    request("prompts/list", {"cursor": "6e"}),
    request("prompts/get", {"name": "greet", "arguments": {"name": "Ann"}}),
    request("resources/list"),
    request("resources/templates/list"),
    request("resources/read", {"uri": "note://1"}),
    request(
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
    ),
    request("com.example/own", {"a": [1, {"b": None}]}),
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
]
MIRRORED = {"mcp-param-region": "eu", "mcp-param-count": "3"}


def made():
    app = Server("tests", version="1.0.0", page_size=2)

    @app.tool
    async def echo(text: str = "x") -> str:
        return text

    @app.tool
    async def work(ctx: Context, steps: int = 1) -> dict[str, int]:
        for step in range(min(steps, 5)):
            await ctx.progress(step)
            await ctx.log("info", step)
        return {"steps": steps}

    @app.tool
    async def routed(region: Annotated[str, Header("Region")], count: Annotated[int, Header("Count")] = 0) -> None: ...

    @app.prompt
    async def greet(name: str, times: int = 1) -> str:
        return f"Hello {name}" * min(times, 3)

    @app.complete("greet", "name")
    async def names(value: str):
        return [value]

    @app.resource("note://{id}")
    async def note(id: str) -> str:
        return id

    @app.on("com.example/own")
    async def own(params):
        return {"keys": sorted(params)}

    return app


class Wall:
    """A server that things are thrown at. It must answer each of them, and a good request after each."""

    def __init__(self):
        self.http = Http(made().asgi())

    async def throw(self, body, *, headers=None, pairs=(), verb="POST", message=None, may_be=HTTP_STATUSES):
        exchange = self.http.open(body, headers=headers, pairs=pairs, verb=verb, message=message)
        reply = await exchange.reply()
        assert reply.status in may_be, (reply.status, reply.body)
        self.check(reply, body, repeated=repeats(pairs, headers))
        after = await self.http.tool("echo", {"text": "still here"})
        assert after.result["content"][0]["text"] == "still here"
        return reply

    def check(self, reply, body, *, repeated):
        if reply.status == 202:
            assert reply.body == b""
            return
        sent = parsed(body)
        *told, last = reply.messages
        for message in told:
            check_notification(message)
        check_reply(sent if isinstance(sent, dict) else None, last)
        if "result" in last:
            assert reply.status == 200
        # What HTTP alone refuses is refused before the body is looked at.
        looked_at = reply.status in {200, 400} and not repeated
        if looked_at and isinstance(sent, dict) and type(sent.get("id")) in {int, str}:
            assert last["id"] == sent["id"], (sent, last)


def parsed(body):
    try:
        return body if isinstance(body, dict) else json.loads(body)
    except ValueError:
        return None


def repeats(pairs, headers):
    names = [name for name, _ in pairs]
    standard = {name.encode("latin-1") for name in {**headers_for({"method": "x"}), "mcp-name": "", **(headers or {})}}
    return len(set(names)) != len(names) or not standard.isdisjoint(names)


def throwing(strategy):
    """A test that throws everything a strategy makes at one wall."""

    def wrap(test):
        @EXAMPLES
        @given(strategy)
        async def throw(thing):
            async with asyncio.timeout(10):
                await test(Wall(), thing)

        throw.__name__ = test.__name__
        return throw

    return wrap


# --- bodies -------------------------------------------------------------------------------------------------------


@throwing(json_values)
async def test_any_json_value_as_a_body_is_answered(wall, value):
    reply = await wall.throw(json.dumps(value).encode())
    assert reply.status == 400


@throwing(st.binary(max_size=200))
async def test_any_bytes_as_a_body_are_answered(wall, body):
    reply = await wall.throw(body)
    assert reply.status == 400


@throwing(st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"]), json_values))
async def test_any_object_with_the_words_of_json_rpc_is_answered(wall, message):
    await wall.throw({"jsonrpc": "2.0", **message} if len(message) % 2 else message)


# --- mutations of good requests -----------------------------------------------------------------------------------


def places(value, path=()):
    """The paths to every member of a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed(value, path, change):
    """A copy of a JSON value in which one member is dropped, replaced or renamed."""
    copy = json.loads(json.dumps(value))
    *way, last = path
    parent = copy
    for key in way:
        parent = parent[key]
    change(parent, last)
    return copy


def drop(parent, key):
    del parent[key]


def rename(parent, key):
    if isinstance(parent, dict):
        parent[f"{key}x"] = parent.pop(key)


def reverse(parent, key):
    if isinstance(parent, dict):
        items = list(parent.items())[::-1]
        parent.clear()
        parent.update(items)


@st.composite
def mutated(draw):
    """A good request with one to three members dropped, replaced, renamed or put in another order."""
    message = original = draw(st.sampled_from(REQUESTS))
    for _ in range(draw(st.integers(1, 3))):
        paths = sorted(places(message), key=str)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        value = draw(json_values)
        change = draw(st.sampled_from([drop, rename, reverse, lambda parent, key, v=value: parent.__setitem__(key, v)]))
        message = changed(message, path, change)
    return message, original


@throwing(mutated())
async def test_any_mutation_of_a_good_request_is_answered(wall, thing):
    message, original = thing
    # With the headers of what it became, the mutation reaches deeper; with those of what it was, it contradicts them.
    await wall.throw(message, headers=MIRRORED)
    await wall.throw(message, headers={**MIRRORED, **headers_for(original)})


@st.composite
def corrupted(draw):
    """The bytes of a good request: cut off, with bytes flipped, cut out, doubled, or with white space put in."""
    message = draw(st.sampled_from(REQUESTS))
    body = bytearray(json.dumps(message, indent=draw(st.sampled_from([None, 0, 2]))).encode())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(body) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "drop", "double", "blank", "insert"])):
            case "flip" if body:
                body[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del body[at:]
            case "drop":
                del body[at : at + draw(st.integers(1, 10))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 30))]
            case "blank":
                body[at:at] = draw(st.sampled_from([b" ", b"\n", b"\t", b"\r"]))
            case _:
                body[at:at] = draw(st.binary(min_size=1, max_size=3))
    return bytes(body), message


@throwing(corrupted())
async def test_any_corruption_of_a_good_requests_bytes_is_answered(wall, thing):
    body, message = thing
    exchange = wall.http.open(body, headers=MIRRORED, message=message)
    reply = await exchange.reply()
    assert reply.status in HTTP_STATUSES
    if reply.status != 202:
        assert ("result" in reply.message) != ("error" in reply.message)
    assert (await wall.http.tool("echo")).status == 200


@st.composite
def doubled(draw):
    """A good request in which one member of one object is written twice."""
    message = draw(st.sampled_from(REQUESTS))
    path = draw(st.sampled_from([path for path in places(message) if isinstance(path[-1], str)]))
    again = draw(scalars)
    mark = "the member goes here"
    body = json.dumps(changed(message, path, lambda parent, key: parent.__setitem__(key, {mark: parent[key]})))
    value = json.dumps(_at(message, path))
    marked = f'{json.dumps(path[-1])}: {{"{mark}": {value}}}'
    assert marked in body
    return body.replace(
        marked, f"{json.dumps(path[-1])}: {json.dumps(again)}, {json.dumps(path[-1])}: {value}"
    ).encode()


def _at(value, path):
    for key in path:
        value = value[key]
    return value


@throwing(doubled())
async def test_a_member_that_is_written_twice_is_always_refused(wall, body):
    message = json.loads(body)
    exchange = wall.http.open(body, headers=MIRRORED, message=message)
    reply = await exchange.reply()
    assert reply.status == 400
    assert reply.error["code"] == -32600


# --- headers ------------------------------------------------------------------------------------------------------

header_names = st.sampled_from(
    [
        b"host",
        b"origin",
        b"accept",
        b"content-type",
        b"content-length",
        b"mcp-protocol-version",
        b"mcp-method",
        b"mcp-name",
        b"mcp-param-region",
        b"mcp-param-count",
        b"mcp-session-id",
        b"last-event-id",
    ]
) | st.binary(min_size=1, max_size=10).map(bytes.lower)
good_values = st.sampled_from(
    [
        b"localhost",
        b"http://localhost:1",
        b"application/json",
        b"text/event-stream",
        b"*/*;q=0.1",
        b"2026-07-28",
        b"tools/call",
        b"echo",
        b"=?base64?ZWNobw==?=",
        b"eu",
        b"3",
        b"0",
    ]
)
header_pairs = st.lists(st.tuples(header_names, good_values | st.binary(max_size=20)), max_size=6)


@throwing(st.tuples(st.sampled_from(REQUESTS), st.sets(header_names, max_size=3), header_pairs))
async def test_any_header_garbage_is_answered(wall, thing):
    message, gone, pairs = thing
    headers = {**MIRRORED, **{name.decode("latin-1"): None for name in gone}}
    await wall.throw(message, headers=headers, pairs=pairs)


@throwing(st.tuples(st.sampled_from(REQUESTS), header_names, good_values | st.binary(max_size=30)))
async def test_one_header_replaced_is_answered_and_never_makes_a_wrong_call_right(wall, thing):
    message, name, value = thing
    reply = await wall.throw(message, headers={**MIRRORED, name.decode("latin-1"): value})
    if message.get("method") == "tools/call" and reply is not None and reply.status == 200 and name == b"mcp-name":
        assert value.strip(b" \t") == message["params"]["name"].encode() or value.startswith(b"=?base64?")


@throwing(st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "", "post"]))
async def test_any_other_verb_is_405(wall, verb):
    reply = await wall.throw(REQUESTS[0], verb=verb)
    assert reply.status == 405


# --- parameters ---------------------------------------------------------------------------------------------------


@throwing(
    st.tuples(
        st.sampled_from(REQUESTS[:-1]), st.dictionaries(st.text(max_size=5), json_values, max_size=3), json_values
    )
)
async def test_any_arguments_are_answered_with_200(wall, thing):
    message, arguments, cursor = thing
    message = json.loads(json.dumps(message))
    for key, value in (("arguments", arguments), ("cursor", cursor), ("inputResponses", cursor)):
        message["params"][key] = value
    reply = await wall.throw(message, headers={"mcp-param-region": None, "mcp-param-count": None})
    if message["params"].get("name") != "routed":
        assert reply.status == 200


states = json_values.filter(lambda state: state is not None)  # null counts as absent


@throwing(st.tuples(st.sampled_from(["tools/call", "prompts/get", "resources/read"]), states, st.booleans()))
async def test_any_request_state_is_refused_in_one_way(wall, thing):
    method, state, as_text = thing
    target = {"tools/call": "echo", "prompts/get": "greet", "resources/read": "note://1"}[method]
    params = {NAMED[method]: target, "requestState": json.dumps(state) if as_text else state}
    reply = await wall.throw(request(method, params))
    assert reply.error == {"code": -32602, "message": "Invalid or expired requestState"}


FILTER = ["toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions", "x"]


@throwing(json_values | st.dictionaries(st.sampled_from(FILTER), st.booleans() | st.lists(st.text()) | json_values))
async def test_any_filter_opens_a_stream_or_is_refused(wall, wanted):
    exchange = wall.http.open(request("subscriptions/listen", {"notifications": wanted}))
    first = asyncio.ensure_future(exchange.next_message())
    await asyncio.wait({first, exchange.task}, return_when=asyncio.FIRST_COMPLETED)
    if exchange.task.done():
        assert (await exchange.reply()).error["code"] == -32602
    else:
        check_notification(await first)
    exchange.disconnect()
    await exchange.finished()
    await first
    assert (await wall.http.tool("echo")).status == 200


# --- the rest of the way ------------------------------------------------------------------------------------------


@throwing(st.tuples(st.lists(st.binary(max_size=20), min_size=5, max_size=5), st.permutations(range(10))))
async def test_good_and_bad_requests_at_once_do_not_disturb_each_other(wall, thing):
    bad, order = thing

    async def send(at):
        return await (wall.http.tool("echo", {"text": str(at)}, id=at) if at < 5 else wall.http.post(bad[at - 5]))

    replies = dict(zip(order, await asyncio.gather(*map(send, order)), strict=True))
    for at in range(5):
        assert replies[at].message["id"] == at
        assert replies[at].result["content"][0]["text"] == str(at)
        assert replies[at + 5].status == 400


@pytest.mark.parametrize("message", REQUESTS, ids=lambda message: message["method"])
async def test_the_requests_that_are_mutated_are_good_to_begin_with(message):
    reply = await Wall().throw(message, headers=MIRRORED)
    if "id" not in message:
        assert reply.status == 202
        return
    assert reply.status == 200
    if message["params"].get("cursor") is None:
        assert "result" in reply.message
    if message["method"] in CACHED and "result" in reply.message:
        assert "ttlMs" in reply.result
