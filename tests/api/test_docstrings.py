"""Every public name says what it is: the reference of the site, and ``help()``, are made of it."""

import inspect
import pydoc
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import antiphon
from antiphon.auth import Keep
from antiphon.testing import McpClient

PACKAGES = (
    *("antiphon", "antiphon.auth", "antiphon.stores", "antiphon.testing", "antiphon.testing.cassette"),
    *("antiphon.testing.contracts", "antiphon.testing.suite"),
)
INTERFACES = (antiphon.Store, antiphon.Link, Keep, McpClient, antiphon.Client)
"""A method that does what one of these promises needs no words of its own."""


def test_every_public_name_has_a_docstring() -> None:
    assert [name for name, value in _public() if not _told(value)] == []


def test_every_public_method_and_property_has_a_docstring_or_keeps_a_documented_promise() -> None:
    assert [
        f"{name}.{method}"
        for name, value in _public()
        if inspect.isclass(value)
        for method, function in _methods(value)
        if not inspect.getdoc(function) and not any(_told(getattr(each, method, None)) for each in INTERFACES)
    ] == []


def test_help_on_a_server_shows_what_registers_and_what_runs_it() -> None:
    shown = pydoc.plain(pydoc.render_doc(antiphon.Server))
    for words in ("tool(", "prompt(", "resource(", "asgi(", "run(", "Serve until told to stop"):
        assert words in shown


def _public() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        module = import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
                yield f"{package}.{name}", value


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(cls).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def _told(value: Any) -> bool:
    """Whether something has words of its own; what dataclasses and msgspec write does not count."""
    text = inspect.getdoc(value) or ""
    return bool(text) and not text.startswith(f"{getattr(value, '__name__', '')}(")
