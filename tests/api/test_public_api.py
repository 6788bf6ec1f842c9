"""The public API and the command line, name by name with signatures, compared with ``public_api.txt``.

``pytest tests/api --update-snapshots`` writes the file anew.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from difflib import unified_diff
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import click
import pytest

KEPT = Path(__file__).with_name("public_api.txt")
PACKAGES = {
    "antiphon": (),
    "antiphon.adapt": (),
    "antiphon.stores": (),
    "antiphon.testing": (),
    "antiphon.testing.cassette": (),
    "antiphon.testing.contracts": (),
    "antiphon.testing.report": ("FORMATS", "render"),
    "antiphon.testing.suite": (),
    "antiphon.tracing": (),
}
"""What users import from, and the names; those of ``__all__`` where none are given."""
MARKS = ("cassette", "eras", "mcp", "rotate")
SPECIAL = {
    *("__aenter__", "__aexit__", "__aiter__", "__anext__", "__await__", "__bool__", "__call__", "__contains__"),
    *("__enter__", "__exit__", "__getitem__", "__iter__", "__len__", "__next__", "__or__", "__and__"),
}
"""Methods that a caller uses by syntax."""
RETURNED = ("Context.sync", "Server.asgi", "Client.list_tools", "Client.server")
"""What gives users objects of classes that have no public name of their own."""


def test_the_public_api_is_as_committed(request: pytest.FixtureRequest) -> None:
    found = sorted({*_api(), *_plugin(request.config), *_commands()})
    if request.config.getoption("--update-snapshots"):
        KEPT.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    diff = "\n".join(unified_diff(_ordered(kept), _ordered(found), "committed", "found", lineterm="", n=0))
    assert not diff, f"The public API changed. If it should: pytest tests/api --update-snapshots\n{diff}"


def _ordered(lines: list[str]) -> list[str]:
    """The lines with the values of each Literal in order: typing gives the one of two equal ones that it met first."""
    return [
        re.sub(r"Literal\[([^\]]*)\]", lambda found: ", ".join(sorted(found[1].split(", "))), line) for line in lines
    ]


# --- names --------------------------------------------------------------------------------------------------------


def _api() -> Iterator[str]:
    first: dict[int, str] = {}
    for package in PACKAGES:
        for name, value in _public(package).items():
            path = f"{package}.{name}"
            known = first.setdefault(id(value), path)
            yield from _lines(path, value) if known == path else [f"{path} is {known}"]
    for path in RETURNED:
        owner, _, name = path.partition(".")
        value = inspect.getattr_static(getattr(import_module("antiphon"), owner), name)
        function = value.fget if isinstance(value, property) else value
        type_ = get_type_hints(function)["return"]
        cls = next(
            one for one in (get_origin(type_), type_, *get_args(type_)) if inspect.isclass(one) and _is_ours(one)
        )
        yield from _class(f"antiphon.{path} -> {cls.__name__}", cls)


def _public(package: str) -> dict[str, Any]:
    module = import_module(package)
    return {name: getattr(module, name) for name in PACKAGES[package] or module.__all__}


def _lines(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        for name in value.__all__:
            yield from _lines(f"{path}.{name}", getattr(value, name))
    elif inspect.isclass(value) and get_origin(value) is None:
        yield from _class(path, value)
    elif inspect.isroutine(value):
        yield path + _signature(value)
    else:
        yield f"{path} = {_text(value)}"


def _class(path: str, cls: type) -> Iterator[str]:
    public = {value for package in PACKAGES for value in _public(package).values() if inspect.isclass(value)}
    # An ancestor that a user cannot name is not part of the API.
    bases = [base.__name__ for base in cls.__mro__[1:-1] if base in public or not _is_ours(base)]
    yield " < ".join([f"{path}: class", *bases])
    yield path + _signature(cls)
    for base in filter(_is_ours, cls.__mro__):
        for name, type_ in inspect.get_annotations(base).items():
            if not name.startswith("_"):
                yield f"{path}.{name}: {_text(type_)}"
    for name in dir(cls):
        owner = next((base for base in cls.__mro__ if name in vars(base)), object)
        if _is_ours(owner) and (not name.startswith("_") or name in SPECIAL):
            yield from _member(f"{path}.{name}", inspect.getattr_static(cls, name))


def _member(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{path}: property{_signature(value.fget)}"
    elif isinstance(value, staticmethod | classmethod):
        yield f"{path}: {type(value).__name__}{_signature(value.__func__)}"
    elif inspect.isroutine(value):
        yield path + _signature(value)
    elif not inspect.isdatadescriptor(value):  # a slot, whose annotation has a line
        yield f"{path} = {_text(value)}"


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "antiphon"


# --- the rest of the API ------------------------------------------------------------------------------------------


def _plugin(config: pytest.Config) -> Iterator[str]:
    plugin = config.pluginmanager.get_plugin("antiphon")
    for name, value in vars(plugin).items():
        if "FixtureFunctionDefinition" in type(value).__name__ and not name.startswith("_"):
            yield f"pytest fixture {name}"
    for mark in config.getini("markers"):
        if mark.partition("(")[0] in MARKS:
            yield f"pytest mark {mark.partition(':')[0]}"


def _commands() -> Iterator[str]:
    from antiphon.cli import main

    (group,) = (value for value in vars(sys.modules[main.__module__]).values() if isinstance(value, click.Group))
    context = click.Context(group)
    for command in (group, *(group.get_command(context, name) for name in group.list_commands(context))):
        assert command is not None
        for parameter in command.params:
            about = parameter.to_info_dict()
            type_ = about["type"]
            kept = {name: about.get(name) for name in ("required", "multiple", "nargs", "is_flag", "default", "hidden")}
            kept |= {name: type_.get(name) for name in ("name", "choices", "min", "max", "exists", "dir_okay")}
            words = " ".join(f"{name}={_text(value)}" for name, value in kept.items() if value not in (None, False))
            names = "/".join([*parameter.opts, *parameter.secondary_opts])
            yield f"$ antiphon{'' if command is group else f' {command.name}'} {names}: {words}"


# --- text ---------------------------------------------------------------------------------------------------------


class _Bare(str):
    """An annotation that is a text already, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return "(...)"
    parameters = [one.replace(annotation=_bare(one.annotation)) for one in found.parameters.values()]
    text = str(found.replace(parameters=parameters, return_annotation=_bare(found.return_annotation)))
    return _stripped(text) + (" async" if inspect.iscoroutinefunction(function) else "")


def _bare(annotation: Any) -> Any:
    return _Bare(annotation) if isinstance(annotation, str) else annotation


def _text(value: Any) -> str:
    return _stripped(inspect.formatannotation(value) if inspect.isclass(value) else repr(_bare(value)))


def _stripped(text: str) -> str:
    """Without what depends on where things are: modules of ours, addresses, Python's own moves."""
    text = re.sub(r"\bantiphon(\.\w+)*\.(?=\w)", "", text)
    text = re.sub(r"<(function|class|bound method) '?([\w.<>]+?)'?( at 0x[0-9a-f]+)?>", r"\2", text)
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text.replace("pathlib._local.", "pathlib.").replace("collections.abc.", "").replace("typing.", "")
