"""The pages for load balancers: alive as long as the process answers, ready while requests can be served."""

from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from antiphon import Server, SQLiteStore, StoreError


async def _get(app, path, *, method="GET", host=b"10.1.2.3:8000", root=""):
    sent = []

    async def send(event):
        sent.append(event)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": root + path, "root_path": root, "query_string": b""}
    await app({**scope, "headers": [(b"host", host)]}, receive, send)
    return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])


class DownStore(SQLiteStore):
    is_down = False

    async def get(self, key):
        if self.is_down:
            raise StoreError("it is down")
        return await super().get(key)


async def test_a_server_with_health_answers_both_pages_whatever_host_the_probe_names():
    app = Server("notes").asgi(health=True)
    assert await _get(app, "/healthz") == (200, b"ok")
    assert await _get(app, "/readyz") == (200, b"ok")
    assert (await _get(app, "/readyz", method="HEAD"))[0] == 200
    assert (await _get(app, "/readyz", method="POST"))[0] == 405


async def test_without_health_there_are_no_such_pages():
    assert (await _get(Server("notes").asgi(), "/healthz", host=b"localhost"))[0] == 404


async def test_other_paths_go_to_the_fallback_or_nowhere():
    async def page(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a page"})

    assert await _get(Server("notes").asgi(health=True, fallback=page), "/about") == (200, b"a page")
    assert (await _get(Server("notes").asgi(health=True), "/about"))[0] == 404


async def test_a_server_is_not_ready_while_its_store_does_not_answer(tmp_path, caplog):
    store = DownStore(tmp_path / "store.db")
    app = Server("notes", store=store).asgi(health=True)
    assert (await _get(app, "/readyz"))[0] == 200
    store.is_down = True
    assert await _get(app, "/readyz") == (503, b"not ready")
    assert "the store does not answer: it is down" in caplog.text
    assert (await _get(app, "/healthz"))[0] == 200
    await store.close()


async def test_a_server_that_shuts_down_is_alive_and_not_ready():
    server = Server("notes")
    app = server.asgi(health=True)
    async with server.running():
        assert (await _get(app, "/readyz"))[0] == 200
    assert (await _get(app, "/readyz"))[0] == 503
    assert (await _get(app, "/healthz"))[0] == 200


async def test_the_pages_are_found_below_a_mount():
    app = Starlette(routes=[Mount("/tools", Server("notes").asgi(health=True))])
    assert (await _get(app, "/tools/readyz"))[0] == 200


@pytest.mark.parametrize("how", ["lifespan", "none"])
async def test_a_server_whose_lifespan_begins_with_its_first_request_is_ready_before_it(how):
    @asynccontextmanager
    async def lifespan(_):
        yield {}

    app = Server("notes", lifespan=lifespan if how == "lifespan" else None).asgi(health=True)
    assert (await _get(app, "/readyz"))[0] == 200
