"""A closed-loop HTTP load generator: N keep-alive connections, one request under way on each, raw sockets."""

import gc
import select
import socket
from array import array
from dataclasses import dataclass
from time import perf_counter

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
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    requests: int
    seconds: float
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
    sockets = [_connect(load.port) for _ in range(connections)]
    gc.collect()
    gc.disable()
    try:
        return _drive(load, {each.fileno(): each for each in sockets}, usual_length, seconds)
    finally:
        gc.enable()
        for each in sockets:
            each.close()


def _drive(load: Load, sockets: dict[int, socket.socket], usual_length: int, seconds: float) -> Measure:
    marker = load.marker
    requests = dict(zip(sockets, load.requests or [load.request] * len(sockets), strict=True))
    poll, readable = _poller(sockets)
    receive = {number: each.recv for number, each in sockets.items()}
    send = {number: each.send for number, each in sockets.items()}
    sent_at = dict.fromkeys(sockets, 0.0)
    partial: dict[int, bytes] = {}
    latencies = array("d")
    record = latencies.append
    clock = perf_counter

    start = clock()
    end = start + seconds
    for number in sockets:
        sent_at[number] = clock()
        send[number](requests[number])
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
            if send[number](requests[number]) != len(requests[number]):
                raise LoadError("the request did not fit into the socket's buffer")
    return _measure(latencies, now - start)


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=STALL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setblocking(False)
    return connection


def _poller(sockets: dict[int, socket.socket]):
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


def _measure(latencies: "array[float]", seconds: float) -> Measure:
    ordered = sorted(latencies)
    return Measure(
        requests=len(ordered),
        seconds=seconds,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000,
    )
