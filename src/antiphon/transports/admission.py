"""What HTTP alone can tell of a request: which hosts and origins may send it, and what its client accepts."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from antiphon.errors import HeaderMismatch, InvalidRequest
from antiphon.http.exchange import Event, Scope, Send
from antiphon.wire import headers as http
from antiphon.wire.headers import RawHeaders

_SINGLE = {http.VERSION, http.METHOD, http.NAME, b"host", b"origin", b"content-type", b"content-length"}


class Accepts(NamedTuple):
    """The kinds of response that a client accepts."""

    json: bool
    stream: bool


ANY = Accepts(json=True, stream=True)


class AllowList:
    """Hosts or origins: a name with or without a port, a whole origin (``https://app.example``), ``*`` for all."""

    __slots__ = ("_all", "_known", "_names", "_origins")

    def __init__(self, names: Iterable[str]) -> None:
        listed = [name.lower().rstrip("/") for name in ([names] if isinstance(names, str) else names)]
        self._all = "*" in listed
        self._names = {name for name in listed if "://" not in name}
        self._origins = {_without_default_port(name) for name in listed if "://" in name}
        self._known: dict[bytes, bool] = {}

    def admits(self, raw: bytes | None, *, url: bool) -> bool:
        if self._all:
            return True
        if raw is None:
            return False
        known = self._known.get(raw)
        if known is None:
            known = self._judge(raw, url=url)
            if len(self._known) < 256:
                self._known[raw] = known
        return known

    def _judge(self, raw: bytes, *, url: bool) -> bool:
        text = raw.decode("latin-1").strip().lower()
        if url:
            if _without_default_port(text) in self._origins:
                return True
            scheme, separator, text = text.partition("://")
            if not separator or scheme not in {"http", "https"}:
                return False
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdigit():
            host = text
        hosts = {urlsplit(origin).netloc for origin in self._origins} if not url else set[str]()
        return text in self._names or host in self._names or text in hosts


def check_host_and_origin(headers: RawHeaders, hosts: AllowList, origins: AllowList) -> None:
    """InvalidRequest for a request from a page or through a name that is not allowed: DNS rebinding ends here."""
    if not hosts.admits(headers.get(b"host"), url=False):
        raise InvalidRequest("This Host is not allowed; pass allowed_hosts to serve it", status=403)
    origin = headers.get(b"origin")
    if origin is not None and not origins.admits(origin, url=True):
        raise InvalidRequest("This Origin is not allowed; pass allowed_origins to serve it", status=403)


_CORS: Final = [
    (b"vary", b"origin"),
    (b"access-control-expose-headers", b"mcp-session-id, www-authenticate"),
]
PREFLIGHT: Final = [
    (
        b"access-control-allow-headers",
        # The star stands for Mcp-Param-*, of any name. It does not cover Authorization.
        b"authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, mcp-session-id, *",
    ),
    (b"access-control-max-age", b"7200"),
]
"""What the answer to a preflight says, beside the methods."""


def is_preflight(verb: str, headers: RawHeaders) -> bool:
    """Return whether a browser asks if a page may send a request (Fetch, CORS-preflight request)."""
    return verb == "OPTIONS" and b"origin" in headers and b"access-control-request-method" in headers


def with_cors(send: Send, origin: bytes) -> Send:
    """Return a ``send`` whose responses the pages of an origin may read."""
    fields = [(b"access-control-allow-origin", origin), *_CORS]

    async def send_with_cors(event: Event) -> None:
        if event["type"] == "http.response.start":
            event = {**event, "headers": [*event["headers"], *fields]}
        await send(event)

    return send_with_cors


def named_in(header: str) -> Callable[[Scope], str]:
    """Return what reads in a header who calls, as a gateway says; a request that did not come through it is refused."""
    name = header.lower().encode("latin-1")

    def principal(scope: Scope) -> str:
        told = [value for key, value in scope["headers"] if key == name]
        if len(told) != 1 or not told[0].strip():
            raise InvalidRequest(f"Who calls must be said once, in the header {header}", status=401)
        return str(told[0].strip(), "latin-1")

    return principal


def _without_default_port(origin: str) -> str:
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        if origin.startswith(scheme):
            return origin.removesuffix(port)
    return origin


def merge_repeated(pairs: Iterable[tuple[bytes, bytes]], headers: RawHeaders) -> None:
    """Merge headers that came in several lines into one list; HeaderMismatch for a header that may come only once.

    A proxy might have believed the other value.
    """
    merged: RawHeaders = {}
    for name, value in pairs:
        if name not in merged:
            merged[name] = value
        elif name in _SINGLE or name.startswith(http.PARAM):
            raise HeaderMismatch(f"Header mismatch: {name.decode('latin-1')} is given twice")
        else:
            merged[name] += b", " + value
    headers.update(merged)


def read_accept(raw: bytes | None) -> Accepts:
    if raw is None:
        return ANY
    kinds: set[bytes] = set()
    for item in raw.lower().split(b","):
        kind, *parameters = (part.strip() for part in item.split(b";"))
        if not any(
            parameter.replace(b" ", b"") in {b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"} for parameter in parameters
        ):
            kinds.add(kind)
    everything = b"*/*" in kinds
    return Accepts(
        json=everything or b"application/json" in kinds or b"application/*" in kinds,
        stream=everything or b"text/event-stream" in kinds or b"text/*" in kinds,
    )
