"""The tokens of a server: conversations sealed at the end of a round, and taken up again with the next request."""

import logging
import os
from collections.abc import Callable

from antiphon.errors import InternalError, StateRefused
from antiphon.rounds.journal import Conversation, Journal
from antiphon.rounds.token import (
    CLOCK_SKEW,
    Codec,
    Guard,
    Opened,
    Seal,
    SealBroken,
    SignedState,
    StateTooLarge,
    binding,
    generate_key,
    guard_of,
    parse_keys,
)
from antiphon.server.run import Run
from antiphon.stores.store import Store
from antiphon.types import JsonObject
from antiphon.wire.revisions import STATE_TTL

log = logging.getLogger("antiphon")


class Tokens:
    """Seals and opens with the keys of a server: its own, those of ANTIPHON_KEYS, or one of this process."""

    def __init__(self, seal: Seal | SignedState | Codec | None, clock: Callable[[], float], name: str) -> None:
        self._clock = clock
        self._warn_of_key = False
        self._guard: Guard = guard_of(self._keyed(Seal() if seal is None else seal))
        self._audience = name if self._guard.audience is None else self._guard.audience

    @property
    def ttl(self) -> float:
        return self._guard.ttl

    @property
    def single_use(self) -> bool:
        """Whether each token is accepted once."""
        return self._guard.single_use

    async def open(self, run: Run, store: Store, *, again: bool = False) -> None:
        """Take up the conversation that a token carries; StateRefused, whatever is wrong with it.

        ``again`` accepts a token that was used.
        """
        call = run.call
        try:
            opened = self._opened(run)
            journal = Journal.unpack(opened.payload)
            if self._guard.single_use and not again:
                left = max(opened.expires - self._clock(), 0)
                if not await store.add(f"antiphon:used:{opened.id.hex()}", ttl=left + CLOCK_SKEW):
                    raise SealBroken("already used")
        except (SealBroken, ValueError) as fault:
            log.warning("requestState refused for %s %r: %s", call.method, call.name, fault)
            raise StateRefused from None
        run.brought, run.expires = opened.payload, opened.expires
        run.talk = Conversation(journal, call.params.get("inputResponses"), call.capabilities)

    def opened(self, run: Run) -> bytes:
        """What `sealed` put into the state that a request brings; StateRefused, whatever is wrong with it."""
        try:
            return self._opened(run).payload
        except SealBroken as fault:
            log.warning("requestState refused for %s %r: %s", run.call.method, run.call.name, fault)
            raise StateRefused from None

    def _opened(self, run: Run) -> Opened:
        token = run.call.params["requestState"]
        if type(token) is not str:
            raise SealBroken("malformed")
        return self._guard.open(token, bound_to=self.bound(run), now=self._clock())

    def sealed(self, run: Run, payload: bytes, ttl: float | None = None) -> str:
        """A token that opens for the same call and client; StateTooLarge if it is too long."""
        if self._warn_of_key and run.call.headers is not None:
            self._warn_of_key = False
            log.warning(
                "questions are sealed with a key of this process alone: a restart or a second instance cannot continue"
                " them. Set ANTIPHON_KEYS (`antiphon keygen` prints a key)."
            )
        bound = self.bound(run)
        return self._guard.seal(payload, bound_to=bound, now=self._clock(), ttl=ttl, entropy=os.urandom(12))

    def close(self, run: Run) -> JsonObject:
        """The result that ends a round: the questions, and the journal under seal."""
        talk = run.conversation()
        result = talk.close()
        if not run.call.row.sealed:
            return result
        limits = [question.ttl for question in talk.pending.values() if question.ttl is not None]
        ttl = min(limits) if limits else self._guard.ttl
        try:
            result["requestState"] = self.sealed(run, talk.journal.pack(readable=self._guard.readable), ttl)
        except StateTooLarge as fault:
            log.error("%s: the conversation outgrew its token: %s; %s", run, fault, talk.journal.weights())  # noqa: TRY400 -- the weights tell where it grew, a traceback does not
            raise InternalError("The conversation has grown too large to continue") from None
        result["_meta"] = {STATE_TTL: ttl}
        return result

    def bound(self, run: Run) -> bytes:
        """A digest of the call and the caller, which a token belongs to."""
        call = run.call
        return binding(
            method=call.method,
            name=call.name if call.outer is None else call.outer,
            arguments=call.params.get("arguments") if call.arguments is None else call.arguments,
            audience=self._audience,
            principal=call.principal,
        )

    def _keyed(self, seal: Seal | SignedState | Codec) -> Seal | SignedState | Codec:
        if not isinstance(seal, Seal) or seal.has_keys:
            return seal
        from_environment = os.environ.get("ANTIPHON_KEYS", "").strip()
        if from_environment:
            return seal.with_keys(parse_keys(from_environment))
        self._warn_of_key = True
        return seal.with_keys([generate_key(os.urandom(32))])
