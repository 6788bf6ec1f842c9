"""A closed-loop HTTP load generator: N keep-alive connections, one request under way on each, raw sockets."""

import gc
import select
import socket
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, repeat
from time import perf_counter
from typing import TypeAlias

Poll: TypeAlias = Callable[[float], list[tuple[int, int]]]

OK = b"HTTP/1.1 200"
STALL = 10.0  # a server that says nothing for this long has failed


class LoadError(Exception):
    """The server gave a wrong answer, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One exchange to repeat: the bytes to send, and what every answer must contain."""

    port: int
    request: bytes
    marker: bytes
    requests: tuple[bytes, ...] = ()
    """What each connection sends, where they may not all send the same."""
    turns: tuple[bytes, ...] = ()
    """What each connection sends in turn, over and over, instead: the legs of a conversation."""
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    requests: int
    seconds: float
    answered: int
    """All answers, also those that came after the end: what the server's processor time was spent on."""
    p50_ms: float
    p99_ms: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


def exchange(load: Load) -> bytes:
    """One request and its whole answer, checked."""
    with socket.create_connection(("127.0.0.1", load.port), timeout=STALL) as connection:
        connection.sendall(load.request)
        answer = b""
        while not _is_complete(answer):
            received = connection.recv(65536)
            if not received:
                raise LoadError(f"the connection closed after {answer[:500]!r}")
            answer += received
    _check(answer, load.marker, b"HTTP/1.1 %d" % load.status)
    return answer


def drive(load: Load, *, connections: int, seconds: float) -> Measure:
    """Keep `connections` requests under way for `seconds`, and count the answers."""
    usual_length = len(exchange(load))
    with _connected(load.port, connections) as sockets:
        return _drive(load, sockets, usual_length, seconds)


def burst(load: Load, *, connections: int) -> Measure:
    """Send one request on each connection, all at once, and wait for all the answers."""
    with _connected(load.port, connections) as sockets:
        poll, readable = _poller(sockets)
        waiting = dict.fromkeys(sockets, b"")
        latencies = array("d")
        start = heard = perf_counter()
        for each in sockets.values():
            _send(each, load.request)
        while waiting:
            if not (numbers := [number for number, event in poll(0) if event & readable and number in waiting]):
                if perf_counter() - heard > STALL:
                    raise LoadError(f"no answer within {STALL:.0f} s")
                continue
            heard = perf_counter()
            for number in numbers:
                waiting[number] += _some(sockets[number].recv(65536))
                if _is_complete(waiting[number]):
                    _check(waiting.pop(number), load.marker)
                    latencies.append(perf_counter() - start)
        return _measure(latencies, perf_counter() - start)


@contextmanager
def _connected(port: int, connections: int) -> Generator[dict[int, socket.socket]]:
    sockets = [_connect(port) for _ in range(connections)]
    gc.collect()
    gc.disable()
    try:
        yield {each.fileno(): each for each in sockets}
    finally:
        gc.enable()
        for each in sockets:
            each.close()


def hold(load: Load, *, connections: int, until: bytes) -> list[socket.socket]:
    """Open a stream on each of so many connections, and return them once each has said ``until``."""
    held = []
    for _, request in zip(range(connections), load.requests or repeat(load.request), strict=False):
        connection = socket.create_connection(("127.0.0.1", load.port), timeout=STALL)
        connection.sendall(request)
        held.append(connection)
    for connection in held:
        heard = b""
        while until not in heard:
            heard += _some(connection.recv(65536))
        if not heard.startswith(OK):
            raise LoadError(f"expected a stream, got {heard[:600]!r}")
    return held


def _drive(load: Load, sockets: dict[int, socket.socket], usual_length: int, seconds: float) -> Measure:
    marker = load.marker
    requests = _requests(load, sockets)
    poll, readable = _poller(sockets)
    receive = {number: each.recv for number, each in sockets.items()}
    sent_at = dict.fromkeys(sockets, 0.0)
    partial: dict[int, bytes] = {}
    latencies = array("d")
    record = latencies.append
    clock = perf_counter

    start = clock()
    end = start + seconds
    for number, each in sockets.items():
        sent_at[number] = clock()
        _send(each, next(requests[number]))
    now = start
    while now < end:
        # Poll without sleeping: waking the generator would add to the measured time, the more so the quicker the
        # server is.
        while not (numbers := [number for number, event in poll(0) if event & readable]):
            if clock() - now > STALL:
                raise LoadError(f"no answer within {STALL:.0f} s")
        for number in numbers:
            data = receive[number](65536)
            # Answers to one request differ only in their date, so a whole one is recognised by its length;
            # any other length takes the path that reads the framing.
            if len(data) != usual_length or number in partial:
                data = partial.pop(number, b"") + _some(data)
                if not _is_complete(data):
                    partial[number] = data
                    continue
            if not data.startswith(OK) or marker not in data:
                _check(data, marker)
            now = clock()
            record(now - sent_at[number])
            sent_at[number] = now
            _send(sockets[number], next(requests[number]))
    if not latencies:
        raise LoadError(f"no answer within {seconds:g} s")
    took = now - start
    return _measure(latencies, took, late=_drain(sockets, partial, poll, readable))


def _drain(sockets: dict[int, socket.socket], partial: dict[int, bytes], poll: Poll, readable: int) -> int:
    """Wait for what is under way on each connection, so that the server is idle when another one has its turn."""
    waiting, end = set(sockets), perf_counter() + STALL
    while waiting and perf_counter() < end:
        for number, event in poll(0.1):
            if event & readable and number in waiting:
                data = partial.pop(number, b"") + _some(sockets[number].recv(65536))
                if _is_complete(data):
                    waiting.discard(number)
                else:
                    partial[number] = data
    return len(sockets) - len(waiting)


def _requests(load: Load, sockets: Iterable[int]) -> dict[int, Iterator[bytes]]:
    """What each connection sends next; conversations begin at different legs, so that all legs are under way."""
    if load.turns:
        turns = load.turns
        return {number: cycle(turns[at % len(turns) :] + turns[: at % len(turns)]) for at, number in enumerate(sockets)}
    each = load.requests or repeat(load.request)
    return {number: repeat(request) for number, request in zip(sockets, each, strict=False)}


def _send(connection: socket.socket, request: bytes) -> None:
    sent = connection.send(request)
    if sent != len(request):  # a large one: wait until the server has taken it
        connection.settimeout(STALL)
        connection.sendall(request[sent:])
        connection.setblocking(False)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=STALL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


def _poller(sockets: dict[int, socket.socket]) -> tuple[Poll, int]:
    if hasattr(select, "epoll"):
        epoll = select.epoll()
        for number in sockets:
            epoll.register(number, select.EPOLLIN)
        return epoll.poll, select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR
    waiting = select.poll()
    for number in sockets:
        waiting.register(number, select.POLLIN)
    return (lambda seconds: waiting.poll(seconds * 1000)), select.POLLIN | select.POLLHUP | select.POLLERR


def _some(data: bytes) -> bytes:
    if not data:
        raise LoadError("the server closed a connection that was to be kept alive")
    return data


def _is_complete(answer: bytes) -> bool:
    """Whether the framing (a length, or chunks with an end) says that this answer is whole."""
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        return False
    fields = head.lower()
    if b"\r\ntransfer-encoding: chunked" in fields:
        return body.endswith(b"0\r\n\r\n")
    _, found, rest = fields.partition(b"\r\ncontent-length:")
    if not found:
        raise LoadError(f"neither a length nor chunks in {head!r}")
    return len(body) >= int(rest.split(b"\r\n", 1)[0])


def _check(answer: bytes, marker: bytes, status: bytes = OK) -> None:
    if not answer.startswith(status) or marker not in answer:
        raise LoadError(f"expected {status.decode()} with {marker!r}, got {answer[:600]!r}")


def _measure(latencies: "array[float]", seconds: float, late: int = 0) -> Measure:
    ordered = sorted(latencies)
    return Measure(
        requests=len(ordered),
        answered=len(ordered) + late,
        seconds=seconds,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
    )
