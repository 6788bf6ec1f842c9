"""Variables: ``${name}`` for a value of the suite or one that a test captured, ``${env:NAME}`` for the environment.

``${env:NAME:-otherwise}`` has a default, ``$${`` stands for the two characters themselves.
"""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_REFERENCE: Final = re.compile(
    r"\$\$\{|\$\{\s*(?:env:(?P<env>[^}:\s]+)(?::-(?P<default>[^}]*))?|(?P<name>[^}]*?))\s*\}"
)
NAME: Final = re.compile(r"[^\W\d][\w.-]*")


def names_in(text: str) -> Iterator[str]:
    """Return the variables that a text refers to, without those of the environment."""
    for found in _REFERENCE.finditer(text):
        if found["name"] is not None:
            yield found["name"]


def missing_environment(text: str) -> list[str]:
    """Return the variables of the environment that a text needs and that are not set."""
    found = (match for match in _REFERENCE.finditer(text) if match["env"] is not None and match["default"] is None)
    return [match["env"] for match in found if match["env"] not in os.environ]


def filled(value: Any, known: Mapping[str, object]) -> Any:
    """Return a value with its references replaced, at every depth; KeyError for one that is not known.

    A text that is nothing but one reference becomes the value itself, whatever its type.
    """
    kind = type(value)
    if kind is str:
        return _text(value, known) if "${" in value else value
    if kind is dict:
        return {_name(name, known): filled(item, known) for name, item in value.items()}
    if kind is list:
        return [filled(item, known) for item in value]
    return value


def _name(name: Any, known: Mapping[str, object]) -> str:
    made = filled(name, known)
    return made if isinstance(made, str) else _written(made)


def _text(text: str, known: Mapping[str, object]) -> object:
    whole = _REFERENCE.fullmatch(text)
    if whole is not None:
        return _value(whole, known)
    return _REFERENCE.sub(lambda found: _written(_value(found, known)), text)


def _value(found: re.Match[str], known: Mapping[str, object]) -> object:
    if found["env"] is not None:
        value = os.environ.get(found["env"], found["default"])
        if value is None:
            raise KeyError(f"env:{found['env']}")
        return value
    return "${" if found["name"] is None else known[found["name"]]


def _written(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
