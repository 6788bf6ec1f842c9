"""A URL as a person should see it before opening it: its host apart, and what is odd about it."""

import ipaddress
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from antiphon.escaping import visible


class Location(NamedTuple):
    """A URL in three parts, the middle one being its host, and warnings (client/elicitation, Safe URL Handling)."""

    before: str
    host: str
    after: str
    warnings: list[str]
    can_be_opened: bool


def read_location(url: str) -> Location:
    shown = visible(url)
    warnings: list[str] = []
    if shown != url or any(letter.isspace() for letter in url):
        warnings.append("It contains characters that cannot be seen.")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        parts, host = SplitResult("", "", "", "", ""), ""
    if parts.scheme in {"http", "https"} and "\\" in parts.netloc:
        warnings.append("It has a \\ before its path: a browser may open another host than other programs.")
        return Location(shown, "", "", warnings, can_be_opened=False)
    if parts.scheme not in {"http", "https"} or not host:
        warnings.append("It is not a web page, and cannot be opened from here.")
        return Location(shown, "", "", warnings, can_be_opened=False)
    if parts.scheme == "http" and not _is_local(host):
        warnings.append("It is not https: others on the network can read and change what is sent.")
    if "@" in parts.netloc:
        warnings.append(f"The part before the @ is not the host: the host is {visible(host)}.")
    if any(label.startswith("xn--") for label in host.split(".")):
        warnings.append(f"The host is in punycode, and may look like another one: {_decoded(host)}")
    elif not host.isascii():
        warnings.append("The host has letters beyond ASCII, and may look like another one.")
    start = _start(url, host)
    before, at, after = url[:start], url[start : start + len(host)], url[start + len(host) :]
    return Location(visible(before), visible(at), visible(after), warnings, can_be_opened=True)


def _start(url: str, host: str) -> int:
    """Return where the host begins: after the last @ of the authority."""
    begin = url.find("//") + 2
    end = min((index for index in (url.find(mark, begin) for mark in "/?#") if index >= 0), default=len(url))
    sign = url.rfind("@", begin, end)
    return max(url.lower().find(host, max(begin, sign + 1)), 0)


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _decoded(host: str) -> str:
    try:
        return visible(host.encode("ascii").decode("idna"))
    except UnicodeError:
        return visible(host)
