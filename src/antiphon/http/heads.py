"""Heads of HTTP/1.1 messages: the checks of a request's, and the bytes of a response's."""

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

Fields: TypeAlias = tuple[tuple[bytes, bytes], ...]
Target: TypeAlias = tuple[str, bytes, bytes]
"""The path, the same as it was sent, and the query."""

CLOSE: Final = b"connection: close\r\n"
_OURS: Final = frozenset((b"content-length", b"transfer-encoding", b"connection"))
_BODILESS: Final = frozenset((204, 304))
_NO_TOKEN: Final = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_NO_VALUE: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def refusal_of(version: str, hosts: int, *, odd_coding: bool) -> tuple[int, str] | None:
    """The status and the reason for refusing a request, if there is one."""
    if version not in {"1.1", "1.0"}:
        return 505, "HTTP/1.1 is spoken here"
    if odd_coding:
        # RFC 9112, 6.1: a coding that is not understood.
        return 501, "No Transfer-Encoding but chunked is understood"
    if hosts > 1 or (version == "1.1" and not hosts):
        # RFC 9112, 3.2.
        return 400, "A request has one Host header"
    return None


def read_target(sent: bytes, root: str) -> tuple[Target, bytes | None]:
    """The target of a request below a root path, and the host that it names."""
    import httptools  # an application that another server runs does without

    url: Any = httptools.parse_url(sent)
    raw: bytes = url.path or b"/"
    path = raw.decode("ascii")
    target = (root + (unquote(path) if "%" in path else path), root.encode("ascii") + raw, url.query or b"")
    if url.host is None:
        return target, None
    return target, sent.partition(b"://")[2].partition(b"/")[0].partition(b"?")[0].rpartition(b"@")[2]


class Head(NamedTuple):
    """The start of a response, checked."""

    start: bytes
    fields: bytes
    length: int | None
    bodiless: bool
    closes: bool


def head_of(event: Mapping[str, Any]) -> Head:
    status, headers = event["status"], tuple(event.get("headers", ()))
    try:
        return _known_head(status, headers) if len(headers) < 3 else _read_head(status, headers)
    except TypeError:  # a pair that is a list
        return _read_head(status, tuple((bytes(name), bytes(value)) for name, value in headers))


def _read_head(status: int, headers: Fields) -> Head:
    if not 200 <= status <= 999:
        raise RuntimeError(f"{status} is not the status of a response")
    lines: list[bytes] = []
    length: int | None = None
    closes = False
    for given, value in headers:
        name = given.lower()
        if not name or _NO_TOKEN.search(name) or _NO_VALUE.search(value):
            raise RuntimeError(f"{given!r}: {value!r} is not a valid header")
        if name in _OURS:
            if name == b"content-length":
                if length is not None or not value.isdigit():
                    raise RuntimeError(f"{value!r} cannot be the content-length")
                length = int(value)
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise RuntimeError(f"{value!r} cannot be the transfer-encoding")
                continue
            else:
                tokens = {token.strip() for token in value.lower().split(b",")}
                closes = closes or b"close" in tokens
                if tokens <= {b"close", b"keep-alive"}:
                    continue
        lines.append(b"%b: %b\r\n" % (name, value))
    return Head(status_line(status), b"".join(lines), length, status in _BODILESS, closes)


# Short heads come again; a longer one may name a session, and come once.
_known_head = lru_cache(maxsize=512)(_read_head)


@lru_cache(maxsize=128)
def status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase.encode()
    except ValueError:
        phrase = b""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase)


def plain(status: int, reason: str, defaults: bytes, *, is_head: bool) -> bytes:
    """A whole response that says why there is no other, and closes the connection."""
    body = reason.encode()
    fields = b"content-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\n" % len(body)
    return b"".join((status_line(status), defaults, fields, CLOSE, b"\r\n", b"" if is_head else body))
