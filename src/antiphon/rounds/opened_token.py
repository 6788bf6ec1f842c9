"""A token, opened for people: what travels in it, for how long it is good, and to what it is bound."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.rounds.journal import Journal
from antiphon.rounds.token import Seal, SealBroken, SignedState, binding
from antiphon.types import JsonObject

_ANY_TIME: Final = 0.0
"""Before every expiry: a token that has expired is opened as well."""


class OpenedToken(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a token."""

    flow: str
    round: int
    asked: dict[str, int]
    """The questions of its round, each with its drift: how often in a row it came back changed."""
    answers: dict[str, Any]
    """The responses so far, as the client gave them."""
    steps: dict[str, Any]
    state: Any = None
    expires: float
    payload: bytes


class TokenKeys:
    """The keys of a server, to open its tokens, and to seal them again."""

    def __init__(self, keys: Sequence[str], *, audience: str | None) -> None:
        self._guards = (Seal(keys), SignedState(keys))
        self.audience = audience

    def open(self, token: str, *, method: str, params: JsonObject, principal: str | None = None) -> OpenedToken:
        """Open the token of a call, expired or not; SealBroken if these keys do not, or it belongs to another call."""
        opened = self._guard(token).open(token, bound_to=self._bound(method, params, principal), now=_ANY_TIME)
        try:
            journal = Journal.unpack(opened.payload)
        except ValueError:
            raise SealBroken("malformed") from None
        return OpenedToken(
            flow=journal.flow.hex(),
            round=journal.round - 1,
            asked={name: question.drift for name, question in journal.asked.items()},
            answers={name: msgspec.json.decode(answer.response) for name, answer in journal.answers.items()},
            steps={name: msgspec.json.decode(value) for name, value in journal.steps.items()},
            state=None if journal.state is None else msgspec.json.decode(journal.state),
            expires=opened.expires,
            payload=opened.payload,
        )

    def seal(
        self, token: str, *, method: str, params: JsonObject, now: float, entropy: bytes, principal: str | None = None
    ) -> str:
        """Return a token with the content of this one, as if it had been sealed at ``now``."""
        content = self.open(token, method=method, params=params, principal=principal).payload
        bound_to = self._bound(method, params, principal)
        return self._guard(token).seal(content, bound_to=bound_to, now=now, entropy=entropy)

    def _guard(self, token: str) -> Seal | SignedState:
        encrypted, signed = self._guards
        return encrypted if token.startswith("ap") and "." in token[:5] else signed

    def _bound(self, method: str, params: JsonObject, principal: str | None) -> bytes:
        name = str(params.get("name", params.get("uri", "")))
        arguments = params.get("arguments")
        return binding(method=method, name=name, arguments=arguments, audience=self.audience, principal=principal)
