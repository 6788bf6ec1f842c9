"""Old clients that cannot be asked: what they are shown, and how they find the row of their call."""

from antiphon import Accepted, Client
from antiphon.testing.servers import serving
from server.desk import ERASE, Desk, Ops
from server.test_elsewhere import waits
from server.test_needs import needy


async def test_an_old_client_without_a_session_finds_its_row() -> None:
    ops = Ops(Desk())
    async with (
        serving(lambda _: ops.app.asgi(legacy="stateless")) as url,
        Client(f"{url}/mcp", era="legacy") as client,
    ):
        for _ in range(2):
            assert waits((await client.call_tool(**ERASE)).text)
            await ops.desk.answer()
        assert (await client.call_tool(**ERASE)).text == "Erased staging"


async def test_an_old_client_is_shown_what_it_can_use() -> None:
    async with Client(needy(), era="legacy") as client:
        assert [tool.name for tool in await client.list_tools()] == ["free", "last"]
    async with Client(needy(), era="legacy", elicit=lambda _: Accepted(True)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["free", "wipe", "erase", "last"]
