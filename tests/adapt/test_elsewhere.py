"""Clients that cannot be asked, at servers of other libraries: their users are asked elsewhere."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent

from antiphon.adapt import awaited, service_of
from server.desk import Desk

sys.path.insert(0, str(Path(__file__).parent))

from shops import LIBRARIES, Sure, another_shop, done

YES = {"action": "accept", "content": {"sure": True}}
NO = {"action": "accept", "content": {"sure": False}}
WHERE = {"action": "accept", "content": {"region": "eu"}}

on_all = pytest.mark.parametrize("library", LIBRARIES)
in_both = pytest.mark.parametrize("mode", ["2026-07-28", "legacy"])


@pytest.fixture(autouse=True)
def nothing_done():
    done.clear()


def connected(server, mode, **handlers):
    return Client(getattr(server, "_mcp_server", server), mode=mode, **handlers)


def waits(result):
    return result.is_error and result.content[0].text.startswith(
        "This call is not done yet: a person has to answer first."
    )


@on_all
@in_both
@pytest.mark.parametrize(("tool", "past"), [("delete", "Deleted"), ("purge", "Purged"), ("discard", "Discarded")])
async def test_a_person_answers_and_the_same_call_goes_on(library, mode, tool, past):
    for answer, told in ((YES, f"{past} x"), (NO, "Kept x")):
        desk = Desk()
        async with connected(another_shop(library, elsewhere=desk), mode) as client:
            assert waits(await client.call_tool(tool, {"name": "x"}))
            assert waits(await client.call_tool(tool, {"name": "x"}))
            await desk.answer(answer)
            result = await client.call_tool(tool, {"name": "x"})
            assert (bool(result.is_error), result.content[0].text) == (False, told)
            again = await client.call_tool(tool, {"name": "x"})
            assert "It was not run again" in again.content[1].text
        assert len(desk.told) == 1
    assert len(done) <= 1


@on_all
@in_both
async def test_questions_follow_each_other_and_a_step_runs_once(library, mode):
    desk = Desk()
    async with connected(another_shop(library, elsewhere=desk), mode) as client:
        for answer in (WHERE, YES, YES):
            assert waits(await client.call_tool("provision", {"name": "db"}))
            await desk.answer(answer)
        result = await client.call_tool("provision", {"name": "db"})
    assert result.content[0].text == "T-db in eu x2: accept, accept"
    assert done == ["reserved db"]


async def test_a_returned_question_waits_as_well():
    desk = Desk()
    async with connected(another_shop("fastmcp", elsewhere=desk), "2026-07-28") as client:
        for answer in (WHERE, YES, YES):
            assert waits(await client.call_tool("move", {"name": "x"}))
            await desk.answer(answer)
        result = await client.call_tool("move", {"name": "x"})
    assert result.content[0].text == "Moved x to eu: True, True, True"


@on_all
@in_both
async def test_what_a_client_can_be_asked_it_is_asked(library, mode):
    async def elicit(_, params):
        return ElicitResult.model_validate(YES if params.mode == "form" else {"action": "accept"})

    async def sample(_, params):
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Nice"), model="m")

    async def roots(_):
        return ListRootsResult(roots=[Root(uri="file:///a")])

    desk = Desk()
    server = another_shop(library, elsewhere=desk)
    async with connected(server, mode, sampling_callback=sample, list_roots_callback=roots) as client:
        assert (await client.call_tool("describe", {})).content[0].text == "Nice file:///a"
    async with connected(server, mode, elicitation_callback=elicit) as client:
        assert (await client.call_tool("delete", {"name": "x"})).content[0].text == "Deleted x"
    assert desk.told == []
    strict = Desk()
    strict.always = True
    async with connected(another_shop(library, elsewhere=strict), mode, elicitation_callback=elicit) as client:
        assert waits(await client.call_tool("delete", {"name": "y"}))
    assert len(strict.told) == 1
    assert done == ["deleted x"]


@on_all
@in_both
async def test_a_prompt_says_so_with_an_error(library, mode):
    desk = Desk()
    async with connected(another_shop(library, elsewhere=desk), mode) as client:
        with pytest.raises(MCPError, match="This call is not done yet"):
            await client.get_prompt("greet", {})
        await desk.answer(WHERE)
        assert (await client.get_prompt("greet", {})).messages[0].content.text == "Greet eu"


async def test_over_http_nobody_is_asked_at_the_server_s_own_desk():
    from mcp.server.mcpserver import MCPServer

    service = service_of(awaited(MCPServer("shop"), elsewhere=Desk(is_local=True)))
    call = SimpleNamespace(capabilities={})
    assert service._asks_elsewhere(SimpleNamespace(request=None), call, is_modern=True)
    assert not service._asks_elsewhere(SimpleNamespace(request=object()), call, is_modern=True)


async def test_a_call_is_its_caller_s_even_if_the_server_binds_no_token_to_them(monkeypatch):
    from mcp.server.auth.provider import AccessToken
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.request_state import RequestStateSecurity

    caller = "ann"
    monkeypatch.setattr(
        "mcp.server.request_state.get_access_token",
        lambda: AccessToken(token=caller, client_id="c", scopes=[], subject=caller),
    )
    desk, security = Desk(), RequestStateSecurity(keys=["k" * 40], bind_principal=None)
    server = awaited(MCPServer("shop", request_state_security=security), elsewhere=desk)

    @server.tool()
    async def delete(ctx: Context) -> str:
        answer = await ctx.elicit("Delete?", Sure)
        return f"{caller}: {answer.action}"

    async with connected(server, "2026-07-28") as client:
        assert waits(await client.call_tool("delete", {}))
        await desk.answer(YES, by=str(desk.told[-1].who))
        caller = "bob"
        assert waits(await client.call_tool("delete", {}))
        caller = "ann"
        assert (await client.call_tool("delete", {})).content[0].text == "ann: accept"
    assert len({row.who for row in desk.told}) == 2
