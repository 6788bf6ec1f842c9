"""What most tests need: a server, and the three ways to reach it."""

import asyncio
import json
import logging
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The helpers beside this file are modules of their own.
sys.path.insert(0, str(Path(__file__).parent))

from asgi import DEADLINE, Http
from messages import check_notification, check_reply, request

# The everyday run tries fewer examples; `make heavy` tries the full number with --hypothesis-profile=thorough.
settings.register_profile("everyday", max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("everyday")


@pytest.fixture
def app():
    from antiphon import Server

    return Server("tests", version="1.0.0")


@pytest.fixture
def call():
    """A request to a server in memory, and the reply, checked by the referee; `told` collects notifications."""
    from antiphon.auth import Identity
    from antiphon.transports.memory import MemoryLink

    async def call(server, method, params=None, *, id=1, told=None, principal=None, **about):
        message = json.loads(json.dumps(request(method, params, id=id, **about)))
        heard = [] if told is None else told
        async with asyncio.timeout(DEADLINE):
            reply = await MemoryLink(server, identity=None if principal is None else Identity(subject=principal)).send(
                message, heard.append
            )
        for notification in heard:
            check_notification(notification)
        check_reply(message, reply)
        return json.loads(json.dumps(reply))

    return call


@pytest.fixture
def use(call):
    """A tool call in memory, and its result."""

    async def use(server, name, arguments=None, **about):
        reply = await call(server, "tools/call", {"name": name, "arguments": arguments or {}}, **about)
        return reply["result"]

    return use


@pytest.fixture
def http(app):
    """The server's ASGI application, driven in process."""
    return Http(app.asgi())


@pytest.fixture
def live():
    """Starts ASGI applications under a real uvicorn, each on a port of its own."""
    from antiphon.transports.serve import SETTINGS

    running = []

    def start(application):
        import uvicorn

        class Announced(uvicorn.Server):
            ready = threading.Event()

            async def startup(self, sockets=None):
                await super().startup(sockets)
                self.ready.set()

        settings = {**SETTINGS, "log_level": logging.ERROR, "timeout_graceful_shutdown": 2}
        server = Announced(uvicorn.Config(application, port=0, **settings))
        server.ready = threading.Event()
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        assert server.ready.wait(10), "uvicorn did not start"
        return server.servers[0].sockets[0].getsockname()[1]

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive(), "uvicorn did not stop"
