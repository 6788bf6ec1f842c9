"""Parameters that are questions, and the order in which to ask them.

``sure: Annotated[bool, Ask("Really wipe {cache}?")]`` is answered by the user; the model neither sees nor sends it.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from string import Formatter
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from antiphon.rounds import ask
from antiphon.rounds.ask import Question
from antiphon.rounds.journal import InputRequired
from antiphon.shapes import Mismatch, form_of, hints_of, shape_of
from antiphon.shapes.annotations import peeled, type_name
from antiphon.shapes.records import record_of
from antiphon.types import Accepted, no_truth


class Mark:
    """What ``Ask(...)`` made."""

    __slots__ = ("source", "ttl")
    __bool__ = no_truth("it marks a parameter, as in 'sure: Annotated[bool, Ask(...)]', and is never its value")

    def __init__(self, source: str | Callable[..., object], ttl: float | None) -> None:
        self.source = source
        self.ttl = ttl

    def __repr__(self) -> str:
        return f"Ask({self.source!r})"


def Ask(source: str | Callable[..., object], *, ttl: float | None = None) -> Any:  # noqa: N802 -- it reads as a type
    """Mark a parameter as a question: ``sure: Annotated[bool, Ask("Sure?")]``, or ``sure: bool = Ask("Sure?")``.

    A text may name the tool's arguments and other asked values in braces. A function takes them as its parameters, and
    returns the value, or an ``ask.*`` question if it has to be asked.
    """
    if not isinstance(source, str) and not callable(source):
        raise TypeError(f"Ask() takes a text or a function, got {source!r}")
    return Mark(source, ttl)


_UNMARKED = (Ask, Mark, Question, ask.form, ask.confirm, ask.url, ask.sample, ask.roots)


class AskedParameter(NamedTuple):
    """One declared question, ready to be asked."""

    name: str
    source: str | Callable[..., object]
    shape: object
    needs: tuple[str, ...]
    handles_refusal: bool
    ttl: float | None
    fit: Callable[[Any], Any]
    """Return a value as the parameter's type, or raise Mismatch."""

    def question(self, values: Mapping[str, Any]) -> Question:
        """Return the question of a text source, with the values filled in."""
        assert isinstance(self.source, str)
        return ask.form(self.source.format_map(values), self.shape, key=self.name, ttl=self.ttl)

    def fitted(self, value: object) -> Any:
        """Return what the function gave, or was answered, as the parameter's type; raise TypeError if it is not."""
        try:
            return self.fit(value)
        except Mismatch as fault:
            raise TypeError(
                f"The value for parameter {self.name!r} does not fit its type: {fault}. The function in Ask() returns"
                " such a value, or an ask.* question whose answer is one"
            ) from None


def asked_parameters(function: Callable[..., object], contexts: Collection[str]) -> tuple[AskedParameter, ...]:
    """Return a function's declared questions in the order to ask them; raise TypeError naming one that cannot be."""
    hints = hints_of(function)
    parameters = inspect.signature(function).parameters
    marked = {
        name: mark
        for name, item in parameters.items()
        if name not in contexts and (mark := _mark(name, hints.get(name, item.empty), item.default)) is not None
    }
    known = {*parameters} - {*contexts}
    return tuple(_ordered({name: _parameter(name, hints[name], mark, known) for name, mark in marked.items()}))


def _mark(name: str, hint: object, default: object) -> Mark | None:
    """Return what marks a parameter as a question; raise TypeError if something else in it looks like one."""
    inner, extras = peeled(hint)
    found = [item for item in (*extras, default) if isinstance(item, Mark)]
    others = [item for item in (*extras, default) if not isinstance(item, Mark)]
    if len(found) > 1 or (found and hint is inspect.Parameter.empty) or _holds_question(inner, others):
        told = "bool" if hint is inspect.Parameter.empty or not isinstance(inner, type) else type_name(inner)
        raise TypeError(
            f"Parameter {name!r} has a question where it would not be asked: write '{name}: {told} = Ask(\"...\")' or"
            f" '{name}: Annotated[{told}, Ask(\"...\")]', and Ask(function) if a function is to make the question"
        )
    return found[0] if found else None


def _holds_question(hint: object, said: Collection[object], within: tuple[object, ...] = ()) -> bool:
    """Return whether something looks like a question inside a type, or among what is said of it."""
    inner, extras = peeled(hint)
    for item in (inner, *extras, *said):
        if isinstance(item, Mark | Question | InputRequired) or any(item is each for each in _UNMARKED):
            return True
    record = record_of(inner)
    place = hint if record is None else record.cls
    if any(place is each for each in within):  # a recursive type
        return False
    parts: list[tuple[object, tuple[object, ...]]] = (
        [(part, ()) for part in get_args(inner)]
        if record is None
        else [(field.annotation, (field.default,)) for field in record.fields]
    )
    return any(_holds_question(part, default, (*within, place)) for part, default in parts)


def _parameter(name: str, hint: object, mark: Mark, known: set[str]) -> AskedParameter:
    inner, extras = peeled(hint)
    wanted, handles_refusal = _answered(inner)
    others = [extra for extra in extras if extra is not mark]
    shape: object = Annotated[wanted, *others] if others else wanted
    needs = _names_in(mark.source, name, known)
    unknown = [need for need in needs if need not in known or need == name]
    if unknown:
        raise TypeError(
            f"The question of parameter {name!r} needs {unknown[0]!r}, which is not another parameter of the tool"
        )
    try:
        fit = form_of(shape).read if isinstance(mark.source, str) else _fit(shape)
    except TypeError as fault:
        raise TypeError(f"Parameter {name!r} cannot be asked for: {fault}") from None
    return AskedParameter(name, mark.source, shape, needs, handles_refusal, mark.ttl, fit)


def _fit(shape: Any) -> Callable[[Any], Any]:
    """Return what checks a Python value against a type; raise TypeError if nothing can."""
    if shape is Any:
        return lambda value: value
    try:
        known = shape_of(shape)
    except TypeError:
        isinstance(None, shape)  # raises, unless it is a class

        def fit(value: Any) -> Any:
            if not isinstance(value, shape):
                raise Mismatch(f"expected {type_name(shape)}, got {type_name(type(value))}")
            return value

        return fit
    return lambda value: value if type(value) is shape else known.read(known.write(value))


def _answered(hint: object) -> tuple[object, bool]:
    """Return the wanted type, and whether the tool handles a refusal itself, as ``Answer[T]`` says."""
    if get_origin(hint) is Union:
        for option in get_args(hint):
            if get_origin(option) is Accepted:
                return get_args(option)[0], True
    return hint, False


def _names_in(source: str | Callable[..., object], name: str, known: set[str]) -> tuple[str, ...]:
    if isinstance(source, str):
        try:
            fields = _fields(source)
        except ValueError as fault:
            raise TypeError(f"The question of parameter {name!r} is not a valid format string: {fault}") from None
        roots = [field.split(".")[0].split("[")[0] for field in fields]
        if "" in roots:
            raise TypeError(f"The question of parameter {name!r} has an empty {{}}: name the argument it shows")
        return tuple(dict.fromkeys(roots))
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(source).parameters
    if any(item.kind is item.POSITIONAL_ONLY for item in parameters.values()):
        raise TypeError(f"The question of parameter {name!r} has positional-only parameters")
    return tuple(
        key
        for key, item in parameters.items()
        if item.kind not in kinds and (item.default is item.empty or key in known)
    )


def _fields(text: str) -> list[str]:
    """Return the names in a format string, including those in its format specifications."""
    found: list[str] = []
    for _, field, spec, _ in Formatter().parse(text):
        if field is not None:
            found += [field, *_fields(spec or "")]
    return found


def _ordered(found: dict[str, AskedParameter]) -> list[AskedParameter]:
    order: list[AskedParameter] = []
    waiting = dict(found)
    while waiting:
        ready = [item for item in waiting.values() if not any(need in waiting for need in item.needs)]
        if not ready:
            raise TypeError(f"The questions of parameters {', '.join(map(repr, waiting))} wait for each other")
        order += [waiting.pop(item.name) for item in ready]
    return order
