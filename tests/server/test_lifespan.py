"""The lifespan: what a server sets up before the first request and takes down after the last."""

import asyncio
import threading
from contextlib import asynccontextmanager

import pytest

from antiphon import Context, Server
from asgi import Http


class Life:
    """A lifespan that keeps a diary."""

    def __init__(self, fails_at=None):
        self.diary = []
        self.fails_at = fails_at
        self.server = None

    @asynccontextmanager
    async def __call__(self, server):
        self.server = server
        self.diary.append("up")
        if self.fails_at == "start":
            raise RuntimeError("the database is away")
        try:
            yield {"database": "connected"}
        finally:
            self.diary.append("down")
            if self.fails_at == "end":
                raise RuntimeError("the database will not go")


def served(life):
    app = Server("tests", version="1.0.0", lifespan=life)

    @app.tool
    async def ask(ctx: Context) -> str:
        return ctx.lifespan["database"]

    return app


class Host:
    """The lifespan half of an ASGI server."""

    def __init__(self, app):
        self.incoming = asyncio.Queue()
        self.sent = asyncio.Queue()
        self.state = {}
        scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self.state}
        self.task = asyncio.create_task(app(scope, self.incoming.get, self.sent.put))

    async def tell(self, what):
        await self.incoming.put({"type": f"lifespan.{what}"})
        async with asyncio.timeout(5):
            return (await self.sent.get())["type"]

    async def ended(self):
        async with asyncio.timeout(5):
            await asyncio.wait({self.task})
        return self.task.exception()


async def test_what_the_lifespan_yields_is_reachable_from_the_context(use):
    life = Life()
    app = served(life)
    async with app.running():
        assert life.server is app
        assert (await use(app, "ask"))["content"][0]["text"] == "connected"
        assert app.is_running
    assert life.diary == ["up", "down"]
    assert not app.is_running


async def test_a_server_without_a_lifespan_has_nothing_to_give(app, use):
    seen = []

    @app.tool
    async def look(ctx: Context) -> None:
        seen.append(ctx.lifespan)

    async with app.running():
        await use(app, "look")
    assert seen == [None]


async def test_entering_twice_is_one_life():
    life = Life()
    app = served(life)
    async with app.running(), app.running():
        assert life.diary == ["up"]
    assert life.diary == ["up", "down"]


async def test_entering_at_the_same_time_is_one_life_too():
    diary = []

    @asynccontextmanager
    async def slow(server):
        diary.append("up")
        await asyncio.sleep(0.01)
        yield "state"
        await asyncio.sleep(0.01)
        diary.append("down")

    app = Server("tests", lifespan=slow)

    async def live():
        async with app.running():
            assert app.state == "state"
            await everybody.wait()

    everybody = asyncio.Barrier(3)
    async with asyncio.timeout(5):
        await asyncio.gather(live(), live(), live())
    assert diary == ["up", "down"]


async def test_two_applications_of_one_server_share_its_life():
    life = Life()
    app = served(life)
    replies = await asyncio.gather(*(Http(app.asgi()).tool("ask", id=number) for number in range(3)))
    assert [reply.status for reply in replies] == [200] * 3
    assert life.diary == ["up"]


async def test_a_life_lasts_until_the_last_one_leaves(use):
    life = Life()
    app = served(life)
    first, second = app.running(), app.running()
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert life.diary == ["up"]
    assert (await use(app, "ask"))["content"][0]["text"] == "connected"
    await second.__aexit__(None, None, None)
    assert life.diary == ["up", "down"]


async def test_a_server_can_live_again(use):
    life = Life()
    app = served(life)
    for _ in range(2):
        async with app.running():
            assert (await use(app, "ask"))["content"][0]["text"] == "connected"
    assert life.diary == ["up", "down"] * 2


async def test_an_asgi_server_starts_and_ends_it():
    life = Life()
    app = served(life)
    asgi = app.asgi()
    host = Host(asgi)
    assert await host.tell("startup") == "lifespan.startup.complete"
    assert life.diary == ["up"]
    reply = await Http(asgi).tool("ask")
    assert reply.result["content"][0]["text"] == "connected"
    assert await host.tell("shutdown") == "lifespan.shutdown.complete"
    assert await host.ended() is None
    assert life.diary == ["up", "down"]


async def test_a_lifespan_that_cannot_start_is_reported_to_the_asgi_server(caplog):
    host = Host(served(Life(fails_at="start")).asgi())
    assert await host.tell("startup") == "lifespan.startup.failed"
    await host.ended()
    assert "the database is away" in caplog.text


async def test_a_lifespan_that_cannot_end_is_reported_as_that(caplog):
    # The ASGI specification knows startup.failed and shutdown.failed; the former is wrong once startup is complete.
    host = Host(served(Life(fails_at="end")).asgi())
    assert await host.tell("startup") == "lifespan.startup.complete"
    assert await host.tell("shutdown") == "lifespan.shutdown.failed"
    await host.ended()
    assert "the database will not go" in caplog.text


async def test_where_nobody_runs_the_lifespan_the_first_request_does():
    life = Life()
    http = Http(served(life).asgi())
    replies = await asyncio.gather(*(http.tool("ask", id=number) for number in range(5)))
    assert [reply.result["content"][0]["text"] for reply in replies] == ["connected"] * 5
    assert life.diary == ["up"]


async def test_a_lifespan_that_cannot_start_with_the_first_request_is_a_clear_answer(caplog):
    life = Life(fails_at="start")
    http = Http(served(life).asgi())
    reply = await http.tool("ask")
    assert reply.status == 503
    assert "database" not in reply.error["message"]
    life.fails_at = None
    reply = await http.tool("ask")
    assert reply.result["content"][0]["text"] == "connected"


async def test_requests_that_are_refused_start_nothing():
    life = Life()
    http = Http(served(life).asgi())
    assert (await http.tool("ask", headers={"host": "evil.example.com"})).status == 403
    assert life.diary == []


async def test_a_host_application_may_run_it_itself():
    life = Life()
    app = served(life)
    http = Http(app.asgi())
    async with app.running():
        assert (await http.tool("ask")).status == 200
    assert life.diary == ["up", "down"]


async def test_state_is_gone_when_life_is_over():
    app = served(Life())
    async with app.running():
        assert app.state == {"database": "connected"}
    assert app.state is None


async def test_plain_functions_still_run_after_a_life_has_ended(app, use):
    app.add_tool(lambda: "x", name="plain")
    for _ in range(50):
        async with app.running():
            await asyncio.gather(*(use(app, "plain") for _ in range(3)))
        assert (await use(app, "plain"))["content"][0]["text"] == "x"


async def test_a_plain_function_of_an_earlier_life_holds_nobody_up(app, use):
    stuck, released = threading.Event(), threading.Event()

    @app.tool
    def hang() -> None:
        stuck.set()
        assert released.wait(10)

    app.add_tool(lambda: "x", name="plain")
    async with app.running():
        hanging = asyncio.ensure_future(use(app, "hang"))
        assert await asyncio.to_thread(stuck.wait, 5)
    try:
        async with app.running():
            for _ in range(3):
                async with asyncio.timeout(3):
                    assert (await use(app, "plain"))["content"][0]["text"] == "x"
    finally:
        released.set()
        await hanging


def test_a_lifespan_outlives_no_event_loop():
    life = Life()
    app = served(life)

    async def once():
        reply = await Http(app.asgi()).tool("ask")
        assert reply.status == 200

    for _ in range(2):
        asyncio.run(once())
    assert life.diary == ["up", "down"] * 2


async def test_a_host_that_is_cancelled_does_not_leave_it_up():
    life = Life()
    host = Host(served(life).asgi())
    assert await host.tell("startup") == "lifespan.startup.complete"
    host.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await host.task
    assert life.diary == ["up", "down"]
