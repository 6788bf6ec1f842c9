"""The Dialect: the one seam through which an earlier era enters the dispatcher and the transports."""

import logging
from typing import Any

from antiphon.errors import InternalError, ProtocolError
from antiphon.http.exchange import Receive, Send
from antiphon.server.run import Channel
from antiphon.wire import jsonrpc
from antiphon.wire.call import accept
from antiphon.wire.headers import RawHeaders
from antiphon.wire.jsonrpc import Message

log = logging.getLogger("antiphon")


class Dialect:
    """How the clients of an era speak.

    This class is revision 2026-07-28, which the dispatcher and the transports speak by themselves: it claims nothing.
    An earlier era derives from it, and ``antiphon.eras`` passes it to the transports.

    A transport finds out which dialect speaks with ``batch`` and ``claims``: over HTTP by the headers and the body, on
    a pipe by the message and what was agreed on before it. The dialect serves what it claims: ``exchange`` and
    ``serve`` over HTTP, ``takes``, ``answer`` and ``close`` on a pipe.

    The dispatcher is given a dialect with each request that is not modern. The dialect accepts the message as a Call,
    and encodes its reply or refusal. The Call brings the conversation: the dispatcher puts ``call.talk`` into the
    handler's context, and puts back what it has become. Where ``call.row.sealed`` is False, a round ends with the
    questions alone; the dialect asks them and has the call answered again.
    """

    verbs: frozenset[str] = frozenset({"POST"})
    """The HTTP methods that it serves."""

    # --- for the dispatcher ---------------------------------------------------------------------------------------

    # Attributes, so that the modern ones cost no frame of their own.
    accept = staticmethod(accept)
    encode = staticmethod(jsonrpc.encode)

    def refuse(self, message: object, fault: ProtocolError) -> tuple[int, bytes]:
        """An error's reply with its HTTP status; a plain internal error if it holds what JSON cannot say."""
        id_ = jsonrpc.id_of(message)
        try:
            return fault.status, jsonrpc.encode(jsonrpc.error(id_, fault))
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Its text as Python writes it: what JSON cannot say, a log cannot always say either.
            log.error("an error cannot be sent: code %s, message %a, data %a", fault.code, fault.message, fault.data)  # noqa: TRY400 -- a traceback may hold what a log cannot say
            return 200, jsonrpc.encode(jsonrpc.error(id_, InternalError()))

    # --- for transports -------------------------------------------------------------------------------------------

    def batch(self, body: bytes, headers: RawHeaders | None = None) -> list[Message] | None:
        """The messages of a body that holds several; None if it does not, or not in this dialect."""

    def claims(self, message: Message, headers: RawHeaders | None = None) -> bool:  # noqa: ARG002 -- the seam's signature
        """Whether a message is in this dialect; ``headers`` is None where there is no HTTP."""
        return False

    # HTTP

    def exchange(self, receive: Receive, send: Send, task: Any, accepts: Any) -> Any:
        """The exchange for a request that this dialect serves."""
        raise NotImplementedError

    async def serve(self, exchange: Any, verb: str, headers: RawHeaders, message: Any, principal: str | None) -> None:
        """Answer an HTTP request; ``message`` is None without a body, a list for a batch."""
        raise NotImplementedError

    # pipes

    def takes(self, message: Message) -> bool:
        """Take a message that needs no reply; False if it needs one."""
        raise NotImplementedError

    async def answer(self, message: Message, channel: Channel) -> bytes:
        """The reply to a request on a pipe."""
        raise NotImplementedError

    def close(self) -> None:
        """The pipe's client is gone."""


MODERN = Dialect()
