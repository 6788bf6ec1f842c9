"""Parameters that are questions, and the order in which to ask them.

``sure: Annotated[bool, Ask("Really wipe {cache}?")]`` is answered by the user; the model neither sees nor sends it.
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from string import Formatter
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from antiphon.rounds import ask
from antiphon.rounds.ask import Question
from antiphon.shapes import form_of, hints_of
from antiphon.types import Accepted


class Ask:
    """Marks a parameter as a question.

    A text may name the tool's arguments and other asked values in braces. A function takes them as its parameters, and
    returns the value, or an ``ask.*`` question if it has to be asked.
    """

    __slots__ = ("source", "ttl")

    def __init__(self, source: str | Callable[..., object], *, ttl: float | None = None) -> None:
        if not isinstance(source, str) and not callable(source):
            raise TypeError(f"Ask() takes a text or a function, got {source!r}")
        self.source = source
        self.ttl = ttl


class AskedParameter(NamedTuple):
    """One declared question, ready to be asked."""

    name: str
    source: str | Callable[..., object]
    shape: object
    needs: tuple[str, ...]
    handles_refusal: bool
    ttl: float | None

    def question(self, values: Mapping[str, Any]) -> Question:
        """Return the question of a text source, with the values filled in."""
        assert isinstance(self.source, str)
        return ask.form(self.source.format_map(values), self.shape, key=self.name, ttl=self.ttl)


def asked_parameters(function: Callable[..., object], plain: Collection[str]) -> tuple[AskedParameter, ...]:
    """Return a function's declared questions in the order to ask them; raise TypeError naming one that cannot be."""
    hints = hints_of(function)
    marked = {name: mark for name, hint in hints.items() if (mark := _mark(hint)) is not None}
    found = {name: _parameter(name, hints[name], mark, {*plain, *marked}) for name, mark in marked.items()}
    return tuple(_ordered(found))


def is_asked(hint: object) -> bool:
    return _mark(hint) is not None


def _mark(hint: object) -> Ask | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((extra for extra in get_args(hint)[1:] if isinstance(extra, Ask)), None)


def _parameter(name: str, hint: object, mark: Ask, known: set[str]) -> AskedParameter:
    inner, *extras = get_args(hint)
    wanted, handles_refusal = _answered(inner)
    others = [extra for extra in extras if extra is not mark]
    shape: object = Annotated[wanted, *others] if others else wanted
    needs = _names_in(mark.source, name, known)
    unknown = [need for need in needs if need not in known or need == name]
    if unknown:
        raise TypeError(
            f"The question of parameter {name!r} needs {unknown[0]!r}, which is not another parameter of the tool"
        )
    if isinstance(mark.source, str):
        try:
            form_of(shape)
        except TypeError as fault:
            raise TypeError(f"Parameter {name!r} cannot be asked for: {fault}") from None
    return AskedParameter(name, mark.source, shape, needs, handles_refusal, mark.ttl)


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
