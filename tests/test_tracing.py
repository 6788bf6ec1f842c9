"""Traces: a span for each round, in the caller's trace."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from antiphon import Context, Seal, Server, ToolError
from antiphon.rounds.token import generate_key
from antiphon.tracing import traced

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
ASKABLE: dict[str, object] = {"elicitation": {}}
YES = {"action": "accept", "content": {"confirm": True}}

Json = dict[str, Any]


class Recording:
    """What a tracer of its own has seen, round by round."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer: Tracer = provider.get_tracer("tests")

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    @property
    def span(self) -> ReadableSpan:
        (one,) = self.spans
        return one

    def values(self, attribute: str) -> list[object]:
        return [(span.attributes or {})[attribute] for span in self.spans]


@pytest.fixture
def recording() -> Recording:
    return Recording()


def served(recording: Recording, **options: Any) -> Server:
    """A server with a tool that asks twice, and some that fail."""
    app = Server("traced", version="1.0.0", **options)
    app.middleware(traced(recording.tracer))

    @app.tool
    async def wipe(cache: str, ctx: Context) -> str:
        sure = await ctx.confirm(f"Wipe {cache}?", key="sure")
        very = await ctx.confirm(f"Really wipe {cache}?", key="very")
        return f"{cache} {sure and very}"

    @app.tool
    async def ping() -> str:
        return "pong"

    @app.tool
    async def break_down() -> str:
        raise RuntimeError("the disk is full")

    @app.tool
    async def refuse() -> str:
        raise ToolError("not today")

    @app.tool
    async def work() -> str:
        with recording.tracer.start_as_current_span("inner"):
            return "worked"

    @app.tool
    def labour() -> str:
        with recording.tracer.start_as_current_span("inner"):
            return "laboured"

    @app.resource("note://{id}")
    async def note(id: str) -> str:
        return id

    return app


Caller = Callable[..., Any]


async def converse(call: Caller, servers: list[Server], **about: Any) -> list[Json]:
    """All three rounds of a wipe, each on the next server."""
    params: Json = {"name": "wipe", "arguments": {"cache": "gemstones"}}
    replies: list[Json] = []
    for number in range(3):
        reply = await call(
            servers[number % len(servers)], "tools/call", params, id=number, capabilities=ASKABLE, **about
        )
        replies.append(reply["result"])
        params = {
            **params,
            "requestState": reply["result"].get("requestState"),
            "inputResponses": dict.fromkeys(reply["result"].get("inputRequests", {}), YES),
        }
    return replies


async def test_every_round_has_one_span_and_all_of_them_name_the_flow(recording: Recording, call: Caller) -> None:
    replies = await converse(call, [served(recording)])
    assert [reply["resultType"] for reply in replies] == ["input_required", "input_required", "complete"]
    assert [span.name for span in recording.spans] == ["tools/call wipe"] * 3
    assert recording.values("antiphon.round") == [1, 2, 3]
    assert recording.values("antiphon.result") == ["input_required", "input_required", "complete"]
    (flow,) = set(recording.values("antiphon.flow"))
    assert isinstance(flow, str)
    assert len(bytes.fromhex(flow)) == 12


async def test_the_flow_is_the_same_on_every_instance(recording: Recording, call: Caller) -> None:
    key = generate_key(b"t" * 32)
    await converse(call, [served(recording, seal=Seal(key)), served(recording, seal=Seal(key))])
    assert recording.values("antiphon.round") == [1, 2, 3]
    assert len(set(recording.values("antiphon.flow"))) == 1


async def test_two_calls_are_two_flows(recording: Recording, call: Caller) -> None:
    app = served(recording)
    await converse(call, [app])
    await converse(call, [app])
    assert len(set(recording.values("antiphon.flow"))) == 2


async def test_a_span_says_what_was_called(recording: Recording, call: Caller) -> None:
    await call(served(recording), "tools/call", {"name": "ping", "arguments": {}}, id="seven")
    assert recording.span.kind is SpanKind.SERVER
    attributes = dict(recording.span.attributes or {})
    assert len(bytes.fromhex(str(attributes.pop("antiphon.flow")))) == 12
    assert attributes == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "jsonrpc.request.id": "seven",
        "antiphon.round": 1,
        "antiphon.result": "complete",
    }
    assert recording.span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize(
    ("method", "params"), [("tools/list", {}), ("server/discover", {}), ("resources/read", {"uri": "note://7"})]
)
async def test_every_request_has_a_span_whether_or_not_it_may_ask(
    recording: Recording, call: Caller, method: str, params: Json
) -> None:
    await call(served(recording), method, params)
    assert recording.span.name.startswith(method)
    assert (recording.values("mcp.method.name"), recording.values("antiphon.round")) == ([method], [1])


async def test_every_round_continues_the_trace_of_its_request(recording: Recording, call: Caller) -> None:
    await converse(call, [served(recording)], traceparent=PARENT, tracestate="vendor=1")
    assert len(recording.spans) == 3
    for span in recording.spans:
        assert span.parent is not None
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == f"{span.parent.trace_id:032x}" == TRACE
        assert f"{span.parent.span_id:016x}" == CALLER
        assert span.parent.is_remote
        assert span.context.trace_state.get("vendor") == "1"


@pytest.mark.parametrize("parent", [None, "", "garbage", 7, ["00"], f"00-{'0' * 32}-{CALLER}-01", f"{PARENT}-tail"])
async def test_a_trace_context_that_is_none_begins_a_trace(recording: Recording, call: Caller, parent: object) -> None:
    await call(served(recording), "tools/call", {"name": "ping", "arguments": {}}, traceparent=parent)
    assert recording.span.parent is None


@pytest.mark.parametrize("name", ["work", "labour"])
async def test_spans_of_a_handler_lie_inside_its_rounds_span(recording: Recording, call: Caller, name: str) -> None:
    await call(served(recording), "tools/call", {"name": name, "arguments": {}}, traceparent=PARENT)
    inner, outer = recording.spans
    assert (inner.name, outer.name) == ("inner", f"tools/call {name}")
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


async def test_no_span_is_left_open_behind_a_round(recording: Recording, call: Caller) -> None:
    await converse(call, [served(recording)])
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_handler_that_breaks_makes_an_error_span_with_the_reason(recording: Recording, call: Caller) -> None:
    reply = await call(served(recording), "tools/call", {"name": "break_down", "arguments": {}})
    assert reply["error"] == {"code": -32603, "message": "Internal error"}
    assert recording.span.status.status_code is StatusCode.ERROR
    (event,) = recording.span.events
    assert event.name == "exception"
    assert (event.attributes or {})["exception.type"] == "RuntimeError"
    assert (event.attributes or {})["exception.message"] == "the disk is full"


@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", {"name": "nothing", "arguments": {}}), ("resources/read", {"uri": "text://nowhere"})],
)
async def test_a_protocol_error_makes_an_error_span(
    recording: Recording, call: Caller, method: str, params: Json
) -> None:
    reply = await call(served(recording), method, params)
    assert reply["error"]["code"] == -32602
    assert recording.span.status.status_code is StatusCode.ERROR


async def test_a_client_that_cannot_be_asked_makes_an_error_span(recording: Recording, call: Caller) -> None:
    reply = await call(served(recording), "tools/call", {"name": "wipe", "arguments": {"cache": "gemstones"}})
    assert reply["error"]["code"] == -32021
    assert recording.span.status.status_code is StatusCode.ERROR


async def test_a_tool_error_makes_an_error_span(recording: Recording, call: Caller) -> None:
    reply = await call(served(recording), "tools/call", {"name": "refuse", "arguments": {}})
    assert reply["result"]["isError"] is True
    assert recording.span.status.status_code is StatusCode.ERROR


async def test_a_round_that_asks_is_no_error(recording: Recording, call: Caller) -> None:
    await converse(call, [served(recording)])
    assert [span.status.status_code for span in recording.spans] == [StatusCode.UNSET] * 3
    assert [span.events for span in recording.spans] == [()] * 3


async def test_neither_tokens_nor_answers_nor_arguments_are_in_a_span(recording: Recording, call: Caller) -> None:
    replies = await converse(call, [served(recording)])
    told = "".join(span.to_json() for span in recording.spans)
    for private in (replies[0]["requestState"], replies[1]["requestState"], "gemstones", "confirm", "accept"):
        assert private not in told


async def test_without_a_tracer_the_global_provider_is_used(
    recording: Recording, call: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []

    def get_tracer(name: str) -> Tracer:
        names.append(name)
        return recording.tracer

    monkeypatch.setattr(trace, "get_tracer", get_tracer)
    app = Server("traced")
    app.middleware(traced())
    app.tool(name="ping")(lambda: "pong")
    await call(app, "tools/call", {"name": "ping", "arguments": {}})
    assert names == ["antiphon"]
    assert recording.span.name == "tools/call ping"
