"""Hearing: what a server says besides its messages, as far as it comes to the ears of this process.

A server in this process logs; one in a process of its own may print to standard output what is no message.
"""

import logging
from contextvars import ContextVar
from typing import Final

_BEGINS: Final = "the server wrote a line that is no message"


class Heard:
    """What was heard of one server so far."""

    def __init__(self) -> None:
        self.stray: list[str] = []
        """Lines on standard output that are no messages."""
        self.log: list[str] = []
        """Warnings and errors that were logged here."""


_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


class _Ear(logging.Handler):
    """Keeps what is logged for the server that it belongs to."""

    def emit(self, record: logging.LogRecord) -> None:
        heard = _heard.get()
        if heard is None:
            return
        if str(record.msg).startswith(_BEGINS):
            heard.stray.append(_text(record.args))
        else:
            heard.log.append(self.format(record))


def listen() -> Heard:
    """An ear for the server that is started next by this task, and for the calls that it makes from here on."""
    log = logging.getLogger("antiphon")
    if not any(isinstance(handler, _Ear) for handler in log.handlers):
        log.addHandler(_Ear(logging.WARNING))
    heard = Heard()
    # A link's callbacks run in the context in which it was opened; a server in this process runs in that of its caller.
    _heard.set(heard)
    return heard


def attend(heard: Heard) -> None:
    """Whatever this task calls from here on belongs to that server."""
    _heard.set(heard)


def _text(arguments: object) -> str:
    first = arguments[0] if isinstance(arguments, tuple) and arguments else arguments
    return first.decode(errors="replace").strip() if isinstance(first, bytes) else str(first)
