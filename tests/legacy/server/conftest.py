"""A server with something of everything, and older clients of it."""

import pytest

from antiphon import MemoryStore, SQLiteStore

from .driver import Client


@pytest.fixture
async def client(app):
    """A client in a session."""
    made = Client(app.asgi())
    await made.connect()
    return made


@pytest.fixture(params=["memory", "sqlite"])
async def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    made = SQLiteStore(tmp_path / "store.db")
    yield made
    await made.close()


@pytest.fixture
def soon(monkeypatch):
    """Make what takes a few seconds take a few hundredths."""
    from antiphon.legacy.server import reply_stream, resuming

    monkeypatch.setattr(reply_stream, "GRACE", 0.05)
    monkeypatch.setattr(resuming, "LOOK", 0.05)
