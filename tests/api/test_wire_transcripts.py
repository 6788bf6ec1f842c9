"""Everything that travels, in both eras, compared with the texts in ``transcripts/``.

The server is sent raw requests over ASGI; the client talks to it in memory, over TCP and over pipes, and is recorded.
What differs from run to run is replaced by a placeholder. ``pytest tests/api --update-snapshots`` writes the texts.
"""

import asyncio
import contextlib
import importlib.util
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from difflib import unified_diff
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from antiphon import Accepted, CallFailed, Client, Declined, Root
from antiphon.testing import ServerUnderTest
from antiphon.transports.link import Around
from asgi import DEADLINE, Exchange

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
NEW, OLD = "2026-07-28", "2025-11-25"
ERAS = {NEW: NEW, OLD: "legacy"}
PREFIX = "io.modelcontextprotocol/"
CAPABILITIES = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
LISTS = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

Json = dict[str, Any]


# --- what is said -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Say:
    """A request as it should be, or with something wrong: ``params`` and ``headers`` replace what would be sent."""

    method: str = "ping"
    params: Json = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    capabilities: Json = field(default_factory=lambda: CAPABILITIES)
    meta: Json = field(default_factory=dict)
    answer: Callable[[Json], Json] | None = None
    """What the client does with the params of the next leg."""
    verb: str = "POST"
    path: str = "/mcp"
    body: bytes | None = None


def tool(name: str, /, **arguments: Any) -> Say:
    return Say("tools/call", {"name": name, "arguments": arguments})


def prompt(name: str, /, **arguments: str) -> Say:
    return Say("prompts/get", {"name": name, "arguments": arguments})


def read(uri: str) -> Say:
    return Say("resources/read", {"uri": uri})


def complete(ref: Json, name: str, value: str) -> Say:
    return Say("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})


def form(**content: Any) -> Json:
    return {"action": "accept", "content": content}


def styles(name: str, /, **arguments: Any) -> list[Say]:
    return [tool(name + style, **arguments) for style in ("", "_returning", "_declaring")]


SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Two files."}, "model": "parrot"}
ROOTS = {"roots": [{"uri": "file:///a", "name": "a"}]}
NOTED: Json = {"progressToken": "p", f"{PREFIX}logLevel": "info"}

TALKS: dict[str, tuple[list[Say], Json]] = {
    "notes": (
        [
            *[tool("add", title="Milk", tags=["food"]), tool("add", title=" "), tool("picture")],
            *[read("note://1"), read("note://7"), prompt("summarise", topic="food")],
        ],
        {},
    ),
    "demo": ([tool("book", traveller="Ada")], {"trip": form(city="Kyoto"), "confirm": form(confirm=True)}),
    "everything": (
        [tool(f"test_{name}") for name in ("simple_text", "image_content", "audio_content", "embedded_resource")]
        + [tool(f"test_{name}") for name in ("multiple_content_types", "error_handling", "missing_capability")]
        + [Say("tools/call", {"name": "test_logging_tool"}, meta=NOTED), tool("test_trigger_tool_change")]
        + [tool("test_streaming_elicitation"), tool("test_elicitation", message="Who?")]
        + [tool("test_elicitation_sep1034_defaults"), tool("test_elicitation_sep1330_enums")]
        + [Say("tools/call", {"name": "test_x_mcp_header", "arguments": {"region": "eu"}}, {"mcp-param-region": "eu"})]
        + [tool("json_schema_2020_12_tool", name="a", contactMethod="phone", phone="1")]
        + [tool(f"test_input_required_result_{name}") for name in ("elicitation", "sampling", "list_roots")]
        + [tool(f"test_input_required_result_{name}") for name in ("request_state", "multiple_inputs", "multi_round")]
        + [read("test://static-text"), read("test://static-binary"), read("test://template/7/data")]
        + [prompt("test_simple_prompt"), prompt("test_prompt_with_arguments", arg1="a", arg2="b")]
        + [prompt("test_prompt_with_embedded_resource", resourceUri="x://y"), prompt("test_prompt_with_image")]
        + [prompt("test_input_required_result_prompt")]
        + [complete({"type": "ref/prompt", "name": "test_prompt_with_arguments"}, "arg1", "test")],
        {
            **dict.fromkeys(("user_name", "step1"), form(name="Ada")),
            "step2": form(color="red"),
            "confirm": form(ok=True),
            "user_context": form(context="cats"),
            "What is your name?": form(value="Ada"),
            "Who?": form(username="ada", email="a@b.c"),
        },
    ),
    "secret_page": ([tool("connect_account")], {}),
    "asking/delete_record": (
        styles("delete_record", record_id="u1", table_name="users"),
        {"confirm": form(confirmed=True)},
    ),
    "asking/deploy": (styles("deploy", env="prod"), {"confirm": form(confirm=True, value=True)}),
    "asking/four_kinds": (styles("review"), {"confirm": form(confirm=True, value=True)}),
    "asking/load_shedding": ([tool("sum_of_squares", count=2500)], {}),
    "asking/provision": (styles("provision"), {"name": form(value="orders"), "region": form(value="eu")}),
    "asking/region": (styles("provision", name="orders"), {"region": form(region="eu-west-1")}),
    "asking/rolling_upgrade": (
        styles("connect"),
        dict.fromkeys(("github_login", "microsoft_login"), form(value="ada")),
    ),
    "asking/tag_release": (styles("tag_release", tag="v1"), {"confirm": {"action": "decline"}}),
    "asking/wipe_cache": (
        styles("wipe_cache"),
        {"confirm": form(confirm=True, value=True), "scope": form(value="sessions")},
    ),
    "asking/work_item": (
        styles("resolve", item=7),
        {"resolution": form(value="Duplicate"), "duplicate_of": form(value=3), "duplicate": form(value=3)},
    ),
}
"""What each example is asked, and the answers to its questions, by key or by message."""

GOOD = [
    *styles("book", traveller="Ada"),
    *[tool(name) for name in ("page", "summary", "folders", "all_at_once", "in_a_thread", "several", "number")],
    Say("tools/call", {"name": "work", "arguments": {"parts": 2}}, meta=NOTED),
    tool("work", parts=2),
    Say("tools/call", {"name": "find", "arguments": {"name": "x", "region": "us"}}, {"mcp-param-region": "us"}),
    *[read(uri) for uri in ("note://1", "blob://1", "note://2?page=3", "secret://1")],
    *[prompt("greet", name="Ada"), prompt("plan")],
    complete({"type": "ref/prompt", "name": "greet"}, "name", "A"),
    complete({"type": "ref/resource", "uri": "note://{id}{?page}"}, "id", ""),
]
BAD = [
    *[tool("fail", how=how) for how in ("tool", "params", "bug")],
    *[tool("none"), tool("work", parts="many"), tool("work"), read("note://9"), read("other://1"), prompt("none")],
    *[prompt("greet"), complete({"type": "ref/prompt", "name": "none"}, "name", "A"), Say("nothing/here"), Say("ping")],
    Say("tools/list", {"cursor": "x"}),
    Say("tools/call", {"name": ["x"]}),
    Say("logging/setLevel", {"level": "debug"}),
    Say("resources/subscribe", {"uri": "note://1"}),
    Say("tools/list", headers={"host": "evil.example"}),
    Say("tools/list", headers={"origin": "https://evil.example"}),
    Say("tools/list", headers={"content-type": "text/plain"}),
    Say("tools/list", headers={"accept": "text/html"}),
    Say("tools/list", headers={"mcp-protocol-version": "1999-01-01"}),
    Say("tools/list", path="/other"),
    Say("tools/list", verb="PUT"),
    Say("tools/list", body=b"{"),
    Say("tools/list", body=b"[]"),
    Say("tools/list", body=b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}'),
    Say("tools/list", body=b'{"jsonrpc": "2.0", "id": 1}'),
]
BAD_IN = {
    NEW: [
        *[Say(one.method, one.params, capabilities={}) for one in styles("book", traveller="Ada")],
        Say("tools/call", tool("book", traveller="A").params, answer=lambda leg: leg | {"requestState": "spoiled"}),
        Say("tools/call", tool("book", traveller="A").params, answer=lambda leg: leg | {"inputResponses": {}}),
        Say("tools/call", tool("book", traveller="A").params, answer=lambda leg: leg | {"inputResponses": 7}),
        Say("tools/call", tool("number").params, {"mcp-name": "other"}),
        Say("tools/call", tool("number").params, {"mcp-method": "tools/list"}),
        Say("tools/call", tool("find", name="x", region="us").params, {"mcp-param-region": "eu"}),
        Say(
            "tools/list",
            meta={f"{PREFIX}protocolVersion": "2030-01-01"},
            headers={"mcp-protocol-version": "2030-01-01"},
        ),
        Say("tools/list", verb="GET"),
        Say("tools/list", verb="DELETE"),
    ],
    OLD: [
        Say("resources/unsubscribe", {"uri": "note://1"}),
        Say("tools/list", headers={"mcp-session-id": "other"}),
        Say("tools/list", headers={"mcp-session-id": None}),
        Say("tools/list", verb="DELETE", body=b""),
        Say("tools/list"),
    ],
}
CONVERSING = (
    GOOD,
    {
        "trip": form(city="Oslo", nights=2),
        "sure": form(value=True, sure=True, confirm=True),
        "page": {"action": "accept"},
    },
)


# --- transcripts --------------------------------------------------------------------------------------------------


class Transcript:
    """Text of what was said, with placeholders for what varies."""

    VARYING = (
        ("token", r'"requestState": ?"([^"]+)"'),
        ("session", r"(?i)mcp-session-id: (\S+)"),
        ("event", r"(?m)^(?:[<>] )?id: (\S+)"),
        ("question", r'"id": ?"([^"]+)"[^\n]*"method"'),
        ("question", r'"method": ?"(?:elicitation|sampling|roots)/[^\n]*"id": ?"([^"]+)"'),
        ("ticket", r"/secret/([\w-]+)"),
        ("elicitation", r'"elicitationId": ?"([^"]+)"'),
        ("port", r"127\.0\.0\.1:(\d+)"),
    )

    def __init__(self) -> None:
        self.parts: list[str] = []

    def add(self, mark: str, text: str) -> None:
        self.parts += [f"{mark} {line}\n" for line in text.replace("\r", "").removesuffix("\n").split("\n")]

    def text(self) -> str:
        text = "".join(self.parts)
        for kind, pattern in self.VARYING:
            numbers = count(1)
            for value in dict.fromkeys(re.findall(pattern, text)):
                if value not in {"spoiled", "other"} and not value.startswith("<"):
                    text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", f"<{kind} {next(numbers)}>", text)
        return re.sub(r"(?mi)^([<>] (?:content-length|date): ).*$", r"\1<varies>", text)


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Callable[[str, Transcript], None]:
    def compare(name: str, transcript: Transcript) -> None:
        file = HERE / "transcripts" / f"{name.replace('/', '-')}.txt"
        found = transcript.text()
        if request.config.getoption("--update-snapshots"):
            file.write_text(found, encoding="utf-8")
        before = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        diff = "\n".join(unified_diff(before, found.splitlines(), "committed", "found", lineterm=""))
        assert not diff, f"The wire changed. If it should: pytest tests/api --update-snapshots\n{diff}"

    return compare


def load(name: str) -> ModuleType:
    """A server's file as a fresh module."""
    file = HERE / "conversing.py" if name == "conversing" else EXAMPLES / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"transcript_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer_to(key: str, question: Json, answers: Json) -> Json:
    """The answer by key or by message, of which the form takes what it has a field for."""
    params = question.get("params", {})
    if question["method"] != "elicitation/create":
        return SAMPLED if question["method"] == "sampling/createMessage" else ROOTS
    if params.get("mode") == "url":
        return answers.get(key, {"action": "decline"})
    answer = answers.get(key) or answers.get(params["message"], {"action": "accept", "content": {}})
    fields = params["requestedSchema"]["properties"]
    content = {name: value for name, value in answer.get("content", {}).items() if name in fields}
    return answer | {"content": content} if answer["action"] == "accept" else answer


# --- the server, by raw requests over ASGI ------------------------------------------------------------------------


class Raw:
    """Sends raw requests of one era to an ASGI application, and notes both sides."""

    def __init__(self, app: Any, era: str, answers: Json, transcript: Transcript) -> None:
        self.app, self.era, self.answers, self.transcript = app, era, answers, transcript
        self.headers: dict[str, str] = {}
        self.ids = count(1)
        self.session: str | None = None

    async def begin(self) -> None:
        if self.era == NEW:
            await self.say(Say("server/discover"))
        else:
            about = {"name": "raw", "version": "1"}
            params = {"protocolVersion": OLD, "capabilities": CAPABILITIES, "clientInfo": about}
            exchange = await self.say(Say("initialize", params, {"mcp-protocol-version": None}))
            self.session = exchange.headers["mcp-session-id"]
            await self.whole({"jsonrpc": "2.0", "method": "notifications/initialized"}, Say())
        for method in LISTS:
            await self.say(Say(method))

    async def say(self, said: Say) -> Exchange:
        """A request until it is answered, its questions included."""
        params = dict(said.params)
        while True:
            message = self.message(said, params)
            exchange = self.open(message, said)
            last = await self.heard(exchange)
            result = (last or {}).get("result", {})
            if result.get("resultType") != "input_required":
                return exchange
            asked = result.get("inputRequests", {})
            params = said.params | {"requestState": result["requestState"]} if "requestState" in result else said.params
            if asked:
                responses = {key: answer_to(key, question, self.answers) for key, question in asked.items()}
                params = params | {"inputResponses": responses}
            if said.answer is not None:
                params = said.answer(params)
                said = Say(said.method, said.params)

    def message(self, said: Say, params: Json) -> Json:
        meta = dict(said.meta)
        if self.era == NEW:
            meta = {
                f"{PREFIX}protocolVersion": NEW,
                f"{PREFIX}clientCapabilities": said.capabilities,
                f"{PREFIX}clientInfo": {"name": "raw", "version": "1"},
            } | meta
        about = {"_meta": meta} if meta else {}
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": said.method, "params": about | params}

    def open(self, message: Json, said: Say) -> Exchange:
        headers: dict[str, str | None] = {
            "host": "localhost:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": self.era,
        }
        if self.era == NEW:
            headers["mcp-method"] = said.method
            name = said.params.get(NAMED.get(said.method, ""))
            headers["mcp-name"] = name if isinstance(name, str) else None
        else:
            headers["mcp-session-id"] = self.session
        sent = {
            name: value for name, value in (headers | self.headers | dict(said.headers)).items() if value is not None
        }
        body = json.dumps(message).encode() if said.body is None else said.body
        head = "".join(f"{name}: {value}\n" for name, value in sent.items())
        self.transcript.add(">", f"{said.verb} {said.path}\n{head}\n{body.decode()}")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": said.verb,
            "scheme": "http",
            "path": said.path,
            "raw_path": said.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
        }
        return Exchange(self.app, scope, [body])

    async def heard(self, exchange: Exchange) -> Json | None:
        """The last message of a response; the questions in it are answered on the way."""
        last = None
        async for frame in self.frames(exchange):
            last = message_in(frame)
            if isinstance(last, dict) and "method" in last and "id" in last:
                key = last["params"].get("_meta", {}).get("antiphon/key", "")
                answer = answer_to(key, last, self.answers)
                await self.whole({"jsonrpc": "2.0", "id": last["id"], "result": answer}, Say())
        self.transcript.add("<", "(end)")
        return last if isinstance(last, dict) else None

    async def whole(self, message: Json, said: Say) -> None:
        await self.heard(self.open(message, said))

    async def follow(self, said: Say, wanted: int, change: Say) -> None:
        """A stream of changes: how it opens, what a change brings, and the client that leaves."""
        stream = self.open(self.message(said, said.params), said)
        heard = self.frames(stream)
        if self.era == NEW:
            await anext(heard)
        else:
            async with asyncio.timeout(DEADLINE):
                await stream.watched.wait()
        await self.say(change)
        for _ in range(wanted):
            await anext(heard)
        stream.disconnect()
        await stream.finished()
        self.transcript.add("<", "(left)")

    async def frames(self, exchange: Exchange) -> AsyncIterator[str]:
        """The body piece by piece, noted: the events of a stream, or all of it."""
        done = 0
        while not exchange.ended or not done or done < len(exchange.body):
            async with asyncio.timeout(DEADLINE), exchange._news:
                await exchange._news.wait_for(lambda done=done: exchange.ended or b"\n\n" in exchange.body[done:])
            if not done:
                head = "".join(f"{name}: {value}\n" for name, value in exchange.headers.items())
                self.transcript.add("<", f"{exchange.status}\n{head}\n")
            if exchange.headers.get("content-type") != "text/event-stream":
                assert exchange.headers.get("content-length") in {None, str(len(exchange.body))}
            elif b"\n\n" in exchange.body[done:]:
                end = exchange.body.index(b"\n\n", done) + 2
                frame, done = exchange.body[done:end].decode(), end
                self.transcript.add("<", frame)
                yield frame
                continue
            if rest := exchange.body[done:].decode():
                self.transcript.add("<", rest)
                yield rest
            return


def message_in(frame: str) -> Any:
    """The message of an event or a body; None if there is none."""
    data = "".join(line[5:] for line in frame.split("\n") if line.startswith("data:")) or frame
    with contextlib.suppress(ValueError):
        return json.loads(data)
    return None


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ANTIPHON_KEYS", raising=False)
    monkeypatch.setenv("STORE", str(tmp_path / "store.db"))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", [*TALKS, "conversing"])
async def test_what_a_server_says_over_http_is_as_committed(name: str, era: str, kept: Any) -> None:
    talk, answers = CONVERSING if name == "conversing" else TALKS[name]
    module, transcript = load(name), Transcript()
    site = module.asgi if name == "secret_page" else module.app.asgi()
    raw = Raw(site, era, answers, transcript)
    if name == "secret_page":
        raw.headers["authorization"] = "Bearer ada-token"
    await raw.begin()
    for said in talk:
        await raw.say(said)
    if name == "conversing":
        await follow(raw)
        for said in [*BAD, *BAD_IN[era]]:
            await raw.say(said)
    kept(f"http-{name}-{era}", transcript)


async def follow(raw: Raw) -> None:
    if raw.era == NEW:
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://1"]}
        await raw.follow(Say("subscriptions/listen", {"notifications": wanted}), 2, tool("touch"))
    else:
        await raw.say(Say("resources/subscribe", {"uri": "note://1"}))
        await raw.follow(Say(verb="GET", body=b"", headers={"accept": "text/event-stream"}), 2, tool("touch"))


# --- the client, as recorded in memory, over TCP and over pipes ---------------------------------------------------


class Noting(Around):
    """A Link around another one that notes what it carries."""

    def __init__(self, link: Any, transcript: Transcript) -> None:
        super().__init__(link)
        self._transcript = transcript

    async def request(self, message: Json, *, headers: Mapping[str, str], on_notification: Any = None) -> Json:
        head = "".join(f"{name}: {value}\n" for name, value in headers.items())
        self._transcript.add(">", f"{head}{json.dumps(message)}")

        def tell(notification: Json) -> Any:
            self._transcript.add("<", json.dumps(notification))
            return on_notification(notification) if on_notification else None

        try:
            reply: Json = await self._link.request(message, headers=headers, on_notification=tell)
        except CallFailed as fault:
            self._transcript.add("<", f"{type(fault).__name__}: {fault}")
            raise
        self._transcript.add("<", json.dumps(reply))
        return reply


async def converse(target: Any, era: str, talk: list[Say], answers: Json, transcript: Transcript) -> None:
    """All that a client does with a server, one thing after the other, and what the caller gets."""

    def elicit(question: Any) -> Any:
        raw = {"mode": question.mode, "message": question.message, "requestedSchema": question.schema}
        answer = answer_to(question.key, {"method": "elicitation/create", "params": raw}, answers)
        return Accepted(answer.get("content")) if answer["action"] == "accept" else Declined()

    options: Json = {} if isinstance(target, Noting) else {"era": ERAS[era]}  # a Link was made for one
    options |= {"elicit": elicit, "elicit_url": elicit, "sample": lambda _: "Two files.", "on_log": lambda *_: None}
    async with Client(target, roots=[Root("file:///a")], name="tests", version="1", **options) as client:
        for said in [Say("server/discover"), *map(Say, LISTS), *talk]:
            try:
                await done(client, said)
            except CallFailed as fault:
                transcript.add("!", f"{type(fault).__name__}: {fault}")


async def done(client: Client, said: Say) -> None:
    match said.method, said.params:
        case "server/discover", _:
            await client.discover()
        case "tools/list", _:
            await client.list_tools()
        case "prompts/list", _:
            await client.list_prompts()
        case "resources/list", _:
            await client.list_resources()
        case "resources/templates/list", _:
            await client.list_resource_templates()
        case "tools/call", {"name": name, **rest}:
            progress = (lambda *_: None) if said.meta else None
            await client.call_tool(name, rest.get("arguments"), progress=progress)
        case "prompts/get", {"name": name, "arguments": arguments}:
            await client.get_prompt(name, arguments)
        case "resources/read", {"uri": uri}:
            await client.read_resource(uri)
        case "completion/complete", {"ref": ref, "argument": argument}:
            of = {"prompt": ref["name"]} if "name" in ref else {"template": ref["uri"]}
            await client.complete(**of, argument=argument["name"], value=argument["value"])


SPOKEN = [*GOOD, *(said for said in BAD if said.method in NAMED and isinstance(said.params.get("name", ""), str))]
"""What a client of ours can say to the sample; it does not send what is malformed."""
IN_ORDER = [said for said in SPOKEN if said.params.get("name") != "all_at_once"]
"""Without questions that cross their answers on the way, in no order."""


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("name", [*TALKS, "conversing"])
async def test_what_a_client_says_in_memory_is_as_committed(name: str, era: str, kept: Any) -> None:
    talk, answers = (SPOKEN, CONVERSING[1]) if name == "conversing" else TALKS[name]
    transcript = Transcript()
    link = ServerUnderTest(target=load(name).app, era=ERAS[era]).link()
    await converse(Noting(link, transcript), era, talk, answers, transcript)
    kept(f"memory-{name}-{era}", transcript)


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_client_and_a_process_say_over_pipes_is_as_committed(era: str, tmp_path: Path, kept: Any) -> None:
    note, transcript = tmp_path / "note", Transcript()
    serve = [sys.executable, "-m", "antiphon", "serve", str(HERE / "conversing.py")]
    command = [sys.executable, str(HERE / "relay.py"), str(note), *serve]
    await converse(command, era, IN_ORDER, CONVERSING[1], Transcript())
    transcript.parts = note.read_text(encoding="utf-8").splitlines(keepends=True)
    kept(f"pipes-{era}", transcript)


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_client_and_a_process_say_over_tcp_is_as_committed(era: str, kept: Any) -> None:
    transcript = Transcript()
    async with served() as address, relayed(address) as (url, exchanges):
        await converse(url, era, IN_ORDER, CONVERSING[1], Transcript())
    # A stream that is opened beside the requests has no fixed place among them.
    for sent, received in sorted(exchanges, key=lambda exchange: exchange[0].startswith(b"GET")):
        transcript.add(">", sent.decode())
        transcript.add("<", received.decode())
    kept(f"tcp-{era}", transcript)


@contextlib.asynccontextmanager
async def served() -> AsyncIterator[tuple[str, int]]:
    """The sample in a process of its own, over HTTP."""
    command = [sys.executable, "-m", "antiphon", "serve", str(HERE / "conversing.py"), "--http", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(DEADLINE):
            found = re.search(r"http://([\d.]+):(\d+)", (await process.stderr.readline()).decode())
        assert found
        yield found[1], int(found[2])
    finally:
        process.terminate()
        await process.communicate()


@contextlib.asynccontextmanager
async def relayed(address: tuple[str, int]) -> AsyncIterator[tuple[str, list[tuple[bytearray, bytearray]]]]:
    """A URL whose connections lead to the address, and each request with its response, in order of the requests."""
    exchanges: list[tuple[bytearray, bytearray]] = []
    under_way: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*address)
        current: list[tuple[bytearray, bytearray]] = []

        async def up() -> None:
            while data := await reader.read(65536):
                if not current or current[-1][1]:  # what follows a response is the next request
                    current.append((bytearray(), bytearray()))
                    exchanges.append(current[-1])
                current[-1][0].extend(data)
                server_writer.write(data)
            server_writer.close()

        async def down() -> None:
            while data := await server_reader.read(65536):
                current[-1][1].extend(data)
                writer.write(data)
            writer.close()

        under_way.update({asyncio.create_task(up()), asyncio.create_task(down())})

    relay = await asyncio.start_server(connected, "127.0.0.1")
    try:
        yield "http://127.0.0.1:%d/mcp" % relay.sockets[0].getsockname()[1], exchanges
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*under_way, return_exceptions=True)
    finally:
        relay.close()
