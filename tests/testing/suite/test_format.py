"""The JSON Schema of the format says what the loader says."""

import importlib.resources
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.suite import SuiteBroken, loads, schema

SCHEMA = jsonschema_rs.validator_for(schema())
SMALL: dict[str, Any] = {"server": {"app": "x.py"}, "tests": [{"name": "a", "tool": "b"}]}


def accepts(value: Any) -> bool:
    try:
        loads(msgspec.json.encode(value).decode())
    except SuiteBroken:
        return False
    return True


def changed(where: str, value: Any) -> Any:
    whole = msgspec.json.decode(msgspec.json.encode(SMALL))
    holder = whole
    *way, last = where.split("/")
    for step in way:
        holder = holder[int(step)] if isinstance(holder, list) else holder.setdefault(step, {})
    holder[int(last) if isinstance(holder, list) else last] = value
    return whole


def test_the_schema_in_the_package_is_the_one_that_is_made():
    kept = importlib.resources.files("antiphon.testing.suite").joinpath("suite.schema.json").read_bytes()
    assert msgspec.json.decode(kept) == schema(), "run: antiphon test --schema > .../suite.schema.json"


def test_every_key_is_explained():
    def look(part: Any) -> None:
        if isinstance(part, dict):
            for name, about in part.get("properties", {}).items():
                assert about["description"], name
            for below in part.values():
                look(below)
        elif isinstance(part, list):
            for below in part:
                look(below)

    look(schema())


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("name", "x"),
        ("serial", True),
        ("variables", {"a": [1]}),
        ("defaults", {"timeout": 5, "tags": "x", "isolated": True, "maxRounds": 3}),
        ("server", {"command": ["python", "x.py", 1], "env": {"A": 1, "B": True}, "startup": "2m", "stray": "ignore"}),
        ("server", {"url": "http://x/mcp", "headers": {"a": "b"}, "era": "both"}),
        ("tests/0/arguments", {"anything": [None]}),
        ("tests/0/skip", "later"),
        ("tests/0/expect", {"text": "x", "rounds": {"min": 1}, "asked": ["a", {"b": "why?"}]}),
        ("tests/0/expect", {"text": {"contains": ["a"], "not": {"matches": "x"}, "length": {"max": 3}}}),
        ("tests/0/expect", {"structured": {"$.a[*]": {"type": "array"}}, "isError": False, "schema": {}}),
        ("tests/0/expect", {"error": True}),
        ("tests/0/expect", {"error": -32602, "snapshot": {"ignore": ["$.id"]}}),
        ("tests/0/expect", {"error": {"code": -32602, "message": {"contains": "x"}, "data": {"$.a": 1}}}),
        ("tests/0/capture", {"a": "$.id", "b": {"text": "(.*)"}}),
        ("tests/0/inputResponder", {"url": "http://127.0.0.1:1/"}),
        ("tests/0", {"name": "a", "method": "tools/list", "params": {}}),
        ("tests/0", {"name": "a", "prompt": "p", "era": "legacy"}),
    ],
)
def test_both_accept_what_is_right(where: str, value: Any):
    whole = changed(where, value)
    assert accepts(whole)
    assert SCHEMA.is_valid(whole), list(SCHEMA.iter_errors(whole))


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("nme", "x"),
        ("name", ""),
        ("serial", "yes"),
        ("tests", []),
        ("tests", {}),
        ("server", {}),
        ("server", {"app": "x", "url": "http://x"}),
        ("server", {"url": "ftp://x"}),
        ("server", {"command": []}),
        ("server", {"app": "x", "headers": {}}),
        ("server/era", "old"),
        ("server/startup", "soon"),
        ("server/env", {"a": []}),
        ("defaults", {"tool": "x"}),
        ("tests/0/timeout", 0),
        ("tests/0/timeout", "10 x"),
        ("tests/0/maxRounds", 0),
        ("tests/0/tool", 5),
        ("tests/0/prompt", "both"),
        ("tests/0/params", {}),
        ("tests/0/arguments", []),
        ("tests/0/tags", [1]),
        ("tests/0/expect", {"txt": "x"}),
        ("tests/0/expect", {"text": 5}),
        ("tests/0/expect", {"text": {}}),
        ("tests/0/expect", {"text": {"contain": "x"}}),
        ("tests/0/expect", {"rounds": "two"}),
        ("tests/0/expect", {"asked": "confirm"}),
        ("tests/0/expect", {"error": {"cod": 1}}),
        ("tests/0/expect", {"error": 1.5}),
        ("tests/0/expect", {"isError": "no"}),
        ("tests/0/expect", {"snapshot": 1}),
        ("tests/0/capture", {"a": "id"}),
        ("tests/0/capture", {"1a": "$.id"}),
        ("tests/0/capture", {"a": {}}),
        ("tests/0/inputResponder", {}),
        ("tests/0", {"tool": "no name"}),
        ("tests/0", {"name": "nothing to do"}),
    ],
)
def test_both_refuse_what_is_wrong(where: str, value: Any):
    whole = changed(where, value)
    assert not accepts(whole)
    assert not SCHEMA.is_valid(whole)


KEYS = [
    "name",
    "tool",
    "prompt",
    "method",
    "params",
    "arguments",
    "expect",
    "tags",
    "skip",
    "timeout",
    "era",
    "capture",
]
MORE = ["text", "rounds", "error", "asked", "isError", "contains", "matches", "not", "snapshot", "code", "result"]
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "x", "$.a", "10s", "modern", "(", "${y}"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*KEYS, *MORE]), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(KEYS), ANY, max_size=4))
def test_what_the_loader_accepts_the_schema_accepts(extra: dict[str, Any]):
    whole = {**SMALL, "tests": [{"name": "a", "tool": "b", **extra}]}
    if accepts(whole):
        assert SCHEMA.is_valid(whole), list(SCHEMA.iter_errors(whole))
