"""The Script: answers written down beforehand, for a client in a test."""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Self, TypeAlias, TypedDict

import msgspec

from antiphon.client.answers import ElicitAnswer, Elicitation, SampleRequest
from antiphon.errors import CannotAnswer
from antiphon.testing.answer_values import Kind, Supply, again, fields_of, kind_of, message_of, params_of, response_to
from antiphon.testing.transcript import Turn
from antiphon.types import Accepted, Cancelled, Declined, JsonObject, Root, Sample
from antiphon.wire.revisions import KEY

Asking: TypeAlias = Elicitation | SampleRequest
Matcher: TypeAlias = "str | re.Pattern[str]"
Given: TypeAlias = object
"""Whatever ``antiphon.testing.answer_values`` reads, a list of it, or a function that is asked for it."""

_KINDS: Final = ("sample", "roots")
"""Names that answer all questions of a kind."""
EVERYTHING: Final = ("elicitation", "elicitation.url", "sampling", "sampling.tools", "roots")


class Asked(str):
    """A question that was asked: its key as a string, with what else is known of it."""

    __slots__ = ("answer", "kind", "message", "request", "round", "tool", "used")

    kind: Kind
    message: str
    request: JsonObject
    """The request as the server made it: method and params."""
    tool: str
    """The tool, prompt or resource whose call asked; empty for roots, which do not name it."""
    round: int
    used: str
    """The name in the script that answered."""
    answer: JsonObject
    """The response that was sent."""

    def __new__(
        cls,
        key: str,
        *,
        kind: Kind,
        message: str = "",
        request: JsonObject | None = None,
        tool: str = "",
        round: int = 0,  # noqa: A002 -- what a round is called everywhere else
        used: str = "",
        answer: JsonObject | None = None,
    ) -> Self:
        self = super().__new__(cls, key)
        self.kind = kind
        self.message = message
        self.request = request or {}
        self.tool = tool
        self.round = round
        self.used = used
        self.answer = answer or {}
        return self

    @property
    def key(self) -> str:
        """The question's key."""
        return str(self)


class Handlers(TypedDict, total=False):
    """What a Client takes to answer with."""

    elicit: Callable[[Elicitation], Awaitable[ElicitAnswer]]
    elicit_url: Callable[[Elicitation], Awaitable[ElicitAnswer]]
    sample: Callable[[SampleRequest], Awaitable[Sample | str]]
    sample_tools: bool
    roots: Callable[[], Awaitable[list[Root]]]


class AnswerUnscripted(CannotAnswer):
    """The server asked what the script has no answer for, or none left."""


class AnswersUnused(UserWarning):
    """A test has passed, and the server did not ask for all of its answers."""


class Script:
    """Answers by key, by message, or by function.

    ``answers`` maps names to what is answered: a question's key (or ``tool.key``), its exact message, or a compiled
    pattern that is found in its message. A value is content to accept, a bare value for a form of one field,
    ``"decline"`` and ``"cancel"``, a text for a model's answer, a list of these with one for each time, or a function
    that takes the question and returns one. Or ``answers`` is such a function itself, asked about everything.

    ``sample`` and ``roots`` answer all questions of their kind that nothing else answers. ``declare`` says what the
    client can be asked at all. ``keyless`` is for servers of the older era, whose questions have no keys: then the only
    answer that fits the form is used. It may be a function that takes a key and says so. ``called`` is what messages
    call the holder of the answers.
    """

    def __init__(
        self,
        answers: Mapping[Any, Given] | Callable[[Asking], Given] | None = None,
        *,
        sample: Given = None,
        roots: Given = None,
        declare: Iterable[str] = EVERYTHING,
        keyless: bool | Callable[[str], bool] = False,
        called: str = "script",
    ) -> None:
        self._otherwise: Callable[[Asking], Given] | None = None
        self._entries: dict[Matcher, Supply] = {}
        self(answers)
        if sample is not None:
            self._add("sample", sample)
        if roots is not None:
            self._add("roots", roots)
        self._declared = tuple(declare)
        for name in self._declared:
            if name not in EVERYTHING:
                raise ValueError(f"Unknown capability {name!r}: a script can declare {', '.join(EVERYTHING)}")
        self.keyless = keyless
        self._called = called
        self.asked: list[Asked] = []
        """What was asked so far, with what was answered."""

    def __call__(
        self, answers: Mapping[Any, Given] | Callable[[Asking], Given] | None = None, /, **by_key: Given
    ) -> Self:
        """Add answers; a name that is there already gets the new one."""
        if callable(answers):
            self._otherwise = answers
            answers = None
        for name, given in {**(answers or {}), **by_key}.items():
            self._add(name, given)
        return self

    @property
    def unused(self) -> list[str]:
        """The names of answers that were not used, or not all of them."""
        return [supply.name for supply in self._unspent]

    @property
    def told_unused(self) -> list[str]:
        """The same as messages say it: ``'confirm'``, ``'region' (used 1 of 3 times)``."""
        return [
            repr(supply.name) + (f" (used {supply.used} of {supply.times} times)" if supply.used else "")
            for supply in self._unspent
        ]

    @property
    def _unspent(self) -> list[Supply]:
        return [supply for supply in self._entries.values() if not supply.is_spent]

    @property
    def has_roots(self) -> bool:
        """Whether there is an answer for a server that asks for roots."""
        return "roots" in self._entries or self._only_roots() is not None

    def handlers(self) -> Handlers:
        """Return what a client answers with: ``Client(target, **script.handlers())``."""
        made: Handlers = {}
        if "elicitation" in self._declared:
            made["elicit"] = self._elicit
        if "elicitation.url" in self._declared:
            made["elicit_url"] = self._elicit
        if "sampling" in self._declared or "sampling.tools" in self._declared:
            made["sample"] = self._sample
            made["sample_tools"] = "sampling.tools" in self._declared
        if "roots" in self._declared:
            made["roots"] = self._roots
        return made

    def _add(self, name: object, given: Given) -> None:
        if not isinstance(name, str | re.Pattern):
            raise TypeError(f"An answer's name is a key, a message or a compiled pattern, got {name!r}")
        label = name if isinstance(name, str) else f"/{name.pattern}/"
        self._entries[name] = Supply(label, given)

    # --- what the client calls ------------------------------------------------------------------------------------

    async def _elicit(self, question: Elicitation) -> ElicitAnswer:
        response = await self._respond(question.mode, question.message, question)
        if response["action"] == "accept":
            return Accepted(None if question.mode == "url" else response.get("content"))
        return Declined() if response["action"] == "decline" else Cancelled()

    async def _sample(self, question: SampleRequest) -> Sample:
        return msgspec.convert(await self._respond("sample", _last_text(question), question), Sample)

    async def _roots(self) -> list[Root]:
        supply = self._entries.get("roots") or self._only_roots()
        asked = Asked("roots", kind="roots", request={"method": "roots/list"})
        response = await self._answered(supply, asked, None)
        return msgspec.convert(response["roots"], list[Root])

    async def _respond(self, kind: Kind, message: str, question: Asking) -> JsonObject:
        asked = Asked(
            question.key,
            kind=kind,
            message=message,
            request=request_of(question),
            tool=question.tool,
            round=question.round,
        )
        return await self._answered(self._find(asked), asked, question)

    # --- finding --------------------------------------------------------------------------------------------------

    def _find(self, asked: Asked) -> Supply | None:
        for name in (f"{asked.tool}.{asked}", str(asked), asked.message):
            if name in self._entries:
                return self._entries[name]
        numbered = again(asked, self._entries)
        if numbered is not None:
            return numbered
        for pattern, supply in self._entries.items():
            if isinstance(pattern, re.Pattern) and pattern.search(asked.message):
                return supply
        if asked.kind == "sample" and "sample" in self._entries:
            return self._entries["sample"]
        return self._only_fitting(asked) if self._is_keyless(asked) else None

    def _is_keyless(self, key: str) -> bool:
        return self.keyless(key) if callable(self.keyless) else self.keyless

    def _only_fitting(self, asked: Asked) -> Supply | None:
        """Return the only unused answer that fits; several equal ones count as one."""
        fitting = self._fitting(asked)
        same = all(response == fitting[0][1] for _, response in fitting)
        return fitting[0][0] if fitting and same else None

    def _fitting(self, asked: Asked) -> list[tuple[Supply, JsonObject]]:
        """Return the unused answers that fit, with the responses that they stand for."""
        fitting: list[tuple[Supply, JsonObject]] = []
        for name, supply in self._entries.items():
            if isinstance(name, str) and not supply.is_spent and not callable(supply.given):
                try:
                    fitting.append((supply, response_to(asked, asked.request, supply.peek(asked.request))))
                except (CannotAnswer, IndexError):
                    continue
        return fitting

    def _only_roots(self) -> Supply | None:
        found = [
            supply
            for supply in self._entries.values()
            if isinstance(supply.given, dict) and supply.given.keys() == {"roots"}
        ]
        return found[0] if len(found) == 1 else None

    async def _answered(self, supply: Supply | None, asked: Asked, question: Asking | None) -> JsonObject:
        given: Any
        if supply is not None:
            try:
                given = supply.take(asked.request)
            except IndexError:
                raise AnswerUnscripted(self._used_up(asked, supply), key=asked) from None
        elif self._otherwise is not None and question is not None:
            given = self._otherwise
        else:
            raise AnswerUnscripted(self._nothing_for(asked), key=asked)
        if callable(given):
            function = given
            given = function(question) if question is not None else function()
            if inspect.isawaitable(given):
                given = await given
            if given is None:
                raise AnswerUnscripted(self._none_from(function, supply, asked), key=asked)
        asked.used = "" if supply is None else supply.name
        asked.answer = response_to(asked, asked.request, given)
        self.asked.append(asked)
        return asked.answer

    # --- words ----------------------------------------------------------------------------------------------------

    def _nothing_for(self, asked: Asked) -> str:
        names = [supply.name for supply in self._entries.values()]
        lines = [f"The server asks {described(asked)}, and the {self._called} has no answer for it."]
        if self._otherwise is not None:
            lines.append(f"{_title(self._otherwise)} gave none.")
        elif names:
            lines.append(f"It answers {', '.join(map(repr, names))}.")
            lines.append(self._doubt(asked) if self._is_keyless(asked) else _misspelt(asked, names))
        else:
            lines.append("It has no answers at all.")
        return " ".join(filter(None, [*lines, self._before()]))

    def _none_from(self, function: object, supply: Supply | None, asked: Asked) -> str:
        if supply is None or getattr(function, "__self__", function) is self._otherwise:
            return self._nothing_for(asked)
        return (
            f"The server asks {described(asked)}, and the function that answers {supply.name!r} returned None."
            " It returns what is answered: a value, 'decline' or 'cancel'."
        )

    def _doubt(self, asked: Asked) -> str:
        """Return why no answer was chosen for a question without a key."""
        fitting = [supply.name for supply, _ in self._fitting(asked)]
        if not fitting:
            return "None of those that are left fits; in the older era questions have no keys."
        return (
            f"In the older era questions have no keys, and {' and '.join(map(repr, fitting))} would all fit: put the"
            " message of the question in place of a key."
        )

    def _used_up(self, asked: Asked, supply: Supply) -> str:
        used = "" if supply.name == asked else f" (it goes by {supply.name!r})"
        if not supply.times:
            return (
                f"The server asks {described(asked)}, and its list of answers is empty{used}. {self._before()}".rstrip()
            )
        spent = "its only answer is" if supply.times == 1 else f"its {supply.times} answers are"
        return f"The server asks {described(asked)} once more, and {spent} used up{used}. {self._before()}".rstrip()

    def _before(self) -> str:
        return f"Asked before: {', '.join(map(repr, map(str, self.asked)))}." if self.asked else ""


def _title(otherwise: object) -> str:
    """Return what messages call a function; one with a text of its own is called by that."""
    return "Its function" if type(otherwise).__str__ is object.__str__ else str(otherwise)


def _misspelt(asked: Asked, names: list[str]) -> str:
    near = get_close_matches(asked, [name for name in names if name not in _KINDS], 1)
    return f"Is {near[0]!r} meant to be {str(asked)!r}?" if near else ""


def keyless_in(turns: Sequence[Turn]) -> Callable[[str], bool]:
    """Return a function that tells, for Script.keyless, whether a question of the older era has no key of its own.

    Some servers send their keys in ``_meta``; the key of any other question is made up by the client.
    """

    def is_keyless(key: str) -> bool:
        asked = [turn.questions[key] for turn in turns if key in turn.questions]
        meta = params_of(asked[-1]).get("_meta") if asked else None
        return not isinstance(meta, dict) or not meta.get(KEY)

    return is_keyless


def asked_in(turns: Iterable[Turn]) -> list[Asked]:
    """Return all questions of a transcript in their order, with the answers."""
    found: list[Asked] = []
    round_ = 0
    before: dict[str, Asked] = {}
    for turn in turns:
        for key, answer in turn.answers.items():
            if key in before:
                before[key].answer = answer
        round_ = round_ + 1 if turn.answers or "requestState" in turn.params else 1
        before = {key: _asked(key, request, turn, round_) for key, request in turn.questions.items()}
        found += before.values()
    return found


def _asked(key: str, request: JsonObject, turn: Turn, round_: int) -> Asked:
    return Asked(
        key,
        kind=kind_of(request) or "form",
        message=message_of(request),
        request=request,
        tool=str(turn.params.get("name") or turn.params.get("uri") or ""),
        round=round_,
    )


def described(asked: Asked) -> str:
    """Return a question as messages show it: its key, its kind, its message and its fields."""
    parts = [{"form": "a form", "url": "a URL to open", "sample": "for a model", "roots": "for roots"}[asked.kind]]
    if asked.message:
        parts.append(repr(asked.message if len(asked.message) <= 200 else f"{asked.message[:200]}..."))
    fields = fields_of(asked.request)
    if fields:
        parts.append("with " + ", ".join(f"{name}: {_type_of(field)}" for name, field in fields.items()))
    return f"{str(asked)!r} ({', '.join(parts)})"


def _type_of(field: object) -> str:
    if not isinstance(field, dict):
        return "anything"
    options = field.get("enum") or [item.get("const") for item in field.get("oneOf") or () if isinstance(item, dict)]
    return " | ".join(map(str, options)) if options else str(field.get("type", "anything"))


def request_of(question: Asking) -> JsonObject:
    """Return a question as the request that the server made."""
    if isinstance(question, SampleRequest):
        return {"method": "sampling/createMessage", "params": question.params}
    params: JsonObject = {"mode": question.mode, "message": question.message}
    params |= {"url": question.url} if question.mode == "url" else {"requestedSchema": question.schema}
    return {"method": "elicitation/create", "params": params}


def _last_text(question: SampleRequest) -> str:
    for message in reversed(question.messages):
        content = message.content
        blocks = content if isinstance(content, list) else [content]
        for block in blocks:
            text = block if isinstance(block, str) else getattr(block, "text", None)
            if isinstance(text, str):
                return text
    return ""
