"""The states of an HTTP/1.1 connection: ``READING`` says what may arrive next, ``WRITING`` what may be sent next.

A connection looks its next state up: ``READING[state][event]``. A transition that is not in its table raises KeyError.
"""

from enum import IntEnum, auto
from typing import Final


# An IntEnum, since a plain Enum runs Python code for each look-up in a dict.
class Reading(IntEnum):
    """What is read of the client."""

    NEW = auto()
    """Nothing has arrived yet."""
    IDLE = auto()
    """The last request has arrived in full, and the next has not begun."""
    HEAD = auto()
    """A head is arriving."""
    BODY = auto()
    """A body is arriving."""
    LAST_BODY = auto()
    """A body is arriving, and no request is read after it."""
    DONE = auto()
    """The last request has arrived in full. What follows is ignored."""
    CUT = auto()
    """What arrives is ignored, and may be the rest of a request: the client is given time to read the responses."""
    STOPPED = auto()
    """The server stops, or the connection is lost: what arrives is ignored, and the client given no more time."""


class ReadEvent(IntEnum):
    BEGIN = auto()
    """The first byte of a request."""
    TAKE = auto()
    """A head is complete, and the application gets the request."""
    TAKE_LAST = auto()
    """The same, and the client says that it is its last."""
    COMPLETE = auto()
    """The last byte of a request."""
    END = auto()
    """The response under way is the connection's last."""
    REFUSE = auto()
    """Nothing further can be read, or is worth reading."""
    STOP = auto()
    """The server stops, or the connection is lost."""


class Writing(IntEnum):
    """What is sent to the client."""

    FREE = auto()
    """No response is due."""
    ANSWERING = auto()
    """The application answers the current exchange; others may be queued behind it."""
    LINGERING = auto()
    """Our side is closed, and the client's is not."""
    CLOSED = auto()
    """Both sides are closed."""


class WriteEvent(IntEnum):
    START = auto()
    FINISH = auto()
    LINGER = auto()
    CLOSE = auto()


# Globals, since an enum's attribute takes three times as long to look up.
NEW, IDLE, HEAD, BODY, LAST_BODY, DONE, CUT, STOPPED = Reading
BEGIN, TAKE, TAKE_LAST, COMPLETE, END, REFUSE, STOP = ReadEvent
FREE, ANSWERING, LINGERING, CLOSED = Writing
START, FINISH, LINGER, CLOSE = WriteEvent

READING: Final[dict[Reading, dict[ReadEvent, Reading]]] = {
    NEW: {BEGIN: HEAD, REFUSE: CUT, STOP: STOPPED},
    IDLE: {BEGIN: HEAD, END: DONE, REFUSE: CUT, STOP: STOPPED},
    # The parser completes a request for another protocol after its head.
    HEAD: {TAKE: BODY, TAKE_LAST: LAST_BODY, COMPLETE: IDLE, END: CUT, REFUSE: CUT, STOP: STOPPED},
    BODY: {COMPLETE: IDLE, END: LAST_BODY, REFUSE: CUT, STOP: STOPPED},
    LAST_BODY: {COMPLETE: DONE, END: LAST_BODY, REFUSE: CUT, STOP: STOPPED},
    # The parser reports all that one read brought, also after the end.
    DONE: {BEGIN: DONE, COMPLETE: DONE, END: DONE, REFUSE: CUT, STOP: STOPPED},
    CUT: {BEGIN: CUT, COMPLETE: CUT, END: CUT, REFUSE: CUT, STOP: STOPPED},
    STOPPED: {BEGIN: STOPPED, COMPLETE: STOPPED, END: STOPPED, REFUSE: STOPPED, STOP: STOPPED},
}
WRITING: Final[dict[Writing, dict[WriteEvent, Writing]]] = {
    FREE: {START: ANSWERING, LINGER: LINGERING, CLOSE: CLOSED},
    ANSWERING: {FINISH: FREE, CLOSE: CLOSED},
    LINGERING: {CLOSE: CLOSED},
    CLOSED: {CLOSE: CLOSED},
}
ARRIVING: Final = frozenset((HEAD, BODY, LAST_BODY))
"""States in which a part of a request has arrived."""
ENDED: Final = frozenset((DONE, CUT, STOPPED))
"""States in which nothing is read."""
ENDING: Final = ENDED | {LAST_BODY}
"""States in which no further request is taken."""
