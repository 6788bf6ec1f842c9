"""The address that HTTP is served at, and the sockets that listen there."""

import errno
import socket
from typing import Final

import click
import msgspec

BACKLOG: Final = 2048
EVERYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 -- recognised, not bound


class Address(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    path: str = "/mcp"

    @property
    def is_everywhere(self) -> bool:
        return self.host in EVERYWHERE

    @property
    def names(self) -> list[str]:
        """The Host headers that this address allows by itself: its own name, none if it is every address."""
        return [] if self.is_everywhere else [self._host]

    def url(self, sockets: list[socket.socket]) -> str:
        port: int = sockets[0].getsockname()[1]
        return f"http://{self._host}:{port}{self.path}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def listen(address: Address) -> list[socket.socket]:
    """Listen on every address of the host. Clients queue there while workers start."""
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError):
        raise click.ClickException(f"There is no host {address.host!r}: see --host") from None
    sockets: list[socket.socket] = []
    refusal: OSError | None = None
    for family, host in dict.fromkeys((entry[0], str(entry[4][0])) for entry in found):
        # With --port 0, all addresses use the port that the first one was given.
        port: int = sockets[0].getsockname()[1] if sockets else address.port
        try:
            sockets.append(socket.create_server((host, port), family=family, backlog=BACKLOG))
        except OSError as fault:
            refusal = fault
            if fault.errno != errno.EADDRNOTAVAIL:  # such as ::1 on a machine without IPv6
                break
    if refusal is not None and (not sockets or refusal.errno != errno.EADDRNOTAVAIL):
        for opened in sockets:
            opened.close()
        raise click.ClickException(_why(address, refusal))
    for opened in sockets:
        opened.set_inheritable(True)  # for workers
    return sockets


def _why(address: Address, fault: OSError) -> str:
    if fault.errno == errno.EADDRINUSE:
        return f"Port {address.port} on {address.host} is in use: choose another with --port (0 for any free port)"
    return f"Cannot listen on port {address.port} of {address.host}: {fault.strerror}"
