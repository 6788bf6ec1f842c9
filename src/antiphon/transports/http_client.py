"""The HTTP link: every message its own POST, answered in JSON or as a stream."""

import os
import re
import ssl
from collections.abc import Mapping
from time import time

from antiphon.errors import Disconnected, PeerBroken, Refused, SignInFailed
from antiphon.http.client import MAX_CONNECTIONS, ClientConnection, Pool, proxy_for
from antiphon.transports.link import Authorizer, Caller, OnNotification, SessionLink, read_message, refusal, tell
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode
from antiphon.wire.sse import Events

MAX_REPLY = 64 * 1024 * 1024
"""Bytes that one reply, or one event of a stream, may have."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*\Z")
_OURS = {
    *("content-length", "transfer-encoding", "host", "connection"),
    *("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"),
}


_HOW_TO_SIGN_IN = "Pass auth=OAuth(), or another way of antiphon.auth, to the Client"


class Response(ClientConnection):
    """A connection to read a response from, whose faults are a client's errors."""

    lost = Disconnected
    broken = PeerBroken


class HttpLink(SessionLink):
    """A server behind a URL. ``kind`` is the class of its connections, for a link whose traffic is watched."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_reply: int = MAX_REPLY,
        max_connections: int = MAX_CONNECTIONS,
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
        auth: Authorizer | None = None,
        kind: type[Response] = Response,
    ) -> None:
        self.url = url
        self._auth = auth
        self._caller: Caller | None = None
        self._headers = _lines(headers or {})
        self._pool = Pool(url, proxy=proxy or proxy_for(url, os.environ), tls=tls, limit=max_connections, kind=kind)
        self._max_reply = max_reply

    def introduce(self, caller: Caller) -> None:
        self._caller = caller

    async def open(self) -> None:
        """The first request connects."""
        self._pool.open()

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        mirrored = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        connection = await self._send("POST", mirrored, encode(message), message["id"])
        answered = False
        try:
            reply = await self._reply(connection, message["id"], on_notification)
            answered = True
            return reply
        finally:
            self._pool.release(connection, answered=answered)

    async def close(self) -> None:
        await self._pool.close()

    async def exchange(
        self,
        verb: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        signs_in: bool = True,
    ) -> ClientConnection:
        """A request of any kind, and the head of its response; the caller reads the rest and gives it back.

        ``signs_in``: whether it is worth a sign-in, should it need one.
        """
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return await self._send(verb, lines, body, signs_in=signs_in)

    def give_back(self, connection: ClientConnection, *, answered: bool) -> None:
        self._pool.release(connection, answered=answered)

    async def _send(
        self, verb: str, lines: str, body: bytes, id_: object = None, *, signs_in: bool = True
    ) -> ClientConnection:
        """Send a request; again, if the server refused it and there is another token."""
        if self._auth is None:
            return await self._pool.send(verb, self._headers + lines, body)
        attempt = self._auth.attempt(signs_in=signs_in)
        while True:
            connection = await self._pool.send(verb, self._headers + await attempt.lines(verb) + lines, body)
            if connection.status not in {401, 403}:
                attempt.accepted()
                return connection
            address = None if self._pool.is_proxied else connection.address
            renewal = attempt.renewal(connection.status, connection.headers, address)
            if renewal is None and connection.status == 401:
                self._pool.release(connection, answered=True)
                raise SignInFailed(f"{self.url} refuses the token that it was sent")
            if renewal is None:
                return connection
            self._pool.release(connection, answered=True)
            # A person may be asked to sign in, which is not the server's time.
            if self._caller is not None:
                self._caller.clock(id_, False)
            try:
                await renewal
            finally:
                if self._caller is not None:
                    self._caller.clock(id_, True)

    async def _reply(
        self, response: ClientConnection, id_: object, on_notification: OnNotification | None
    ) -> JsonObject:
        kind = content_type(response)
        if response.status == 200 and kind == "text/event-stream":
            return await self._streamed(response, id_, on_notification)
        body = await response.read(self._max_reply)
        if response.status != 200 or kind != "application/json":
            raise refused(response, body)
        return read_message(body)

    async def _streamed(
        self, response: ClientConnection, id_: object, on_notification: OnNotification | None
    ) -> JsonObject:
        events = Events(self._max_reply)
        while chunk := await response.next_chunk():
            try:
                found = events.feed(chunk)
            except ValueError as fault:
                raise PeerBroken(f"The server's stream is broken: {fault}") from None
            for data in found:
                message = read_message(data)
                if "method" in message:
                    await tell(on_notification, message)
                elif message.get("id") == id_ or ("error" in message and message.get("id") is None):
                    # The response ends the stream; what a server sends after it is not looked at.
                    return message
        raise Disconnected("The server closed the stream before it had answered")


def content_type(response: ClientConnection) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


def refused(response: ClientConnection, body: bytes) -> Refused:
    """What a response says that carries no reply: the server's own error if there is one, else HTTP's."""
    status, headers = response.status, response.headers
    retry_after = _retry_after(headers.get("retry-after"))
    if content_type(response) == "application/json":
        try:
            fault = refusal(read_message(body).get("error"), status=status, retry_after=retry_after)
            if status == 401:
                fault.args = (f"{fault.message}. {_HOW_TO_SIGN_IN}",)
            return fault
        except PeerBroken:
            pass  # JSON of its own kind, from a gateway perhaps
    told = body[:200].decode(errors="replace").strip()
    if status == 200:
        text = f"The server answered with {headers.get('content-type', 'no content type')!r} instead of JSON"
    elif status in {301, 302, 303, 307, 308}:
        text = f"The server redirects to {headers.get('location', 'nowhere')!r}: use that URL if you trust it"
    elif status == 401:
        text = f"The server wants a token. {_HOW_TO_SIGN_IN}"
    else:
        text = f"The server answered with HTTP status {status}" + (f": {told}" if told else "")
    return Refused(text, status=status, retry_after=retry_after)


def _lines(headers: Mapping[str, str]) -> str:
    """The headers that every request has."""
    made = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    made["User-Agent"] = "antiphon"
    for name, value in headers.items():
        if name.lower() in _OURS or name.lower().startswith("mcp-param-"):
            raise ValueError(f"The header {name!r} is the protocol's own")
        if not _HEADER.match(f"{name}: {value}"):
            raise ValueError(f"The header {name!r} has a name or a value that HTTP cannot carry")
        made.pop(name.title(), None)
        made[name] = value
    return "".join([f"{name}: {value}\r\n" for name, value in made.items()])


def _retry_after(value: str | None) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date."""
    if value is None:
        return None
    from email.utils import parsedate_to_datetime  # 6 ms, and few servers send it

    try:
        return float(value) if value.strip().isdigit() else max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except (ValueError, TypeError, OverflowError):
        return None
