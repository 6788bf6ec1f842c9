"""What the system tells of a socket."""

import asyncio
import select


def address_of(transport: asyncio.BaseTransport, end: str) -> tuple[str, int | None] | None:
    """Return one end of a connection, ``sockname`` or ``peername``, as ASGI has it: host and port, or path and None."""
    match transport.get_extra_info(end):
        case (str(host), int(port), *_):
            return host, port
        case str(path) if path:
            return path, None
        case _:
            return None


def has_hung_up(transport: asyncio.BaseTransport) -> bool:
    """Return whether the peer has closed the connection behind bytes that are still unread; few systems can tell."""
    flag = getattr(select, "POLLRDHUP", None)
    socket = transport.get_extra_info("socket")
    if flag is None or socket is None:
        return False
    poll = select.poll()
    poll.register(socket.fileno(), flag)
    return bool(poll.poll(0))
