"""Annotations resolved: strings evaluated, local names included, wrappers taken off."""

import functools
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar
from typing import Annotated, Any, TypeVar, cast

__all__ = ["bindings", "class_hints", "hints_of", "peeled", "substituted", "target_of", "type_name", "wrapper_name"]

# By name, since typing_extensions has its own on older Pythons.
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})


def hints_of(function: Callable[..., object]) -> dict[str, object]:
    """The parameters' and the return's annotations, `Annotated` kept.

    Names that only the enclosing function knows are found as long as it is still running, which is when decorators run.
    """
    target = target_of(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return _hints_one_by_one(target)


def target_of(function: Callable[..., object]) -> Callable[..., object]:
    """The function whose annotations describe a call of `function`."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return cast("Callable[..., object]", cast("Any", function).__init__)
    if inspect.isroutine(function):
        return function
    return type(function).__call__ if callable(function) else function


def _hints_one_by_one(target: Callable[..., object]) -> dict[str, object]:
    source = inspect.unwrap(target)
    names = {**_local_names(source), **_closure(source)}
    scope: dict[str, Any] = getattr(source, "__globals__", {})
    hints: dict[str, object] = {}
    for name, annotation in inspect.get_annotations(target).items():
        try:
            hints[name] = _evaluated(annotation, scope, names)
        except Exception as problem:
            where = "the return annotation" if name == "return" else f"the annotation of parameter '{name}'"
            raise TypeError(
                f"{where} of {_name(source)}() cannot be resolved: {annotation!r} ({problem}). "
                "Import the name where the function is defined, outside `if TYPE_CHECKING`."
            ) from problem
    return hints


def _evaluated(annotation: object, scope: Mapping[str, Any], names: Mapping[str, Any]) -> object:
    carrier = type("carrier", (), {"__annotations__": {"it": annotation}})
    return typing.get_type_hints(carrier, dict(scope), dict(names), include_extras=True)["it"]


def _name(thing: object) -> str:
    return str(getattr(thing, "__qualname__", repr(thing)))


def _closure(function: object) -> dict[str, object]:
    try:
        return dict(inspect.getclosurevars(cast("Callable[..., Any]", function)).nonlocals)
    except (TypeError, ValueError):
        return {}


def _local_names(thing: object) -> dict[str, object]:
    """The local variables of the running functions that enclose the definition of `thing`."""
    enclosing = list(_enclosing(_name(thing)))
    names: dict[str, object] = {}
    if not enclosing:
        return names
    module = getattr(thing, "__module__", None)
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_qualname in enclosing and frame.f_globals.get("__name__") == module:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def _enclosing(qualname: str) -> Iterator[str]:
    head, found, _ = qualname.rpartition(".<locals>.")
    while found:
        yield head
        head, found, _ = head.rpartition(".<locals>.")


def class_hints(cls: type) -> tuple[dict[str, object], bool]:
    """The fields' annotations, and whether the module's names were enough to resolve them."""
    try:
        return typing.get_type_hints(cls, include_extras=True), True
    except (NameError, AttributeError):
        names = {**_local_names(cls), cls.__name__: cls}
        try:
            return typing.get_type_hints(cls, None, names, include_extras=True), False
        except (NameError, AttributeError) as problem:
            raise TypeError(
                f"an annotation of {cls.__qualname__} cannot be resolved: {problem}. "
                "Import the name where the class is defined, outside `if TYPE_CHECKING`."
            ) from problem


def peeled(annotation: Any) -> tuple[Any, tuple[object, ...]]:
    """The type inside `Annotated`, `NewType`, type aliases and the like, and all the metadata met on the way in."""
    metadata: tuple[object, ...] = ()
    while True:
        origin = typing.get_origin(annotation)
        if origin is Annotated:
            metadata = (*annotation.__metadata__, *metadata)
            annotation = annotation.__origin__
        elif wrapper_name(origin) in _WRAPPERS:
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, InitVar):
            annotation = cast("Any", annotation).type
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif hasattr(annotation, "__value__") and hasattr(annotation, "__type_params__"):
            annotation = _alias_value(annotation)
        else:
            return annotation, metadata


def type_name(type_: object) -> str:
    """A type as it may stand in a message."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_).replace("typing.", "")


def wrapper_name(origin: object) -> str:
    """`NotRequired` for `typing.NotRequired` and its like, something else for anything else."""
    return str(origin).rpartition(".")[2]


def _alias_value(alias: Any) -> Any:
    """What a `type` statement's alias stands for, its parameters filled in."""
    return substituted(alias.__value__, dict(zip(alias.__type_params__, typing.get_args(alias), strict=False)))


def bindings(type_: Any) -> dict[Any, Any]:
    """What each type variable of a generic class, and of its bases, stands for."""
    origin = typing.get_origin(type_) or type_
    bound = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(type_), strict=False))
    for base in getattr(origin, "__orig_bases__", ()):
        if typing.get_origin(base) not in {None, typing.Generic}:
            for variable, argument in bindings(base).items():
                bound.setdefault(variable, substituted(argument, bound))
    return bound


def substituted(annotation: Any, bound: Mapping[Any, Any]) -> Any:
    """The annotation with its type variables replaced."""
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    parameters = () if isinstance(annotation, type) else getattr(annotation, "__parameters__", ())
    if not bound or not parameters:
        return annotation
    return cast("Any", annotation)[tuple(bound.get(parameter, parameter) for parameter in parameters)]
