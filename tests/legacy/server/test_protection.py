"""Who may use a session: its user, with any token, at any instance; for all others it does not exist."""

import pytest

from antiphon import Context, MemoryStore, Seal, Server, SQLiteStore
from antiphon.auth import Protected
from antiphon.testing import Issuer
from redis_server import start_redis

from .driver import SESSION, Client, request, tool_call

URL = "https://mcp.example.com/mcp"


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sqlite":
        made = SQLiteStore(tmp_path / "store.db")
        yield made
        await made.close()
    else:
        from antiphon import RedisStore

        with start_redis(tmp_path) as url:
            made = RedisStore(url)
            yield made
            await made.close()


@pytest.fixture
def issuer():
    return Issuer()


def instance(issuer, store):
    auth = Protected(URL, issuer=issuer.url, verify=issuer, scopes=["read"])
    app = Server("notes", auth=auth, store=store, seal=Seal(keys=["k" * 40]))

    @app.tool
    async def who(ctx: Context) -> str:
        return ctx.auth.subject

    @app.tool(scopes=["write"])
    async def add() -> str:
        return "added"

    @app.tool(scopes=["delete"])
    async def delete() -> str:
        return "deleted"

    return app.asgi()


def bearer(issuer, user, *scopes, **about):
    token = issuer.token(user, audience=URL, scopes=["read", *scopes], **about)
    return {"authorization": f"Bearer {token}"}


async def test_another_users_session_and_streams_do_not_exist_at_any_instance(issuer, store):
    first, second = instance(issuer, store), instance(issuer, store)
    ada = Client(first, headers=bearer(issuer, "ada"))
    await ada.connect()
    elsewhere = Client(second, headers={SESSION: ada.session, "mcp-protocol-version": "2025-11-25"})
    unknown = {SESSION: "unknown"}
    for verb, body, more in (
        ("POST", tool_call("who"), {}),
        ("GET", b"", {}),
        ("GET", b"", {"last-event-id": "1"}),
        ("DELETE", b"", {}),
        ("POST", {"jsonrpc": "2.0", "id": "ask-1", "result": {}}, {}),
    ):
        told = []
        for headers in ({**bearer(issuer, "bob"), **more}, {**bearer(issuer, "bob"), **more, **unknown}):
            reply = await elsewhere.open(body, verb=verb, headers=headers).reply()
            told.append((reply.status, reply.error and reply.error["message"]))
        assert told[0] == told[1], verb
        assert told[0][0] == 404, verb
    # The same user goes on, after a refresh, a new login and a new registration.
    for about in ({}, {"client_id": "another"}, {"expires_in": 60}):
        reply = await elsewhere.post(tool_call("who"), headers=bearer(issuer, "ada", **about))
        assert reply.message["result"]["content"][0]["text"] == "ada"


async def test_a_batch_asks_for_all_that_its_messages_need_at_once(issuer):
    ada = Client(instance(issuer, MemoryStore()), revision="2025-03-26", headers=bearer(issuer, "ada"))
    await ada.connect()
    batch = [tool_call("add"), tool_call("delete"), request("tools/list")]
    reply = await ada.post(batch)
    assert reply.status == 403
    assert 'scope="read write delete"' in reply.headers["www-authenticate"]
    granted = await ada.post(batch, headers=bearer(issuer, "ada", "write", "delete"))
    assert len(granted.message) == 3
