"""Every error, one tree.

::

    Exception
    └── AntiphonError
        ├── ProtocolError           goes to the peer as a JSON-RPC error: code, message, data, HTTP status
        │   ├── ParseError              -32700  the bytes are not JSON
        │   ├── InvalidRequest          -32600  the JSON is not a request
        │   ├── MethodNotFound          -32601  no such method here
        │   ├── InvalidParams           -32602  the request's parameters are wrong
        │   │   ├── ResourceNotFound            nothing under that URI
        │   │   └── StateRefused                a requestState that this server did not seal for this call
        │   ├── InternalError           -32603  our fault; the log says why
        │   ├── HeaderMismatch          -32020  the HTTP headers contradict the body
        │   ├── MissingCapability       -32021  the client did not declare what the call needs
        │   │   └── AnswerNeeded                a person has to answer first, elsewhere
        │   ├── UnsupportedVersion      -32022  a protocol revision that is not spoken here
        │   └── Unauthorized            -32600  a token is missing or bad (401), or lacks a scope (403)
        ├── ToolError               goes to the model as a result with isError: a handler raises it
        │   └── UserRefused             the user declined or cancelled, and the handler needed a yes
        ├── UnstableQuestion        a handler's question changes on every round, so no answer can ever fit it
        ├── ConfigUnusable          a configuration file is missing or broken, or has no such server
        ├── StoreError              a store that cannot be used (in antiphon.stores)
        ├── TicketClosed            a call in an inbox that takes no answer any more
        │   ├── AlreadyAnswered         another person or process was first
        │   ├── TicketExpired           the time to answer is over
        │   ├── TicketWithdrawn         the question was taken back
        │   └── TicketUnknown           there is no such call, or none any more
        ├── NotAllowed              this person may not answer this call
        └── CallFailed              a client's call that came to nothing
            ├── Refused                 the server said no: a JSON-RPC error, or an HTTP status
            ├── PeerBroken              the server broke the protocol: what it sent cannot be used
            ├── CannotAnswer            a question that this client has no handler for, or no valid answer to
            ├── RoundsExceeded          the server kept asking beyond the limit
            ├── CallTimeout             too long: says whether the server or a person was waited for
            ├── Disconnected            the connection ended, or never was
            ├── SignInFailed            the server wants a token, and none could be got
            │   └── LoginNeeded             a person has to sign in first (in antiphon.auth); carries the Login
            └── InputNeeded             the call waits for answers (a client with auto=False); carries the Pending

    BaseException
    └── CannotAsk                   the client cannot be asked; outside Exception, so that a broad
                                    ``except Exception`` never turns "could not ask" into "yes"
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

__all__ = [
    "AlreadyAnswered",
    "AnswerNeeded",
    "AntiphonError",
    "CallFailed",
    "CallTimeout",
    "CannotAnswer",
    "CannotAsk",
    "ConfigUnusable",
    "Disconnected",
    "HeaderMismatch",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "MissingCapability",
    "NotAllowed",
    "ParseError",
    "PeerBroken",
    "ProtocolError",
    "Refused",
    "ResourceNotFound",
    "RoundsExceeded",
    "SignInFailed",
    "StateRefused",
    "TicketClosed",
    "TicketExpired",
    "TicketUnknown",
    "TicketWithdrawn",
    "ToolError",
    "Unauthorized",
    "UnstableQuestion",
    "UnsupportedVersion",
    "UserRefused",
]


class AntiphonError(Exception):
    """What this library raises on purpose."""


class ProtocolError(AntiphonError):
    """A JSON-RPC error. The class gives the code; ``status`` is what HTTP shows beside it.

    ``headers`` go with it over HTTP, as long as nothing else was sent.
    """

    code: ClassVar[int] = -32603
    default_status: ClassVar[int] = 200

    def __init__(
        self,
        message: str,
        *,
        data: object = None,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.data = data
        self.status = self.default_status if status is None else status
        self.headers: Mapping[str, str] = headers or {}


class ParseError(ProtocolError):
    """The bytes are not JSON."""

    code = -32700
    default_status = 400


class InvalidRequest(ProtocolError):
    """The JSON is not a request."""

    code = -32600
    default_status = 400


class MethodNotFound(ProtocolError):
    """No such method here."""

    code = -32601
    default_status = 404


class InvalidParams(ProtocolError):
    """The request's parameters are wrong."""

    code = -32602


class ResourceNotFound(InvalidParams):
    """2026-07-28, server/resources, Error Handling: -32602 with the URI in ``data``."""

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found", data={"uri": uri})


class StateRefused(InvalidParams):
    """The one answer to every bad requestState, whatever its fault: a prober learns nothing."""

    def __init__(self) -> None:
        super().__init__("Invalid or expired requestState")


class InternalError(ProtocolError):
    """Our fault; the log says why."""

    code = -32603

    def __init__(self, message: str = "Internal error") -> None:
        super().__init__(message)


class HeaderMismatch(ProtocolError):
    """The HTTP headers contradict the body."""

    code = -32020
    default_status = 400


class MissingCapability(ProtocolError):
    """The client did not declare what the call needs."""

    code = -32021
    default_status = 400

    def __init__(self, required: Mapping[str, object]) -> None:
        super().__init__(
            "The client did not declare a capability that this call needs: " + ", ".join(_paths(required)),
            data={"requiredCapabilities": required},
        )
        self.required = required


class AnswerNeeded(MissingCapability):
    """A person has to answer first, elsewhere, since the client did not declare that it can ask; the text says where.

    The same request goes on from there once they have.
    """

    def __init__(self, message: str, *, required: Mapping[str, object]) -> None:
        super().__init__(required)
        self.args = (message,)
        self.message = message


class UnsupportedVersion(ProtocolError):
    """A protocol revision that is not spoken here."""

    code = -32022
    default_status = 400

    def __init__(self, requested: str, supported: list[str]) -> None:
        super().__init__(
            f"Unsupported protocol version {requested!r}; supported: {', '.join(supported)}",
            data={"supported": supported, "requested": requested},
        )


class Unauthorized(ProtocolError):
    """A token is missing or bad (HTTP status 401), or lacks a scope (403); ``challenge`` says what is needed."""

    code = -32600
    default_status = 401

    def __init__(self, message: str, *, challenge: str, status: int | None = None, data: object = None) -> None:
        headers = {"WWW-Authenticate": challenge, "Cache-Control": "no-store"}
        super().__init__(message, data=data, status=status, headers=headers)
        self.challenge = challenge


class ToolError(AntiphonError):
    """An error that the model may read and act on: its text is shown to the peer."""


class UserRefused(ToolError):
    """The user said no, and the handler asked for the answer with ``unwrap()``."""

    def __init__(self, action: Literal["decline", "cancel"], message: str | None = None) -> None:
        super().__init__(message or f"The user {'declined' if action == 'decline' else 'cancelled'} the request.")
        self.action = action


class UnstableQuestion(AntiphonError):
    """A recorded answer belongs to the exact question; one that never repeats can never be answered."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"The question {key!r} changes on every round, so its answer never fits. Keep the clock and random values"
            " out of questions, or take them from a step, which repeats itself: ctx.now(), ctx.random() or ctx.step()."
        )
        self.key = key


class ConfigUnusable(AntiphonError):
    """A configuration file is missing or broken, or has no usable server of that name."""


class TicketClosed(AntiphonError):
    """A call in an inbox that takes no answer any more."""

    def __init__(self, message: str, *, ticket: str) -> None:
        super().__init__(message)
        self.ticket = ticket


class AlreadyAnswered(TicketClosed):
    """Another person or process was first; ``by`` is who, and ``at`` when, in seconds since the epoch."""

    def __init__(self, ticket: str, by: str | None, at: float | None) -> None:
        super().__init__(f"This question was already answered{f' by {by}' if by else ''}", ticket=ticket)
        self.by = by
        self.at = at


class TicketExpired(TicketClosed):
    """The time to answer is over."""

    def __init__(self, ticket: str) -> None:
        super().__init__("The time to answer this question is over", ticket=ticket)


class TicketWithdrawn(TicketClosed):
    """The question was taken back."""

    def __init__(self, ticket: str) -> None:
        super().__init__("This question was withdrawn", ticket=ticket)


class TicketUnknown(TicketClosed):
    """There is no such call in the inbox, or none any more."""

    def __init__(self, ticket: str) -> None:
        super().__init__(f"There is no call {ticket!r} in this inbox, or it was forgotten since", ticket=ticket)


class NotAllowed(AntiphonError):
    """This person may not answer this call; ``who`` may."""

    def __init__(self, ticket: str, who: str) -> None:
        super().__init__(f"Only {who} may answer this question")
        self.ticket = ticket
        self.who = who


class CallFailed(AntiphonError):
    """A client's call that came to nothing."""


class Refused(CallFailed):
    """The server said no: with a JSON-RPC error, with an HTTP status, or with both."""

    def __init__(
        self,
        message: str,
        *,
        code: int | None = None,
        data: object = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.data = data
        self.status = status
        self.retry_after = retry_after


class PeerBroken(CallFailed):
    """The server broke the protocol: what it sent cannot be used."""


class CannotAnswer(CallFailed):
    """A question that this client has no handler for, or no valid answer to."""

    def __init__(self, message: str, *, key: str) -> None:
        super().__init__(message)
        self.key = key


class RoundsExceeded(CallFailed):
    """The server kept asking beyond the limit."""

    code = "INPUT_REQUIRED_ROUNDS_EXCEEDED"

    def __init__(self, rounds: int) -> None:
        super().__init__(f"The server asked for input {rounds} times and still has no result")
        self.rounds = rounds


class CallTimeout(CallFailed):
    """Too long. The time a person takes does not count towards a call's timeout; it has a limit of its own."""

    def __init__(self, waiting_for: Literal["server", "person"], seconds: float, missing: str | None = None) -> None:
        what = "The server did not answer" if waiting_for == "server" else "The question was not answered"
        super().__init__(f"{missing or what} within {seconds:g} seconds")
        self.waiting_for = waiting_for
        self.seconds = seconds


class Disconnected(CallFailed):
    """The connection ended before the answer came, or could not be made."""


class SignInFailed(CallFailed):
    """The server wants a token, and none could be got. The text names the step and the host, and no secret."""

    def __init__(self, message: str, *, error: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        """OAuth's word for it, such as ``access_denied``, where the authorization server gave one."""


class CannotAsk(BaseException):
    """The client cannot be asked: it declared no such capability, or there is no way back to it."""

    def __init__(self, message: str, *, required: Mapping[str, object]) -> None:
        super().__init__(message)
        self.message = message
        self.required = required


def _paths(tree: Mapping[str, object], prefix: str = "") -> list[str]:
    found: list[str] = []
    for key, below in tree.items():
        path = f"{prefix}{key}"
        found += _paths(below, f"{path}.") if isinstance(below, Mapping) and below else [path]
    return found
