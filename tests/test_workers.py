"""What `run()` refuses, and says instead; cli/test_serve.py runs workers."""

import pytest

from antiphon import Server


async def test_a_server_does_not_start_an_event_loop_in_another():
    for transport in ("stdio", "http"):
        with pytest.raises(RuntimeError, match=r"run\(\) starts an event loop and cannot be called in one: mount asgi"):
            Server("x").run(transport)


def test_workers_are_handed_no_functions():
    with pytest.raises(ValueError, match=r"give principal= and fallback= to Server\(\)"):
        Server("x").run("http", workers=2, principal=lambda scope: "ada")


def test_workers_must_find_the_server_by_a_name():
    with pytest.raises(ValueError, match="at the top level of the file that runs"):
        Server("x").run("http", workers=2)


def test_there_is_at_least_one_worker():
    with pytest.raises(ValueError, match="workers must be at least 1"):
        Server("x").run("http", workers=0)
