"""HTTP headers that mirror the body (2026-07-28, basic/transports/streamable-http, Request Metadata)."""

import binascii
import re
from typing import Any, Literal, NamedTuple, TypeAlias

from antiphon.errors import HeaderMismatch

RawHeaders: TypeAlias = dict[bytes, bytes]
"""Headers by lower-case name, as in ASGI."""

VERSION = b"mcp-protocol-version"
METHOD = b"mcp-method"
NAME = b"mcp-name"
PARAM = b"mcp-param-"

_PREFIX = "=?base64?"
_SUFFIX = "?="
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?\Z")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")
_SAFE_INTEGER = 2**53 - 1


def encode_value(value: str) -> str:
    """Encode a string as a header value: in Base64 with the sentinel where plain ASCII cannot express it."""
    if value == "" or (_PLAIN.match(value) and not (value.startswith(_PREFIX) and value.endswith(_SUFFIX))):
        return value
    return f"{_PREFIX}{binascii.b2a_base64(value.encode(), newline=False).decode()}{_SUFFIX}"


def decode_value(raw: bytes, header: str) -> str:
    """Decode a header value; raise HeaderMismatch if it is not valid."""
    value = raw.strip(b" \t").decode("latin-1")
    if value and not _PLAIN.match(value):
        raise HeaderMismatch(f"Header mismatch: {header} contains characters that a header may not carry")
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    try:
        return binascii.a2b_base64(value[len(_PREFIX) : -len(_SUFFIX)], strict_mode=True).decode()
    except ValueError:
        raise HeaderMismatch(f"Header mismatch: {header} is not valid Base64 of UTF-8 text") from None


def check_equal(raw: bytes | None, expected: str, header: str) -> None:
    """Raise HeaderMismatch unless the header is present and equal to the body's value."""
    if raw is None:
        raise HeaderMismatch(f"Header mismatch: the {header} header is missing")
    if expected.isascii() and expected.isprintable() and raw == expected.encode() and not raw.startswith(b"=?"):
        return
    said = decode_value(raw, header)
    if said != expected:
        raise HeaderMismatch(f"Header mismatch: {header} header value {said!r} does not match body value {expected!r}")


def check_version(raw: bytes | None, expected: object, spoken: str) -> None:
    """Raise HeaderMismatch if the version header is missing or differs from the body; white space does not count."""
    if raw is None:
        raise HeaderMismatch(
            f"Header mismatch: the MCP-Protocol-Version header is missing (this server speaks {spoken})"
        )
    if isinstance(expected, str) and raw.strip() != expected.encode(errors="replace"):
        raise HeaderMismatch(
            f"Header mismatch: MCP-Protocol-Version {raw.decode('latin-1')!r} does not match _meta {expected!r}"
        )


def check_method(raw: bytes | None, expected: str) -> None:
    """Do the same for ``Mcp-Method``, which is never encoded."""
    if raw is None:
        raise HeaderMismatch("Header mismatch: the Mcp-Method header is missing")
    if raw.strip(b" \t") != expected.encode(errors="replace"):
        raise HeaderMismatch(
            f"Header mismatch: Mcp-Method header value {raw.decode('latin-1')!r} does not match body value {expected!r}"
        )


class HeaderParam(NamedTuple):
    """One tool parameter that is sent in a header as well."""

    header: str
    key: bytes
    path: tuple[str, ...]
    type: Literal["string", "integer", "boolean"]


def header_params(schema: dict[str, Any]) -> tuple[HeaderParam, ...]:
    """Return the ``x-mcp-header`` annotations of an input schema; raise ValueError naming one that is not allowed.

    server/tools, x-mcp-header: a non-empty token, unique without regard to case, on a string, integer or boolean that
    is reached through ``properties`` alone.
    """
    found = tuple(_annotated(schema))
    if _count_annotations(schema) != len(found):
        raise ValueError("x-mcp-header is only allowed on properties that are reached through 'properties' alone")
    names = [param.header.lower() for param in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"x-mcp-header {name!r} is used twice (header names ignore case)")
    return found


def _annotated(schema: dict[str, Any]) -> list[HeaderParam]:
    found: list[HeaderParam] = []
    # A list instead of recursion: a schema may be deeper than Python's stack.
    left: list[tuple[tuple[str, ...], dict[str, Any]]] = [((), schema)]
    while left:
        path, node = left.pop()
        if path and "x-mcp-header" in node:
            found.append(_param(node, path))
        properties = node.get("properties")
        if isinstance(properties, dict):
            below = [((*path, str(key)), value) for key, value in properties.items() if isinstance(value, dict)]
            left += reversed(below)
    return found


def _param(schema: dict[str, Any], path: tuple[str, ...]) -> HeaderParam:
    name, type_ = schema["x-mcp-header"], schema.get("type")
    where = ".".join(path)
    if not isinstance(name, str) or not _TOKEN.match(name):
        raise ValueError(f"x-mcp-header of {where!r} must be a non-empty HTTP token, got {name!r}")
    if type_ != "string" and type_ != "integer" and type_ != "boolean":  # noqa: PLR1714 -- it may be a list
        raise ValueError(f"x-mcp-header of {where!r} needs a string, integer or boolean, got type {type_!r}")
    return HeaderParam(f"Mcp-Param-{name}", PARAM + name.lower().encode(), path, type_)


def _count_annotations(schema: object) -> int:
    count = 0
    left: list[Any] = [schema]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            # A property named "x-mcp-header" holds a schema, an annotation holds a name.
            count += "x-mcp-header" in node and not isinstance(node["x-mcp-header"], dict)
            left += node.values()
        elif isinstance(node, list):
            left += node
    return count


def check_params(params: tuple[HeaderParam, ...], arguments: dict[str, Any], headers: RawHeaders) -> None:
    """Raise HeaderMismatch unless every mirrored argument equals its header (Server Behavior for Custom Headers)."""
    for param in params:
        value = _at(arguments, param.path)
        raw = headers.get(param.key)
        if value is None:
            if raw is not None:
                raise HeaderMismatch(f"Header mismatch: {param.header} is set, but the body has no such value")
            continue
        if raw is None:
            raise HeaderMismatch(f"Header mismatch: the {param.header} header is missing")
        said = decode_value(raw, param.header)
        if not _same(said, value, param.type):
            raise HeaderMismatch(f"Header mismatch: {param.header} header value {said!r} does not match the body")


def encode_params(params: tuple[HeaderParam, ...], arguments: dict[str, Any]) -> dict[str, str]:
    """Return the headers that a client sends with these arguments."""
    sent: dict[str, str] = {}
    for param in params:
        value = _at(arguments, param.path)
        if value is not None:
            text = ("true" if value else "false") if isinstance(value, bool) else str(value)
            sent[param.header] = encode_value(text)
    return sent


def _at(arguments: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if type(arguments) is not dict:
            return None
        arguments = arguments.get(key)
    return arguments


def _same(said: str, value: object, type_: str) -> bool:
    if type_ == "boolean" or isinstance(value, bool):
        return isinstance(value, bool) and said == ("true" if value else "false")
    if type_ == "integer" and isinstance(value, int | float):
        # Server Validation: integers are compared as numbers ("42.0" is 42).
        return _NUMBER.match(said) is not None and float(said) == value and abs(value) <= _SAFE_INTEGER
    return said == value
