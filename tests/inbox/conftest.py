"""Every inbox test runs on every store."""

import secrets

import pytest

from antiphon.stores import MemoryStore, RedisStore, SQLiteStore
from redis_server import start_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory):
    with start_redis(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "redis"])
async def store(request, tmp_path):
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "sqlite":
        made = SQLiteStore(tmp_path / "inbox.db")
    else:
        made = RedisStore(request.getfixturevalue("redis_url"), prefix=f"inbox-{secrets.token_hex(4)}")
    yield made
    await made.close()
