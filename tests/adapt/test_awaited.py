"""Servers of the official SDK and of FastMCP, each with one line of ours around it."""

import asyncio
import gc
import json
import logging
import sys
import warnings
from pathlib import Path

import anyio.from_thread
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

from antiphon import Seal
from antiphon.adapt import awaited, service_of, step
from antiphon.errors import AntiphonError
from antiphon.rounds.token import generate_key
from antiphon.stores import MemoryStore
from antiphon.transports.memory import MemoryLink

sys.path.insert(0, str(Path(__file__).parent))

import shops
from shops import LIBRARIES, Sure, another_shop, done, made, shop

from messages import request

ALL = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
KEY = generate_key(b"k" * 32)
YES = {"action": "accept", "content": {"sure": True}}
NO = {"action": "decline"}
WHERE = {"action": "accept", "content": {"region": "eu"}}


@pytest.fixture(params=LIBRARIES)
def library(request):
    done.clear()
    return request.param


@pytest.fixture
def leg(call):
    """One request of a call, as the wire has it."""

    async def leg(server, name, arguments=None, state=None, answers=None, *, method="tools/call", capabilities=ALL):
        params = {"uri": name} if method == "resources/read" else {"name": name, "arguments": arguments or {}}
        if state is not None:
            params["requestState"] = state
        if answers is not None:
            params["inputResponses"] = answers
        service = service_of(server)
        async with service.running():
            reply = await call(service, method, params, capabilities=capabilities)
        return reply.get("result") or reply["error"]

    return leg


@pytest.fixture
def answered(leg):
    """A call to its end, with an answer to each question by its message; what was asked in each round, and its end."""

    async def answered(server, name, arguments=None, answers=None, **how):
        rounds = []
        result = await leg(server, name, arguments, **how)
        while result.get("resultType") == "input_required":
            asked = {key: request["params"]["message"] for key, request in result["inputRequests"].items()}
            rounds.append(sorted(asked.values()))
            assert len(rounds) < 6
            given = {key: (answers or {}).get(text, YES) for key, text in asked.items()}
            result = await leg(server, name, arguments, result["requestState"], given, **how)
        return rounds, result

    return answered


def official(server, answers=None, **how):
    """The official client, in this process; it says yes, or what is given for a message."""

    async def elicit(_, params):
        return ElicitResult.model_validate(
            (answers or {}).get(params.message, YES if params.mode == "form" else {"action": "accept"})
        )

    async def sample(_, params):
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Nice"), model="m")

    async def roots(_):
        return ListRootsResult(roots=[Root(uri="file:///a")])

    target = getattr(server, "_mcp_server", server)
    return Client(target, elicitation_callback=elicit, sampling_callback=sample, list_roots_callback=roots, **how)


def text(result):
    """What a result says, of either client."""
    content = result["content"] if isinstance(result, dict) else result.content
    return content[0]["text"] if isinstance(result, dict) else content[0].text


# --- asking -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_every_kind_of_question_is_awaited_on_both_eras(library, mode):
    async with official(shop(library), {"Where should db live?": WHERE, "Right?": WHERE}, mode=mode) as client:
        assert text(await client.call_tool("delete", {"name": "x"})) == "Deleted x"
        assert text(await client.call_tool("provision", {"name": "db"})) == "T-db in eu x2: accept, accept"
        assert text(await client.call_tool("pay", {"amount": 3})) == "Payment of 3: accept"
        assert text(await client.call_tool("describe", {})) == "Nice file:///a"
        assert text(await client.call_tool("compare", {})) == "accept accept"
        assert text(await client.call_tool("plain", {})) == "accept accept"
    assert done == ["deleted x", "reserved db", "reserved thread"]


async def test_questions_of_parallel_tasks_share_a_round(library, answered):
    rounds, result = await answered(shop(library), "compare", answers={"Right?": WHERE})
    assert (rounds, text(result)) == ([["Left?", "Right?"]], "accept accept")
    rounds, result = await answered(shop(library), "collect")
    assert rounds == [["One?", "Two?"], ["Four?", "Three?"]]
    assert text(result) == "One?accept Two?accept Three?accept Four?accept"


async def test_prompts_and_resources_ask_too(library, answered):
    mcp = shop(library)
    rounds, result = await answered(mcp, "greet", answers={"Who?": WHERE}, method="prompts/get")
    assert rounds == [["Who?"]]
    assert result["messages"][0]["content"]["text"] == "Greet eu"
    rounds, result = await answered(mcp, "shelf://a", method="resources/read")
    assert rounds == [["Show a?"]]
    assert result["contents"][0]["text"] == "a: accept"


async def test_a_result_that_depends_on_answers_is_not_for_a_cache(answered):
    from mcp.server.caching import CacheHint
    from mcp.server.mcpserver import Context, MCPServer

    mcp = awaited(MCPServer("shop", version="1.0", cache_hints={"resources/read": CacheHint(ttl_ms=5000)}))

    @mcp.resource("shelf://{name}")
    async def shelf(name: str, ctx: Context) -> str:
        return name if name == "open" else (await ctx.elicit(f"Show {name}?", Sure)).action

    assert [
        (await answered(mcp, f"shelf://{name}", method="resources/read"))[1]["ttlMs"] for name in ("open", "x")
    ] == [
        5000,
        0,
    ]


async def test_a_function_in_a_thread_asks_and_its_step_runs_once(library, answered):
    rounds, result = await answered(shop(library), "plain")
    assert rounds == [["From a thread?"], ["Again with T-thread?"]]
    assert (text(result), done) == ("accept accept", ["reserved thread"])


async def test_a_tool_of_a_mounted_server_asks(answered):
    from fastmcp import FastMCP

    outer = awaited(FastMCP("outer", version="1.0"))
    outer.mount(shop("fastmcp"), "inner")
    rounds, result = await answered(outer, "inner_delete", {"name": "x"})
    assert (rounds, text(result)) == ([["Delete x?"]], "Deleted x")


async def test_a_low_level_server_asks(answered):
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult, ListToolsResult, TextContent

    async def list_tools(ctx, params):
        return ListToolsResult(tools=[])

    async def call_tool(ctx, params):
        answer = await ctx.session.elicit_form("Low?", Sure.model_json_schema())
        return CallToolResult(content=[TextContent(type="text", text=answer.action)])

    server = awaited(Server("low", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool))
    rounds, result = await answered(server, "any")
    assert (rounds, text(result)) == ([["Low?"]], "accept")


# --- a yes is given, or there is none -------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["delete", "purge", "discard"])
async def test_a_tool_that_swallows_everything_asks_all_the_same(library, tool, answered):
    rounds, result = await answered(shop(library), tool, {"name": "x"}, {f"{tool.title()} x?": NO})
    assert (rounds, text(result), done) == ([[f"{tool.title()} x?"]], "Kept x", [])


async def test_a_cancellation_is_no_answer_in_a_thread_either(library):
    import threading

    from antiphon.adapt.session import AskingSession

    bare, tool, _, _, Context = made(library)
    asked, ended = asyncio.Event(), threading.Event()

    class Waits(AskingSession):
        async def send_request(self, request, result_type, *more, **rest):
            asyncio.get_running_loop().call_soon(asked.set)
            return await super().send_request(request, result_type, *more, **rest)

    @tool
    def discard(ctx: Context) -> str:
        try:
            ctx.session.__class__ = Waits
            anyio.from_thread.run(ctx.elicit, "Discard?", Sure)
        except Exception:
            done.append("discarded")
        finally:
            ended.set()
        return "Discarded"

    service = service_of(awaited(bare))
    async with service.running():
        message = request("tools/call", {"name": "discard", "arguments": {}}, capabilities=ALL)
        call = asyncio.create_task(MemoryLink(service).send(message))
        await asked.wait()
        (asking,) = [task for task in asyncio.all_tasks() if "task_wrapper" in repr(task)]
        asking.cancel()
        await call
    assert await asyncio.to_thread(ended.wait, 5)
    assert done == []


async def test_no_signal_ever_stands_for_an_answer(library, answered):
    rounds, result = await answered(shop(library), "careless")
    assert (rounds, text(result), done) == ([["Both?"]], "yes", ["careless"])


@pytest.mark.parametrize(
    ("tool", "arguments", "needed"),
    [
        ("delete", {"name": "x"}, {"elicitation": {"form": {}}}),
        ("purge", {"name": "x"}, {"elicitation": {"form": {}}}),
        ("discard", {"name": "x"}, {"elicitation": {"form": {}}}),
        ("pay", {"amount": 3}, {"elicitation": {"url": {}}}),
        ("describe", {}, {"sampling": {}}),
    ],
)
async def test_a_client_that_cannot_be_asked_is_told_what_is_needed(library, leg, tool, arguments, needed):
    error = await leg(shop(library), tool, arguments, capabilities={})
    assert (error["code"], error["data"], done) == (-32021, {"requiredCapabilities": needed}, [])


@pytest.mark.parametrize("tool", ["delete", "purge", "discard", "careless"])
@pytest.mark.parametrize("answer", [None, {"action": "accept"}, {"action": "accept", "content": {"sure": "yes"}}])
async def test_with_an_older_client_nothing_runs_without_an_answer_either(library, tool, answer):
    arguments = {} if tool == "careless" else {"name": "x"}

    async def elicit(_, params):
        return ElicitResult.model_validate(answer)

    target = getattr(shop(library), "_mcp_server", shop(library))
    async with Client(target, elicitation_callback=elicit if answer else None, mode="legacy") as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert text(result).startswith("The question was not answered: ")
    assert done == []


async def test_an_older_client_without_roots_is_served_as_the_tool_has_it(library):
    bare, tool, _, _, Context = made(library)

    @tool
    async def look(ctx: Context) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                await ctx.session.list_roots()
            except Exception:
                return "without roots"

    async with Client(getattr(awaited(bare), "_mcp_server", bare), mode="legacy") as client:
        assert text(await client.call_tool("look", {})) == "without roots"


async def test_an_older_prompt_that_gets_no_answer_is_an_error(library):
    target = getattr(shop(library), "_mcp_server", shop(library))
    async with Client(target, mode="legacy") as client:
        with pytest.raises(MCPError, match="The question was not answered: "):
            await client.get_prompt("greet", {})


async def test_answers_that_were_not_asked_for_are_ignored(library, leg):
    mcp = shop(library)
    first = await leg(mcp, "delete", {"name": "x"}, answers={"sure": YES, "value": YES, "form": YES})
    assert first["resultType"] == "input_required"
    again = await leg(mcp, "delete", {"name": "x"}, first["requestState"], {"other": YES})
    assert again["inputRequests"] == first["inputRequests"]
    assert done == []


@pytest.mark.parametrize(
    "unfit", [{"action": "accept", "content": {"sure": "yes"}}, {"action": "accept"}, {"action": "ok"}, {}]
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(library, leg, unfit):
    mcp = shop(library)
    first = await leg(mcp, "delete", {"name": "x"})
    (key,) = first["inputRequests"]
    second = await leg(mcp, "delete", {"name": "x"}, first["requestState"], {key: unfit})
    asked = second["inputRequests"][key]["params"]["message"]
    assert asked.endswith("Delete x?")
    assert asked.startswith("Not accepted: ") == (unfit.get("action") == "accept")
    third = await leg(mcp, "delete", {"name": "x"}, second["requestState"], {key: YES})
    assert (text(third), done) == ("Deleted x", ["deleted x"])


async def test_a_field_that_is_left_empty_may_be_null(library, leg):
    mcp = shop(library)
    first = await leg(mcp, "provision", {"name": "db"})
    (key,) = first["inputRequests"]
    empty = {"action": "accept", "content": {"region": None, "replicas": 3}}
    second = await leg(mcp, "provision", {"name": "db"}, first["requestState"], {key: empty})
    assert "missing required field 'region'" in second["inputRequests"][key]["params"]["message"]


async def test_a_refusal_is_an_answer(library, answered):
    rounds, result = await answered(
        shop(library), "provision", {"name": "db"}, {"Where should db live?": {"action": "cancel"}}
    )
    assert (rounds, text(result)) == ([["Where should db live?"]], "Nothing provisioned: cancel")


async def test_a_question_that_is_never_the_same_twice_is_an_error(library, answered):
    rounds, error = await answered(shop(library), "restless")
    assert len(rounds) == 2
    assert error["code"] == -32603
    assert "changes on every round" in error["message"]


# --- beside the libraries' own way to ask -----------------------------------------------------------------------------


async def test_questions_that_are_declared_or_returned_go_before_those_that_are_awaited(library, answered):
    answers = {"Where is x?": WHERE, "Now?": {"action": "accept", "content": {"sure": False}}}
    rounds, result = await answered(shop(library), "move", {"name": "x"}, answers)
    declared = ["Sure of x?", "Where is x?"] if library == "mcp" else ["Where is x?"]
    assert rounds == [declared, ["Move x to eu?"], ["Now?"]]
    assert text(result) == "Moved x to eu: True, True, False"


async def test_a_returned_question_that_was_refused_may_be_asked_again(leg):
    mcp = shop("fastmcp")
    first = await leg(mcp, "move", {"name": "x"})
    second = await leg(mcp, "move", {"name": "x"}, first["requestState"], {"region": NO})
    assert second["inputRequests"] == first["inputRequests"]
    third = await leg(mcp, "move", {"name": "x"}, second["requestState"], {})
    assert third["inputRequests"] == first["inputRequests"]
    last = await leg(mcp, "move", {"name": "x"}, third["requestState"], {"region": WHERE})
    assert [request["params"]["message"] for request in last["inputRequests"].values()] == ["Move x to eu?"]


# --- steps, tokens, instances ---------------------------------------------------------------------------------------


async def test_a_step_runs_once_over_all_rounds_and_another_instance_continues(library, leg):
    servers = [another_shop(library, seal=Seal(KEY)) for _ in range(4)]
    state, answers, asked = None, None, []
    for server in servers:
        result = await leg(server, "provision", {"name": "db"}, state, answers)
        if "inputRequests" in result:
            ((key, request),) = result["inputRequests"].items()
            asked.append(request["params"]["message"])
            state, answers = result["requestState"], {key: WHERE if len(asked) == 1 else YES}
    assert asked == ["Where should db live?", "Go ahead with T-db?", "Really?"]
    assert (text(result), done) == ("T-db in eu x2: accept, accept", ["reserved db"])


async def test_the_keys_come_from_the_environment(library, leg, monkeypatch):
    monkeypatch.setenv("ANTIPHON_KEYS", KEY)
    one, other = another_shop(library), another_shop(library)
    monkeypatch.delenv("ANTIPHON_KEYS")
    first = await leg(one, "move", {"name": "x"})
    answers = dict.fromkeys(first["inputRequests"], WHERE) | {
        key: YES for key in first["inputRequests"] if "sure" in key
    }
    second = await leg(other, "move", {"name": "x"}, first["requestState"], answers)
    assert [request["params"]["message"] for request in second["inputRequests"].values()] == ["Move x to eu?"]
    refused = await leg(shop(library), "move", {"name": "x"}, first["requestState"], answers)
    assert (refused["code"], refused["message"]) == (-32602, "Invalid or expired requestState")


async def test_a_token_counts_for_one_call_of_one_server_and_one_user(library, leg, monkeypatch):
    mcp = another_shop(library, seal=Seal(KEY))
    first = await leg(mcp, "delete", {"name": "x"})
    state, answers = first["requestState"], dict.fromkeys(first["inputRequests"], YES)

    async def is_refused(server, name, arguments):
        return (await leg(server, name, arguments, state, answers)).get("code") == -32602

    assert await is_refused(mcp, "delete", {"name": "y"})
    assert await is_refused(mcp, "purge", {"name": "x"})
    assert await is_refused(another_shop(library, "other", seal=Seal(KEY)), "delete", {"name": "x"})
    with signed_in("ada"):
        assert await is_refused(mcp, "delete", {"name": "x"})
    assert done == []
    assert text(await leg(mcp, "delete", {"name": "x"}, state, answers)) == "Deleted x"


def signed_in(user):
    from contextlib import contextmanager

    from mcp.server.auth.middleware.auth_context import auth_context_var
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    @contextmanager
    def signed():
        token = AccessToken(token="t", client_id="c", scopes=[], subject=user)
        before = auth_context_var.set(AuthenticatedUser(token))
        try:
            yield
        finally:
            auth_context_var.reset(before)

    return signed()


async def test_a_user_goes_on_with_the_token_that_is_theirs_alone(library, leg):
    mcp = shop(library)
    with signed_in("ada"):
        first = await leg(mcp, "delete", {"name": "x"})
    answers = dict.fromkeys(first["inputRequests"], YES)
    with signed_in("eve"):
        assert (await leg(mcp, "delete", {"name": "x"}, first["requestState"], answers))["code"] == -32602
    assert (await leg(mcp, "delete", {"name": "x"}, first["requestState"], answers))["code"] == -32602
    with signed_in("ada"):
        assert text(await leg(mcp, "delete", {"name": "x"}, first["requestState"], answers)) == "Deleted x"


@pytest.mark.parametrize("token", ["ap1.x", "", "v1.abc", 5])
async def test_a_forged_state_is_refused(library, leg, token):
    refused = await leg(shop(library), "delete", {"name": "x"}, token, {"sure": YES})
    assert refused["code"] == -32602
    assert done == []


@pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])
async def test_a_forged_state_does_not_reach_a_handler_whatever_the_client_s_revision(mode):
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ListToolsResult

    seen = []

    async def list_tools(ctx, params):
        return ListToolsResult(tools=[])

    async def call_tool(ctx, params):
        seen.append(params.request_state)
        return CallToolResult(content=[])

    server = awaited(Server("low", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool))
    forged = CallToolRequest(params=CallToolRequestParams(name="any", request_state="forged"))
    async with Client(server, mode=mode) as client:
        with pytest.raises(MCPError, match="requestState"):
            await client.session.send_request(forged, CallToolResult)
        await client.session.send_request(CallToolRequest(params=CallToolRequestParams(name="any")), CallToolResult)
    assert seen == [None]


async def test_a_token_is_used_once_with_a_store_that_instances_share(library, leg):
    store = MemoryStore()
    one, other = (another_shop(library, seal=Seal(KEY, single_use=True), store=store) for _ in range(2))
    first = await leg(one, "delete", {"name": "x"})
    answers = dict.fromkeys(first["inputRequests"], YES)
    ends = await asyncio.gather(
        *(leg(server, "delete", {"name": "x"}, first["requestState"], answers) for server in [one, other] * 4)
    )
    assert sorted("code" in end for end in ends) == [False] + [True] * 7
    assert done == ["deleted x"]


async def test_a_leg_that_is_sent_twice_runs_its_step_once_with_a_store(library, leg):
    store = MemoryStore()
    one, other = (another_shop(library, seal=Seal(KEY), store=store) for _ in range(2))
    first = await leg(one, "provision", {"name": "db"})
    answers = dict.fromkeys(first["inputRequests"], WHERE)
    sent = await asyncio.gather(
        *(leg(server, "provision", {"name": "db"}, first["requestState"], answers) for server in [one, other])
    )
    assert sent[0]["inputRequests"] == sent[1]["inputRequests"]
    assert done == ["reserved db"]


async def test_a_step_needs_a_call_of_a_server_that_is_awaited(library):
    bare, tool, _, _, Context = made(library)

    @tool
    async def stray(ctx: Context) -> str:
        try:
            return await step(ctx, "x", shops.draw)
        except RuntimeError as fault:
            return str(fault)

    async with official(bare) as client:
        assert "given to antiphon.adapt.awaited()" in text(await client.call_tool("stray", {}))


# --- telling ------------------------------------------------------------------------------------------------------


async def test_a_tool_that_seems_to_act_before_it_asks_is_warned_of_at_the_first_message(library, leg, caplog):
    bare, tool, _, _, Context = made(library)
    mcp = awaited(bare)

    async def look_up(name): ...
    async def charge(name): ...
    async def note(name): ...

    @tool
    async def order(name: str, ctx: Context) -> str:
        found = await look_up(name)
        if found == "gone":
            await note(name)
            return "gone"
        await ctx.report_progress(1, 2)
        await step(ctx, "note", note, name)
        if found is None:
            paid = await charge(name)
        await ctx.elicit(f"Order {name}?", Sure)
        await note(name)
        return f"{paid}"

    with caplog.at_level(logging.WARNING, "antiphon"):
        await leg(mcp, "order", {"name": "x"})
        await leg(mcp, "order", {"name": "x"})
    (warning,) = [record.message for record in caplog.records if record.name == "antiphon"]
    assert "the tool 'order' awaits charge() " in warning
    assert f"{Path(__file__).name}:" in warning
    assert "await step(ctx, 'charge', charge, ...)" in warning


async def test_nothing_is_kept_of_a_call_that_ended(library, leg):
    from antiphon.adapt.session import runs

    mcp = shop(library)
    before = len(runs)
    for _ in range(3):
        await leg(mcp, "compare", {})
        await leg(mcp, "plain", {})
    gc.collect()
    assert len(runs) <= before


def test_what_is_no_server_and_what_is_adapted_is_refused(library):
    mcp = shop(library)
    with pytest.raises(ValueError, match="'shop' was given to awaited\\(\\) before"):
        awaited(mcp)
    with pytest.raises(TypeError, match="awaited\\(\\) takes an MCPServer"):
        awaited(object())


def test_a_version_that_moved_is_refused_by_name(library, monkeypatch):
    if library == "mcp":
        from mcp.server.session import ServerSession as moving

        async def changed(self, request, result, deadline): ...

        monkeypatch.setattr(moving, "send_request", changed)
    else:
        from fastmcp.server.context import Context as moving

        async def changed(self, question): ...

        monkeypatch.setattr(moving, "elicit", changed)
    bare, *_ = made(library)
    before = list(getattr(bare, "_mcp_server", bare).middleware)
    with pytest.raises(
        AntiphonError, match=r"does not know this version \(mcp 2\..*takes other parameters.*tried with mcp"
    ):
        awaited(bare)
    assert list(getattr(bare, "_mcp_server", bare).middleware) == before


def test_the_public_names_need_neither_library():
    import subprocess

    code = "import sys, antiphon.adapt; print(json.dumps([*sys.modules]))"
    ran = subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
    assert not {"mcp", "fastmcp", "pydantic"} & {*json.loads(ran.stdout)}
