"""Server-sent events: messages as bytes of a stream."""

KEEP_ALIVE = b":\n\n"
"""A comment: keeps proxies from closing a quiet stream, and carries nothing."""


def event(data: bytes) -> bytes:
    return b"event: message\ndata: " + data + b"\n\n"
