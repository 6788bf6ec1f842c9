"""Reads functions and annotations (strings evaluated, local names found, wrappers removed) and docstrings."""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar
from typing import Annotated, Any, TypeVar, cast

import msgspec

F = TypeVar("F", bound=Callable[..., Any])

# By name, since typing_extensions has its own on older Pythons.
_WRAPPERS = frozenset({"Required", "NotRequired", "ReadOnly", "Final", "ClassVar"})


def hints_of(function: Callable[..., object]) -> dict[str, object]:
    """Return the annotations of the parameters and of `return`, `Annotated` included.

    Names local to the enclosing function are found while it runs, which is when decorators run.
    """
    target = target_of(function)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError):
        return _hints_one_by_one(target)


def target_of(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function whose annotations describe a call of `function`."""
    function = _inner(function)
    if isinstance(function, type):
        return cast("Callable[..., object]", cast("Any", function).__init__)
    if inspect.isroutine(function):
        return function
    return type(function).__call__ if callable(function) else function


def describe(function: Callable[..., object]) -> tuple[str | None, dict[str, str], str | None]:
    """Return what the docstring says: the description, each argument, and the result."""
    function = _inner(function)
    if inspect.isroutine(function) or isinstance(function, type):
        text = inspect.getdoc(function)
    else:
        text = inspect.getdoc(target_of(function)) or inspect.getdoc(type(function))
    docstring = parsed(text)
    return docstring.description, docstring.arguments, docstring.returns


def name_of(function: Callable[..., object]) -> str:
    """Return the function's name; of a partial, that of its function; of an object, that of its class."""
    function = _inner(function)
    return str(getattr(function, "__name__", type(function).__name__))


def _inner(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function inside `functools.partial`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


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
    """Return the local variables of the running functions that enclose the definition of `thing`."""
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
    """Return the fields' annotations, and whether the module's names were enough to resolve them."""
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
    """Return the type inside `Annotated`, `NewType`, type aliases and the like, with all their metadata."""
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


def remembered(make: F) -> F:
    """Keep what a function makes of a type, unless that cannot be hashed or is long."""

    # The text is part of the key: Literal["a", "b"] equals Literal["b", "a"], but its options are in another order.
    @functools.lru_cache(maxsize=1024)
    def kept(type_: object, _text: str, **options: object) -> object:
        return make(type_, **options)

    @functools.wraps(make)
    def known(type_: object, **options: object) -> object:
        if isinstance(type_, type):
            return kept(type_, "", **options)
        try:
            hash(type_)
        except TypeError:  # a list of options, or an `Annotated` with a list in its metadata
            return make(type_, **options)
        text = repr(type_)
        return kept(type_, text, **options) if len(text) <= _LONGEST else make(type_, **options)

    return cast("F", known)


_LONGEST = 1000
"""Characters of a type that is kept: options that a handler has found may be many, and never come again."""


def type_name(type_: object) -> str:
    """Return a type's name for a message."""
    return type_.__qualname__ if isinstance(type_, type) else str(type_).replace("typing.", "")


def wrapper_name(origin: object) -> str:
    """Return `NotRequired` for `typing.NotRequired`, and so on; any text for other types."""
    return str(origin).rpartition(".")[2]


def _alias_value(alias: Any) -> Any:
    """Return what a `type` statement's alias stands for, with its parameters replaced."""
    return substituted(alias.__value__, dict(zip(alias.__type_params__, typing.get_args(alias), strict=False)))


def bindings(type_: Any) -> dict[Any, Any]:
    """Return what each type variable of a generic class, and of its bases, stands for."""
    origin = typing.get_origin(type_) or type_
    bound = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(type_), strict=False))
    for base in getattr(origin, "__orig_bases__", ()):
        if typing.get_origin(base) not in {None, typing.Generic}:
            for variable, argument in bindings(base).items():
                bound.setdefault(variable, substituted(argument, bound))
    return bound


def substituted(annotation: Any, bound: Mapping[Any, Any]) -> Any:
    """Return the annotation with its type variables replaced."""
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    parameters = () if isinstance(annotation, type) else getattr(annotation, "__parameters__", ())
    if not bound or not parameters:
        return annotation
    return cast("Any", annotation)[tuple(bound.get(parameter, parameter) for parameter in parameters)]


# --- docstrings: Google, NumPy and reST styles ---

_ARGUMENTS = frozenset({
    "args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes",
})  # fmt: skip
_RETURNS = frozenset({"return", "returns", "yield", "yields"})
_OTHERS = frozenset({
    "raises", "example", "examples", "note", "notes", "see also", "references", "warning", "warnings", "warns", "todo",
})  # fmt: skip
# Strings: `re` compiles them at first use.
_NAME = r"\*{0,2}[A-Za-z_]\w*"
_GOOGLE_ITEM = rf"({_NAME})\s*(?:\([^)]*(?:\([^)]*\)[^)]*)*\))?\s*:(?:\s+|$)(.*)"
_NUMPY_ITEM = rf"({_NAME}(?:\s*,\s*{_NAME})*)\s*(?::.*)?"
_REST_ITEM = rf":(?:param|parameter|arg|argument|key|keyword|cvar|ivar|var)\s+(?:[^:]*?\s)?({_NAME})\s*:\s*(.*)"
_REST_RETURNS = r":(?:returns?|yields?)\s*:\s*(.*)"


class Docstring(msgspec.Struct):
    description: str | None = None
    arguments: dict[str, str] = {}
    returns: str | None = None


def parsed(text: str | None) -> Docstring:
    """Split a docstring into the description, what it says of each argument, and of the result."""
    docstring = Docstring()
    if not text:
        return docstring
    kept: list[str] = []
    for kind, lines in _blocks(inspect.cleandoc(text).splitlines()):
        match kind:
            case "google":
                docstring.arguments |= dict(_google_items(lines))
            case "numpy":
                docstring.arguments |= dict(_numpy_items(lines))
            case "google returns":
                docstring.returns = _flowed(lines)
            case "numpy returns":
                docstring.returns = _numpy_returns(lines)
            case "rest":
                _read_field(docstring, _flowed(lines) or "")
            case _:
                kept.extend(lines)
    docstring.description = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() or None
    return docstring


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the sections of a text, each with its kind; without their headings, except in ordinary text."""
    index = 0
    while index < len(lines):
        kind, start = _heading(lines, index)
        end = start + (kind == "rest")  # a field's own first line looks like the next field
        while end < len(lines) and not _ends(kind, lines, end):
            end += 1
        yield kind, lines[start:end]
        index = max(end, index + 1)


def _heading(lines: list[str], index: int) -> tuple[str, int]:
    """Return the kind of section that begins at a line, and the line at which its content begins."""
    line = lines[index]
    title = line.strip().removesuffix(":").lower()
    if _underlined(lines, index):
        if title in _ARGUMENTS:
            return "numpy", index + 2
        if title in _RETURNS:
            return "numpy returns", index + 2
    elif line.endswith(":") and not line[:1].isspace() and _indented(lines, index + 1):
        if title in _ARGUMENTS:
            return "google", index + 1
        if title in _RETURNS:
            return "google returns", index + 1
    if re.match(r":[a-z]+(\s[^:]*)?:", line):
        return "rest", index
    return "text", index


def _ends(kind: str, lines: list[str], index: int) -> bool:
    line = lines[index]
    match kind:
        case "google" | "google returns":
            return bool(line) and not line[:1].isspace()
        case "numpy" | "numpy returns":
            return _underlined(lines, index) and line.strip().lower() in _ARGUMENTS | _RETURNS | _OTHERS
        case "rest":
            return not line or line.startswith(":")
        case _:
            return _heading(lines, index)[0] != "text"


def _underlined(lines: list[str], index: int) -> bool:
    return (
        index + 1 < len(lines) and bool(lines[index].strip()) and re.fullmatch(r"-{3,}", lines[index + 1]) is not None
    )


def _indented(lines: list[str], index: int) -> bool:
    following = next((line for line in lines[index:] if line), "")
    return following[:1].isspace()


def _items(lines: list[str]) -> Iterator[list[str]]:
    """Yield the items of a section: each starts at the section's own indentation."""
    depth = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    item: list[str] = []
    for line in lines:
        if line.strip() and len(line) - len(line.lstrip()) == depth:
            if item:
                yield item
            item = []
        item.append(line)
    if item:
        yield item


def _google_items(lines: list[str]) -> Iterator[tuple[str, str]]:
    for item in _items(lines):
        if found := re.fullmatch(_GOOGLE_ITEM, _flowed(item) or "", re.DOTALL):
            yield found[1].lstrip("*"), found[2]


def _numpy_items(lines: list[str]) -> Iterator[tuple[str, str]]:
    for first, *rest in _items(lines):
        if (found := re.fullmatch(_NUMPY_ITEM, first.strip())) and (text := _flowed(rest)):
            for name in found[1].split(","):
                yield name.strip().lstrip("*"), text


def _numpy_returns(lines: list[str]) -> str | None:
    """Return the text below the type that NumPy names first."""
    told = [text for _, *rest in _items(lines) if (text := _flowed(rest))]
    return " ".join(told) or _flowed(lines)


def _read_field(docstring: Docstring, text: str) -> None:
    if found := re.fullmatch(_REST_ITEM, text, re.DOTALL):
        docstring.arguments[found[1].lstrip("*")] = found[2].strip()
    elif found := re.fullmatch(_REST_RETURNS, text, re.DOTALL):
        docstring.returns = found[1].strip() or None


def _flowed(lines: list[str]) -> str | None:
    """Join lines into one line for each paragraph."""
    paragraphs = "\n".join(line.strip() for line in lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in paragraphs).strip() or None
