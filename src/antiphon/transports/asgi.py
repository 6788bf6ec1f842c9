"""Streamable HTTP as a plain ASGI application.

A request costs one task and no queue: a handler's answer is JSON, unless the handler sends a notification first, which
turns the response into a stream. Only a request that lasts gets a watcher for the client's going away.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from inspect import isawaitable
from threading import get_ident
from typing import Any
from urllib.parse import urlsplit

from antiphon.errors import InternalError, InvalidRequest, ProtocolError
from antiphon.http.exchange import Application, Receive, Scope, Send
from antiphon.server.dispatch import Principal, Service
from antiphon.server.era_dialect import MODERN, Dialect
from antiphon.tracebacks import from_own_frame
from antiphon.transports.admission import (
    ANY,
    PREFLIGHT,
    Accepts,
    AllowList,
    check_host_and_origin,
    is_preflight,
    merge_repeated,
    named_in,
    read_accept,
    with_cors,
)
from antiphon.transports.asgi_exchange import Exchange, head
from antiphon.transports.shutdown import cancel_tasks, close_streams_on_signals
from antiphon.wire import headers as http
from antiphon.wire import jsonrpc
from antiphon.wire.headers import RawHeaders
from antiphon.wire.revisions import REVISION

MAX_BODY = 4 * 1024 * 1024
MAX_REQUESTS = 10_000
"""Requests, open streams among them, that are served at once."""
MAX_HEADERS = 128
MAX_HEADER_BYTES = 64 * 1024
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
PATIENCE = 0.5
"""Seconds that a request may take before it is watched whether its client is still there."""

log = logging.getLogger("antiphon")
_MOST_WORDS = 256


class Endpoint:
    """The ASGI application."""

    def __init__(
        self,
        service: Service,
        *,
        path: str = "/mcp",
        allowed_hosts: Iterable[str] | None = None,
        allowed_origins: Iterable[str] | None = None,
        max_body: int = MAX_BODY,
        max_requests: int = MAX_REQUESTS,
        principal: Principal | None = None,
        fallback: Application | None = None,
        dialect: Dialect = MODERN,
    ) -> None:
        if not path.startswith("/"):
            raise ValueError(f"path must start with '/', got {path!r}")
        if service.single_use and not service.has_shared_store:
            log.warning(
                "single_use is kept in this process's memory: a second instance would accept the same token once more."
                " Give the Server a store that all instances share."
            )
        self.service = service
        self._has_lifespan = service.must_start or service.is_running
        self._path = path.rstrip("/") or "/"
        own = () if service.auth is None else (urlsplit(service.auth.resource).netloc,)
        self._hosts = AllowList((*LOCAL_HOSTS, *own) if allowed_hosts is None else allowed_hosts)
        self._origins = AllowList(LOCAL_HOSTS if allowed_origins is None else allowed_origins)
        if max_requests < 1:
            raise ValueError("max_requests must be at least 1")
        self._max_body = max_body
        self._max_requests = max_requests
        self._suspicious = len(str(max_body))
        """Digits from which on a Content-Length is worth a look."""
        if service.auth is not None and principal is not None:
            raise ValueError("The server's auth= says who calls, and so does principal=: use one of them")
        self._principal = named_in(principal) if isinstance(principal, str) else principal
        self._auth = service.auth
        if self._auth is not None:
            self._auth.serve_at(self._path)
        service.is_private = service.is_private or principal is not None
        self._fallback = fallback
        self.dialect = dialect
        self.ends_process = False
        """Whether the process ends with the lifespan, and with code 1 if a handler cannot be cancelled then."""
        self._admitted: dict[tuple[Any, ...], Accepts] = {}
        self._under_way: set[Exchange] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._standby: asyncio.Task[None] | None = None

    # Inlined as measured: every request comes through here, and each function of its own would cost a frame.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: C901, PLR0915 -- see above
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        if self._auth is not None and scope["path"] != self._path and _METADATA in scope["path"]:
            await self._show_metadata(scope, send)
            return
        if self._fallback is not None and not self._is_ours(scope):
            await self._fallback(scope, receive, send)
            return
        pairs = scope["headers"]
        headers: RawHeaders = dict(pairs)
        # The loop is remembered: asking for the running one is a system call in Python 3.11.
        task = asyncio.current_task(self._loop) if self._loop is not None and get_ident() == self._thread else None
        task = task or self._enter_loop()
        message: Any = None
        accepts: Accepts | None = None
        dialect = MODERN
        try:
            # What was admitted with the same words is admitted again.
            get = headers.get
            origin = get(b"origin")
            if origin is not None and self._origins.admits(origin, url=True):
                send = with_cors(send, origin)
            words = (scope["method"], scope["path"], get(b"host"), origin, get(b"content-type"), get(b"accept"))
            accepts = self._admitted.get(words)
            if accepts is None or len(pairs) != len(headers):
                accepts = self._admit(scope, pairs, headers, words)
            if len(pairs) > MAX_HEADERS or len(b"".join([*headers, *headers.values()])) > MAX_HEADER_BYTES:
                raise InvalidRequest("The request has too many or too large headers", status=431)
            if accepts is _NO_POST and scope["method"] == "OPTIONS":
                await self._answer_preflight(send)
                return
            if len(self._under_way) >= self._max_requests:
                raise InvalidRequest("The server is busy; try again later", status=503, headers={"Retry-After": "1"})
            # Who calls is known before the body is read.
            identity = None
            if self._auth is not None:
                identity = self._auth.recall(headers)
                if identity is None:
                    identity = await self._auth.identify(scope["method"], headers, self.service.store)
            if accepts is _NO_POST:
                dialect = self.dialect
            else:
                if len(headers.get(b"content-length", b"")) >= self._suspicious:
                    self._check_length(headers[b"content-length"])
                event = await receive()
                body = event.get("body", b"")
                if event.get("more_body", False) or len(body) > self._max_body or event["type"] == "http.disconnect":
                    body = await self._whole_body(event, receive)
                if headers.get(http.VERSION) == _REVISION:
                    message = jsonrpc.decode(body)
                else:
                    message, dialect = self._read(body, headers)
                del event, body  # a handler may take long
                if not accepts.stream and dialect is MODERN and message.get("method") == "subscriptions/listen":
                    raise InvalidRequest("subscriptions/listen needs Accept: text/event-stream", status=406)
            if identity is not None:
                assert self._auth is not None
                principal: str | None = identity.principal
                needed = self.service.scopes_for(message) if type(message) is dict else self._needed(message)
                self._auth.check_scopes(identity, needed)
            else:
                principal = None if self._principal is None else await self._identify(scope)
            if self._has_lifespan and self.service.must_start:
                await self._start_lifespan()
        except ProtocolError as fault:
            await Exchange(receive, send, task, accepts or ANY).refuse(fault, jsonrpc.id_of(message))
            return
        except OSError:
            return
        make = Exchange if dialect is MODERN else dialect.exchange
        exchange = make(receive, send, task, accepts)
        if identity is not None:
            exchange.identity = identity
            exchange.lasts = accepts is _NO_POST or (
                type(message) is dict and message.get("method") == "subscriptions/listen"
            )
        self._under_way.add(exchange)
        if self._timer is None:
            self._look_later()
        try:
            if dialect is not MODERN:
                await dialect.serve(exchange, scope["method"], headers, message, principal)
                return
            status, reply = await self.service.answer(message, exchange, headers, principal)
            if reply is None or exchange.streaming or not accepts.json or exchange.fields:
                await exchange.reply(status, reply)
            elif not exchange.gone:
                await send({"type": "http.response.start", "status": status, "headers": head(status, len(reply))})
                await send({"type": "http.response.body", "body": reply})
        except asyncio.CancelledError:
            if not exchange.gone:
                raise
            log.info("the client went away; its request was cancelled")
        except OSError:
            log.info("the client went away while its answer was sent")
        finally:
            self._under_way.discard(exchange)
            if exchange.watcher is not None:
                exchange.let_go()

    # --- before a request is looked at ----------------------------------------------------------------------------

    def _admit(self, scope: Scope, pairs: Any, headers: RawHeaders, words: tuple[Any, ...]) -> Accepts:
        """What the client accepts; InvalidRequest, with its status, for what HTTP alone can tell is not for us."""
        if not self._is_ours(scope):
            raise InvalidRequest(
                f"There is no MCP endpoint here; it is at {self._path}, and speaks streamable HTTP", status=404
            )
        if len(pairs) != len(headers):
            merge_repeated(pairs, headers)
        check_host_and_origin(headers, self._hosts, self._origins)
        if scope["method"] != "POST":
            if scope["method"] in self.dialect.verbs or is_preflight(scope["method"], headers):
                return _NO_POST
            raise InvalidRequest(
                f"{scope['method']} is not supported: use streamable HTTP, and send messages by POST", status=405
            )
        if headers.get(b"content-type") != b"application/json":
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":
                raise InvalidRequest("Content-Type must be application/json", status=415)
        accepts = read_accept(headers.get(b"accept"))
        if not (accepts.json or accepts.stream):
            raise InvalidRequest("Accept must allow application/json and text/event-stream", status=406)
        if len(self._admitted) < _MOST_WORDS and len(pairs) == len(headers) and not scope.get("root_path"):
            self._admitted[words] = accepts
        return accepts

    async def _answer_preflight(self, send: Send) -> None:
        verbs = ", ".join(sorted(self.dialect.verbs)).encode()
        fields = [(b"access-control-allow-methods", verbs), *PREFLIGHT]
        await send({"type": "http.response.start", "status": 204, "headers": fields})
        await send({"type": "http.response.body", "body": b""})

    def _read(self, body: bytes, headers: RawHeaders) -> tuple[Any, Dialect]:
        """What a body says, a message or a batch, and in which dialect."""
        dialect = self.dialect
        batch = dialect.batch(body, headers)
        if batch is not None:
            return batch, dialect
        message = jsonrpc.decode(body)
        return message, dialect if dialect.claims(message, headers) else MODERN

    def _is_ours(self, scope: Scope) -> bool:
        path: str = scope["path"]
        if path == self._path:
            return True
        root: str = scope.get("root_path", "")
        below = path[len(root) :] if root and path.startswith(root) else path
        return below.rstrip("/") == self._path or (bool(root) and below in {"", "/"})

    def _check_length(self, announced: bytes) -> None:
        """A body that announces itself as too large is not read at all."""
        if not announced.isdigit() or int(announced[:20]) > self._max_body:
            raise self._too_large()

    async def _whole_body(self, event: Any, receive: Receive) -> bytes:
        """A body that comes in pieces; OSError if the client goes away before its end."""
        chunks: list[bytes] = []
        size = 0
        while event["type"] != "http.disconnect":
            chunks.append(event.get("body", b""))
            size += len(chunks[-1])
            if size > self._max_body:
                raise self._too_large()
            if not event.get("more_body", False):
                return b"".join(chunks)
            event = await receive()
        raise OSError("the client went away")

    def _too_large(self) -> InvalidRequest:
        return InvalidRequest(f"The body is larger than {self._max_body} bytes", status=413)

    async def _identify(self, scope: Scope) -> str | None:
        assert self._principal is not None
        try:
            found = self._principal(scope)
            return await found if isawaitable(found) else found
        except ProtocolError:
            raise
        except Exception:
            log.exception("principal= failed, so the request is refused")
            raise InternalError from None

    def _needed(self, batch: list[Any] | None) -> Sequence[str]:
        """The scopes that all messages of a batch need."""
        found = [self.service.scopes_for(each) for each in batch or () if isinstance(each, dict)]
        return list(dict.fromkeys(scope for scopes in found for scope in scopes))

    async def _show_metadata(self, scope: Scope, send: Send) -> None:
        """Serve the resource's metadata to every page and program (RFC 9728, 3)."""
        assert self._auth is not None
        fine = scope["method"] in {"GET", "HEAD"}
        body = self._auth.metadata if fine else b""
        headers = [*head(200 if fine else 405, len(body)), (b"access-control-allow-origin", b"*")]
        headers.append((b"cache-control", b"max-age=3600"))
        await send({"type": "http.response.start", "status": 200 if fine else 405, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    # --- clients that go away -------------------------------------------------------------------------------------

    def _enter_loop(self) -> "asyncio.Task[Any] | None":
        """Note the running loop and its thread: one application may serve several, and a timer is bound to one."""
        self._loop = asyncio.get_running_loop()
        self._thread = get_ident()
        self._timer = None
        self.service.share_changes()
        close_streams_on_signals(self.service)
        return asyncio.current_task(self._loop)

    def _look_later(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(PATIENCE, self._look)

    def _look(self) -> None:
        """Put a watcher on the requests that were there at the last look as well; keep silent streams alive."""
        self._timer = None
        for exchange in self._under_way:
            exchange.age += 1
            if exchange.age > 1:
                exchange.watch()
            if exchange.streaming:
                exchange.grow_silent(PATIENCE)
            if exchange.lasts and self._auth is not None and self._auth.has_ended(exchange.identity):
                exchange.give_up()
        if self._under_way:
            self._look_later()

    # --- lifespan -------------------------------------------------------------------------------------------------

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "MCP is spoken over HTTP POST"})
            return
        if scope["type"] != "lifespan":
            raise RuntimeError(f"Unknown ASGI scope type {scope['type']!r}")
        await receive()
        phase = "startup"
        try:
            async with self.service.running():
                await send({"type": "lifespan.startup.complete"})
                await receive()
                phase = "shutdown"
                if self.ends_process:
                    await cancel_tasks([exchange.task for exchange in self._under_way if exchange.task is not None])
        except Exception as fault:
            log.exception("the server's lifespan failed", exc_info=from_own_frame(fault))
            await send({"type": f"lifespan.{phase}.failed", "message": "the server's lifespan failed: see the log"})
            return
        await send({"type": "lifespan.shutdown.complete"})

    async def _start_lifespan(self) -> None:
        """Where a host application does not run our lifespan, start it with the first request."""
        if self._standby is None or self._standby.done():
            ready = asyncio.get_running_loop().create_future()
            self._standby = asyncio.create_task(self._hold(ready))
            self._ready = ready
        await asyncio.shield(self._ready)

    async def _hold(self, ready: "asyncio.Future[None]") -> None:
        try:
            async with self.service.running():
                ready.set_result(None)
                await asyncio.get_running_loop().create_future()
        except Exception as fault:
            log.exception("the server's lifespan failed")
            if not ready.done():
                ready.set_exception(InvalidRequest("The server could not start", status=503))
            else:
                raise fault from None


_METADATA = "/.well-known/oauth-protected-resource"
_NO_POST = Accepts(json=False, stream=True)
_REVISION = REVISION.encode()
