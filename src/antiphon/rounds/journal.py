"""The journal of a conversation, and the rules by which a handler's questions meet its answers.

A handler runs from the top on every round. What was answered before stands in the journal, which travels inside the
sealed ``requestState``; the first question without an answer ends the round. The rules:

* a recorded answer belongs to the exact question, by its fingerprint;
* an answer counts only if the question was asked, and the journal says so;
* a recorded answer stays until its question is asked again;
* an answer that does not fit its question is asked for again, and the question says why;
* a question that is never the same twice is an error, since no answer could ever fit it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from antiphon.errors import CannotAsk, UnstableQuestion, UserRefused
from antiphon.rounds.ask import Question, form_print, form_recalled, missing, of_wire, view
from antiphon.shapes import Form, Mismatch
from antiphon.types import Answer, JsonObject, Missing, Response, no_truth

MAX_DRIFT = 2
"""How often in a row a question may come back changed after an answer: once happens when a server is upgraded."""
MAX_DRIFT_BESIDE = 32
"""The same for questions of parallel tasks: each may come first, and have the name that another had before."""
_MAX_REASON = 300
"""How much of the reason why an answer was not accepted is shown."""

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class RoundEnds(BaseException):
    """The signal that unwinds a handler whose question has no answer yet. Private, and not an Exception on purpose."""


class AskedQuestion(msgspec.Struct, array_like=True):
    fingerprint: bytes
    drift: int = 0


class Answered(msgspec.Struct, array_like=True):
    fingerprint: bytes
    response: bytes
    """The client's raw response as JSON: read again on each round, by the question's own shape."""
    read: bool = False
    """Whether a question has read it and found it valid."""


class Journal(msgspec.Struct, array_like=True):
    """All that a conversation knows between two rounds."""

    flow: bytes
    round: int = 1
    asked: dict[str, AskedQuestion] = {}
    answers: dict[str, Answered] = {}
    steps: dict[str, bytes] = {}
    state: bytes | None = None
    returned: dict[str, bytes] = {}
    """The fingerprints of the questions that a handler returned last, which it finds answered on every run."""

    def pack(self, *, readable: bool = False) -> bytes:
        """The journal as bytes: small, or as JSON for a token that is meant to be read."""
        return _encode(_Readable.of(self)) if readable else _pack(self)

    def weights(self) -> str:
        """What fills the journal, heaviest first: for the log."""
        parts = {
            **{f"answer {name!r}": len(item.response) for name, item in self.answers.items()},
            **{f"step {name!r}": len(item) for name, item in self.steps.items()},
            "state": len(self.state or b""),
        }
        heaviest = sorted(parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name}: {size} bytes" for name, size in heaviest[:5])

    @classmethod
    def unpack(cls, payload: bytes) -> "Journal":
        """ValueError if the payload is no journal, such as one of an older release."""
        try:
            journal = _read(payload).journal() if payload.startswith(b"{") else _unpack(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
            raise ValueError(str(fault)) from None
        journal.round += 1
        return journal


class _Readable(msgspec.Struct):
    """A journal as JSON, with what was answered, stored and given as state in plain sight."""

    flow: str
    round: int
    asked: dict[str, tuple[str, int]]
    answers: dict[str, tuple[str, msgspec.Raw, bool]]
    steps: dict[str, msgspec.Raw]
    state: msgspec.Raw
    returned: dict[str, str] = {}

    @classmethod
    def of(cls, journal: Journal) -> "_Readable":
        return cls(
            flow=journal.flow.hex(),
            round=journal.round,
            asked={name: (item.fingerprint.hex(), item.drift) for name, item in journal.asked.items()},
            answers={
                name: (item.fingerprint.hex(), msgspec.Raw(item.response), item.read)
                for name, item in journal.answers.items()
            },
            steps={name: msgspec.Raw(item) for name, item in journal.steps.items()},
            state=msgspec.Raw(journal.state or b"null"),
            returned={name: print_.hex() for name, print_ in journal.returned.items()},
        )

    def journal(self) -> Journal:
        return Journal(
            flow=bytes.fromhex(self.flow),
            round=self.round,
            asked={name: AskedQuestion(bytes.fromhex(print_), drift) for name, (print_, drift) in self.asked.items()},
            answers={
                name: Answered(bytes.fromhex(print_), bytes(raw), read)
                for name, (print_, raw, read) in self.answers.items()
            },
            steps={name: bytes(raw) for name, raw in self.steps.items()},
            state=None if bytes(self.state) == b"null" else bytes(self.state),
            returned={name: bytes.fromhex(print_) for name, print_ in self.returned.items()},
        )


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(Journal).decode
_read = msgspec.json.Decoder(_Readable).decode


class InputRequired:
    """What ``input_required(...)`` made: the questions of a round, and the handler's own state."""

    __slots__ = ("questions", "state")
    __bool__ = no_truth("return it from the handler")

    def __init__(self, questions: Mapping[str, Question], state: bytes | None) -> None:
        self.questions = questions
        self.state = state


def input_required(requests: Mapping[str, Question] | None = None, *, state: object = None) -> InputRequired:
    """Return this from a handler to ask. ``state`` is plain data: sealed on the way out, typed on the way back.

    State alone, without a question, sheds load: the client comes back at once.
    """
    if not requests and state is None:
        raise TypeError("input_required() needs questions, a state, or both")
    for key, question in (requests or {}).items():
        if not isinstance(key, str) or not isinstance(question, Question):
            raise TypeError(f"input_required() takes names and ask.* questions, got {key!r}: {question!r}")
    return InputRequired(requests or {}, None if state is None else _encode(state))


def raw_input_required(result: JsonObject, *, again: bool = False) -> InputRequired:
    """Return what a result as the wire has it asks; raise TypeError if it asks nothing.

    ``again=True`` allows asking again after a refusal.
    """
    requests, state = result.get("inputRequests") or {}, result.get("requestState")
    if type(requests) is not dict or not isinstance(state, str | None) or not (requests or state):
        raise TypeError(
            'A result with "resultType": "input_required" needs "inputRequests", an object, or "requestState", a text'
        )
    try:
        questions = {name: of_wire(request) for name, request in requests.items()}
        for question in questions.values():
            question.again = again
        return input_required(questions, state=state)
    except TypeError as fault:
        raise TypeError(f'"inputRequests": {fault}') from None


class Conversation:
    """One round of one flow: the journal so far, what the client sent, and what is still to be asked."""

    __slots__ = (
        *("_capabilities", "_claimed", "_given", "_read", "_returned", "_seen", "_taken"),
        *("arrived", "journal", "lacking", "pending", "unfit"),
    )

    def __init__(self, journal: Journal, responses: object, capabilities: Mapping[str, Any]) -> None:
        self.journal = journal
        self.arrived: JsonObject = responses if type(responses) is dict else {}
        self.pending: dict[str, Question] = {}
        self.lacking: JsonObject = {}
        self.unfit: dict[str, tuple[str, str | None]] = {}
        """Why what arrived under a name was not accepted: for the log, and for the user who gave it."""
        self._capabilities = capabilities
        self._seen: set[str] = set()
        """The names that this run has given."""
        self._taken: dict[str, int] = {}
        """How many names with this beginning are surely given: they need not be tried again."""
        self._claimed: set[tuple[str, bytes]] = set()
        """The answers that this run has used, by name and fingerprint: two questions may have had the same name."""
        self._read: set[str] = set()
        self._given: set[bytes] = set()
        """The fingerprints of returned questions whose answers the handler was given in this run."""
        self._returned = False

    def elsewhere(self, responses: JsonObject) -> "Conversation":
        """The same round with these responses, in which a client need not be able to show a form or a page."""
        able = {**self._capabilities, "elicitation": {"form": {}, "url": {}}}
        return Conversation(self.journal, responses, able)

    @property
    def asked(self) -> int:
        """How many questions this run has come to, answered or not."""
        return len(self._seen)

    def ask(self, question: Question) -> Any:
        """The typed answer to a question, or RoundEnds with the question noted for this round."""
        name = self._name(question.key or question.name)
        found = self._recorded(name, question)
        if found is None and question.key is None:
            found = self._moved(name, question)
        if found is not None:
            return found
        self._require(question)
        self.pending[name] = question
        raise RoundEnds

    def recalled(self, form: Form, message: str, key: str | None) -> Answer[Any] | None:
        """The answer to a form that was answered on an earlier round; None if `ask` has to look.

        Every round begins with all the questions before it, so this is the short way: no Question is made.
        """
        name = self._free(key or form.name)
        answered = self.journal.answers.get(name)
        if answered is None or not answered.read or answered.fingerprint != form_print(form, message, key):
            return None
        self._seen.add(name)
        self._claimed.add((name, answered.fingerprint))
        return form_recalled(form, _decode(answered.response))

    def withdraw(self, question: Question) -> str:
        """Take back a question that this round would have carried, since it is put otherwise; its name."""
        name = next(name for name, other in self.pending.items() if other is question)
        del self.pending[name]
        return name

    def told(self, name: str, question: Question, response: object) -> Any:
        """The answer in a response that came at once, kept as if it had come with a round; None if it does not fit."""
        return self._readable(name, question, response)

    def answer(self, name: str) -> Response:
        """The newest response under a name, as the return style sees it: in the first request, asked for or not."""
        self._seen.add(name)
        self._read.add(name)
        recorded = self.journal.answers.get(name)
        fresh = view(self.arrived.get(name)) if self._counts(name) else Missing()
        if recorded is None or not isinstance(fresh, Missing):
            return fresh
        return view(_decode(recorded.response))

    def refuse(self, name: str, response: object, fault: Mismatch) -> None:
        """Note why a response is not accepted: if its question is asked again, it says so."""
        reason = " ".join(str(fault).split())
        reason = reason if len(reason) <= _MAX_REASON else f"{reason[:_MAX_REASON]}..."
        told = None
        if type(response) is dict and response.get("action") == "accept":
            # A TypeError comes from a fault in the code that checks, and is not for users.
            told = "Not accepted" + ("." if isinstance(fault.__cause__, TypeError) else f": {reason}")
        self.unfit[name] = reason, told

    def request(self, name: str, question: Question) -> JsonObject:
        """The question as it is sent."""
        wire = question.to_wire()
        _, told = self.unfit.get(name, ("", None))
        if told is not None and "message" in wire["params"]:
            wire["params"] = {**wire["params"], "message": f"{told}\n\n{wire['params']['message']}"}
        return wire

    def retried(self) -> JsonObject:
        """What a retry brings to a handler of raw parameters: its own state, and the answers to what it returned.

        They come again if the handler has awaited since, for it runs from the top.
        """
        members: JsonObject = {}
        state = None if self.journal.state is None else _decode(self.journal.state)
        if type(state) is str:
            members["requestState"] = state
        found = {name: self._response(name, print_) for name, print_ in self.journal.returned.items()}
        answers = {name: response for name, response in found.items() if response is not None}
        if answers:
            members["inputResponses"] = answers
            self._given = {self.journal.returned[name] for name in answers}
        return members

    def returned(self, wanted: InputRequired) -> None:
        """Take the questions that a handler returned; UserRefused if it insists on one that was just refused."""
        questions = {name: question.under(name) for name, question in wanted.questions.items()}
        for name, question in questions.items():
            if not question.again:
                self._check_refusal(name, question)
        self._require(*questions.values())
        self._returned = True
        self.pending = questions
        self.journal.state = wanted.state
        self.journal.returned = {name: question.fingerprint for name, question in questions.items()}

    def close(self) -> JsonObject:
        """End the round: the journal now says what was asked, and the result says what to answer."""
        for name in self.arrived:
            if self._counts(name) and (name in self._read or not self._settled(name)):
                self._keep(name)
        if self._returned:
            self._forget_returned_again()
        asked: dict[str, AskedQuestion] = {}
        for name, question in self.pending.items():
            before = self.journal.answers.get(name)
            if self._returned and before is not None and before.fingerprint != question.fingerprint:
                del self.journal.answers[name]
            asked[name] = AskedQuestion(question.fingerprint, self._drift(name, question))
        self.journal.asked = asked
        result: JsonObject = {"resultType": "input_required"}
        if self.pending:
            result["inputRequests"] = {name: self.request(name, question) for name, question in self.pending.items()}
        return result

    def _forget_returned_again(self) -> None:
        """Forget the answers that this run was given: what it returns again is another question, in the same words."""
        returned = self.journal.returned.items()
        again = {print_ for name, print_ in returned if name in self._read or print_ in self._given}
        for name in [name for name, item in self.journal.answers.items() if item.fingerprint in again]:
            del self.journal.answers[name]

    def _name(self, base: str) -> str:
        name = self._free(base)
        self._seen.add(name)
        return name

    def _free(self, base: str) -> str:
        # The same key asked twice in one run (a loop that asks until the answer is good) is two questions.
        if base not in self._seen:
            return base
        count = self._taken.get(base, 1)
        name = base
        while name in self._seen:
            count += 1
            name = f"{base}-{count}"
        self._taken[base] = count - 1
        return name

    def _response(self, name: str, print_: bytes) -> object:
        """The raw response to a question that was returned; None if there is none."""
        asked = self.journal.asked.get(name)
        if asked is not None and asked.fingerprint == print_:
            return self.arrived.get(name)
        kept = (item.response for item in self.journal.answers.values() if item.fingerprint == print_)
        response = next(kept, None)
        return None if response is None else _decode(response)

    def _recorded(self, name: str, question: Question) -> Any:
        print_ = question.fingerprint
        answered = self.journal.answers.get(name)
        found: Any = None
        if answered is not None and answered.fingerprint == print_:
            response = _decode(answered.response)
            found = question.recall(response) if answered.read else self._readable(name, question, response)
        asked = self.journal.asked.get(name)
        if found is None and asked is not None and asked.fingerprint == print_ and name in self.arrived:
            found = self._readable(name, question, self.arrived[name])
        if found is not None:
            self._claimed.add((name, print_))
        return found

    def _readable(self, name: str, question: Question, response: object) -> Any:
        """The answer in a response, which is then kept as read; None if it does not fit the question."""
        try:
            answer = question.read(response)
        except Mismatch as fault:
            self.refuse(name, response, fault)
            return None
        self._put_aside(name, question.fingerprint)
        self.journal.answers[name] = Answered(question.fingerprint, _encode(response), read=True)
        return answer

    def _moved(self, name: str, question: Question) -> Any:
        """An answer to the same question under another automatic name, as when a newer tool asks one more before it."""
        print_ = question.fingerprint
        recorded: list[tuple[str, Answered | AskedQuestion]] = [
            *self.journal.answers.items(),
            *self.journal.asked.items(),
        ]
        for other, item in recorded:
            if item.fingerprint == print_ and (other, print_) not in self._claimed:
                found = self._recorded(other, question)
                if found is not None:
                    self._seen.discard(name)
                    self._taken.clear()
                    self._seen.add(other)
                    return found
        return None

    def _keep(self, name: str) -> None:
        response = self.arrived[name]
        if type(response) is dict:
            asked = self.journal.asked.get(name)
            print_ = asked.fingerprint if asked else b""
            self._put_aside(name, print_)
            self.journal.answers[name] = Answered(print_, _encode(response))

    def _put_aside(self, name: str, print_: bytes) -> None:
        """Keep the answer to another question that had this automatic name: that question may come again."""
        before = self.journal.answers.get(name)
        if before is not None and before.fingerprint not in {b"", print_} and not self._returned:
            aside = f"{name}#{len(self.journal.answers)}"
            self.journal.answers[aside] = before
            if (name, before.fingerprint) in self._claimed:
                self._claimed.add((aside, before.fingerprint))

    def _counts(self, name: str) -> bool:
        """Whether what arrived under a name may be read: it was asked for, or came with the first request."""
        return name in self.journal.asked or self.journal.round == 1

    def _settled(self, name: str) -> bool:
        """Whether what arrived was not asked for, was read already, or did not fit a question that is asked again."""
        if name not in self.journal.asked:
            return True
        print_ = self.journal.asked[name].fingerprint
        before = self.journal.answers.get(name)
        if before is not None and before.read and before.fingerprint == print_:
            return True
        again = self.pending.get(name)
        return not self._returned and again is not None and again.fingerprint == print_

    def _require(self, *questions: Question) -> None:
        lacking = missing(self._capabilities, questions)
        if lacking:
            _merge(self.lacking, lacking)
            raise CannotAsk("The client did not declare that it can be asked this", required=self.lacking)

    def _check_refusal(self, name: str, question: Question) -> None:
        asked = self.journal.asked.get(name)
        response = self.arrived.get(name)
        if asked is None or asked.fingerprint != question.fingerprint or type(response) is not dict:
            return
        action = response.get("action")
        if action == "decline" or action == "cancel":  # noqa: PLR1714 -- it may be anything, a list as well
            verb = "declined" if action == "decline" else "cancelled"
            raise UserRefused(action, f"The user {verb} the question {name!r}, so the call ends here.")

    def _drift(self, name: str, question: Question) -> int:
        before = self.journal.asked.get(name)
        if self._returned or before is None or before.fingerprint == question.fingerprint:
            return 0
        if isinstance(view(self.arrived.get(name)), Missing) or (name, before.fingerprint) in self._claimed:
            return before.drift
        if before.drift + 1 >= (MAX_DRIFT_BESIDE if question.beside and question.key is None else MAX_DRIFT):
            raise UnstableQuestion(name)
        return before.drift + 1


def _merge(tree: JsonObject, more: Mapping[str, Any]) -> None:
    for key, below in more.items():
        _merge(tree.setdefault(key, {}), below)
