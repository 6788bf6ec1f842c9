"""The HTTP link: every message its own POST, answered in JSON or as a stream."""

import os
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from antiphon.errors import Disconnected, PeerBroken, Refused
from antiphon.protocol.sse import Events
from antiphon.transports.http1 import Pool, Response, proxy_for
from antiphon.transports.link import OnNotification
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode

MAX_REPLY = 64 * 1024 * 1024
"""Bytes that one reply, or one event of a stream, may have."""

_decode = msgspec.json.Decoder().decode


class HttpLink:
    """A server behind a URL."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_reply: int = MAX_REPLY,
        proxy: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.url = url
        self._own = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "User-Agent": "antiphon",
            **(headers or {}),
        }
        found = proxy or (proxy_for(parts, os.environ) if _names_a_proxy() else None)
        self._pool = Pool(url, proxy=found)
        self._max_reply = max_reply

    async def open(self) -> None:
        """The first request connects."""

    async def request(
        self, message: JsonObject, *, headers: Mapping[str, str], on_notification: OnNotification | None = None
    ) -> JsonObject:
        response, connection = await self._pool.post({**self._own, **headers}, encode(message))
        try:
            return await self._reply(response, message.get("id"), on_notification)
        finally:
            self._pool.release(connection)

    async def close(self) -> None:
        await self._pool.close()

    async def _reply(self, response: Response, id_: object, on_notification: OnNotification | None) -> JsonObject:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status == 200 and kind == "text/event-stream":
            return await self._streamed(response, id_, on_notification)
        body = await response.read(self._max_reply)
        if kind == "application/json":
            reply = _read(body)
            if response.status == 200 or ("error" in reply and reply.get("id", id_) == id_):
                return reply
        raise self._refusal(response, body)

    async def _streamed(self, response: Response, id_: object, on_notification: OnNotification | None) -> JsonObject:
        events = Events(self._max_reply)
        async for chunk in response.chunks():
            try:
                found = events.feed(chunk)
            except ValueError as fault:
                raise PeerBroken(f"The server's stream is broken: {fault}") from None
            for data in found:
                message = _read(data)
                if "method" in message:
                    await _tell(on_notification, message)
                elif message.get("id") == id_ or ("error" in message and "id" not in message):
                    # The response ends the stream; what a server sends after it is not looked at.
                    return message
        raise Disconnected("The server closed the stream before it had answered")

    def _refusal(self, response: Response, body: bytes) -> Refused:
        status = response.status
        told = body[:200].decode(errors="replace").strip()
        if status in {301, 302, 303, 307, 308}:
            text = (
                f"The server redirects to {response.headers.get('location', 'nowhere')!r}: use that URL if you trust it"
            )
        elif status == 401:
            text = "The server wants you to authenticate"
        elif status == 200:
            return Refused(f"The server answered with {response.headers.get('content-type')!r}", status=status)
        else:
            text = f"The server answered with HTTP status {status}" + (f": {told}" if told else "")
        return Refused(text, status=status, retry_after=_retry_after(response.headers.get("retry-after")))


def _read(data: bytes) -> JsonObject:
    try:
        message: Any = _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise PeerBroken(f"The server sent what is not JSON: {fault}") from None
    if type(message) is not dict:
        raise PeerBroken("The server sent JSON that is no message")
    return message


async def _tell(on_notification: OnNotification | None, message: JsonObject) -> None:
    if on_notification is not None:
        told = on_notification(message)
        if told is not None:
            await told


def _retry_after(value: str | None) -> float | None:
    """RFC 9110, 10.2.3: seconds, or a date."""
    if value is None:
        return None
    try:
        return max(0.0, float(value)) if value.strip().isdigit() else parsedate_to_datetime(value).timestamp() - time()
    except (ValueError, TypeError):
        return None


def _names_a_proxy() -> bool:
    return any(key.lower().endswith("_proxy") for key in os.environ)
