"""Which URLs a sign-in may ask or open, and which resource covers which server."""

from ipaddress import IPv6Address, ip_address
from typing import Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

Network: TypeAlias = Literal["loopback", "private", "public"]
_WIDTH: dict[Network, int] = {"loopback": 0, "private": 1, "public": 2}


class UrlRefused(ValueError):
    """A URL that must not be asked or opened; the text says why."""


def origin_of(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL; UrlRefused if it is no http URL."""
    parts = _parts(url)
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or (443 if parts.scheme == "https" else 80)


def base_of(url: str) -> str:
    """Return the origin of a URL as text, with its port where one is written."""
    parts = _parts(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def path_of(url: str) -> str:
    """Return the path of a URL, without the slash at its end."""
    return _parts(url).path.rstrip("/")


def covers(resource: str, server: str) -> bool:
    """Return whether a resource is a server's URL, or a parent of it by whole path segments on the same origin."""
    try:
        parts = _parts(resource)
        if parts.fragment or "#" in resource or "@" in parts.netloc or origin_of(resource) != origin_of(server):
            return False
    except UrlRefused:
        return False
    wanted, there = _parts(server), parts.path.rstrip("/")
    if parts.query:
        return parts.path == wanted.path and parts.query == wanted.query
    return not there or wanted.path.rstrip("/") == there or wanted.path.startswith(f"{there}/")


def check_endpoint(url: str, what: str) -> str:
    """Return a URL that may be asked or opened; UrlRefused if it is none: https, or http on this machine only."""
    parts = _parts(url, what)
    if "@" in parts.netloc:
        raise UrlRefused(f"{what} has a user name in it: {_shown(url)}")
    if "#" in url:
        raise UrlRefused(f"{what} has a fragment: {_shown(url)}")
    if not url.isascii() or not url.isprintable() or any(sign in url for sign in ' "<>\\^`{|}'):
        raise UrlRefused(f"{what} has characters that no URL has: {_shown(url)}")
    if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
        raise UrlRefused(f"{what} is not https: {_shown(url)}")
    return url


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine by definition."""
    if host.rstrip(".").lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return network_of(host) == "loopback"
    except ValueError:
        return False


def network_of(address: str) -> Network:
    """Return where an IP address is; ValueError if it is none."""
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip.sixtofour or ip
    if ip.is_loopback:
        return "loopback"
    return "public" if ip.is_global and not ip.is_multicast else "private"


def network_of_host(url: str) -> Network | None:
    """Return where the host of a URL is, if it is an address or this machine; None if only a look-up can tell."""
    host = origin_of(url)[1]
    if is_loopback(host):
        return "loopback"
    try:
        return network_of(host)
    except ValueError:
        return None


def may_lead(start: Network, to: Network) -> bool:
    """Return whether a server on one network may send a client to another: never to a narrower one than its own."""
    return _WIDTH[to] >= _WIDTH[start]


def _parts(url: str, what: str = "The URL") -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UrlRefused(f"{what} is not valid: {_shown(url)}") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UrlRefused(f"{what} is not an http URL: {_shown(url)}")
    return parts


def _shown(url: str) -> str:
    return ascii(url if len(url) <= 200 else f"{url[:200]}...")
