"""One HTTP request to any address, as a sign-in needs it: no redirects, bounded in size and time."""

import asyncio
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from antiphon.errors import Disconnected
from antiphon.http.client import Pool, proxy_for
from antiphon.transports.http_client import Response

MAX_BODY = 1024 * 1024
TIMEOUT = 10.0
_SAFE = re.compile(r"[\x20-\x7e]*\Z")


class FetchedReply(NamedTuple):
    """A response: its status, its headers by lower-case name, and its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    at: float
    """When it came, in seconds since the epoch."""


async def fetch(
    verb: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes = b"",
    *,
    check_address: Callable[[str], None] | None = None,
    timeout: float = TIMEOUT,
) -> FetchedReply:
    """Send a request and read its response. Disconnected or PeerBroken if that fails or takes too long.

    ``check_address`` is called with the IP address that was connected to, before anything is sent; it raises to refuse.
    """
    lines = {"User-Agent": "antiphon", "Connection": "close", **headers}
    if not all(_SAFE.match(f"{name}{value}") for name, value in lines.items()):
        raise ValueError("A header has characters that HTTP cannot carry")
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    pool = Pool(url, proxy=proxy_for(url, os.environ), limit=1, kind=Response, check_address=check_address)
    try:
        async with asyncio.timeout(timeout):
            connection = await pool.send(verb, head, body)
            data = await connection.read(MAX_BODY)
            return FetchedReply(connection.status, connection.headers, data, time.time())
    except TimeoutError:
        raise Disconnected(f"{url} did not answer within {timeout:g} seconds") from None
    finally:
        await pool.close()
