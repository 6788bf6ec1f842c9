"""The states of an HTTP/1.1 connection: what is read next, and what is written next.

An event is a table: from each state in which it may happen to the state that follows. So a connection looks its next
state up, ``BEGIN[state]``, and an event that may not happen in a state raises KeyError.
"""

from enum import IntEnum, auto
from typing import Final, TypeAlias


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


ReadEvent: TypeAlias = dict[Reading, Reading]
WriteEvent: TypeAlias = dict[Writing, Writing]

# Globals, since an enum's attribute takes three times as long to look up.
NEW, IDLE, HEAD, BODY, LAST_BODY, DONE, CUT, STOPPED = Reading
FREE, ANSWERING, LINGERING, CLOSED = Writing

_ENDED: Final = {DONE: DONE, CUT: CUT, STOPPED: STOPPED}

# The parser reports all that one read brought, so requests may begin and complete after the end.
BEGIN: Final[ReadEvent] = {NEW: HEAD, IDLE: HEAD, **_ENDED}
"""The first byte of a request."""
TAKE: Final[ReadEvent] = {HEAD: BODY}
"""A head is complete, and the application gets the request."""
TAKE_LAST: Final[ReadEvent] = {HEAD: LAST_BODY}
"""The same, and the client says that it is its last."""
# The parser completes a request for another protocol after its head.
COMPLETE: Final[ReadEvent] = {HEAD: IDLE, BODY: IDLE, LAST_BODY: DONE, **_ENDED}
"""The last byte of a request."""
END: Final[ReadEvent] = {IDLE: DONE, HEAD: CUT, BODY: LAST_BODY, LAST_BODY: LAST_BODY, **_ENDED}
"""The response under way is the connection's last."""
REFUSE: Final[ReadEvent] = {**dict.fromkeys(Reading, CUT), STOPPED: STOPPED}
"""Nothing further can be read, or is worth reading."""
STOP: Final[ReadEvent] = dict.fromkeys(Reading, STOPPED)
"""The server stops, or the connection is lost."""

START: Final[WriteEvent] = {FREE: ANSWERING}
FINISH: Final[WriteEvent] = {ANSWERING: FREE}
LINGER: Final[WriteEvent] = {FREE: LINGERING}
CLOSE: Final[WriteEvent] = dict.fromkeys(Writing, CLOSED)

READING: Final = (BEGIN, TAKE, TAKE_LAST, COMPLETE, END, REFUSE, STOP)
WRITING: Final = (START, FINISH, LINGER, CLOSE)
ARRIVING: Final = frozenset((HEAD, BODY, LAST_BODY))
"""States in which a part of a request has arrived."""
ENDED: Final = frozenset((DONE, CUT, STOPPED))
"""States in which nothing is read."""
ENDING: Final = ENDED | {LAST_BODY}
"""States in which no further request is taken."""
