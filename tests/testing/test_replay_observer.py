"""The test kit observes a server by the hooks that it has for that, and leaves its inside alone."""

import ast
import inspect
import os

from antiphon import Client, Context, Seal, Server
from antiphon.rounds.token import generate_key
from antiphon.testing import check_replay_safety, replay_observer
from antiphon.testing.replay_observer import STEPS, Observer


def private_accesses(source: str) -> list[str]:
    return [
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.endswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id == "self")
    ]


def test_the_test_kit_uses_nothing_private_of_a_server() -> None:
    source = inspect.getsource(replay_observer)
    assert private_accesses(source) == []
    assert "co_consts" not in source


async def test_a_server_under_trial_keeps_its_seal_and_each_token_is_good_once_afterwards() -> None:
    app = Server("trial", seal=Seal(generate_key(os.urandom(32)), single_use=True))
    inside: list[bool] = []
    before = dict(vars(app))

    @app.tool
    async def wipe(ctx: Context) -> str:
        inside.append(all(vars(app)[name] is before[name] for name in ("tokens", "_step_threads", "_threads")))
        return str(await ctx.confirm("Wipe?"))

    report = await check_replay_safety(app, "wipe", {"confirm": True})
    assert report.ok, report
    assert inside
    assert all(inside)
    assert app.single_use
    assert app.observer is None


async def test_an_observer_is_told_of_steps_and_sees_nothing_of_what_they_do() -> None:
    app = Server("steps")
    told: list[str] = []

    class Telling:
        def step(self, key: str):
            told.append(key)
            return STEPS.step(key)

    def made() -> int:
        return int.from_bytes(os.urandom(2))

    async def later() -> int:
        return int.from_bytes(os.urandom(2))

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.now()
        await ctx.random()
        await ctx.step("plain", made)
        await ctx.step("awaited", later)
        os.urandom(1)
        return "done"

    looking = Observer(yours=[])
    with app.rehearsal(Telling()), looking:
        async with Client(app) as client:
            with looking.seeing() as seen:
                assert (await client.call_tool("work")).text == "done"
    assert told == [":now", ":random", "plain", "awaited"]
    assert [(sight.kind, sight.what) for sight in seen] == [
        ("step", "ctx.now()"),
        ("step", "ctx.random()"),
        ("step", "'plain'"),
        ("step", "'awaited'"),
        ("random", "os.urandom()"),
    ]
