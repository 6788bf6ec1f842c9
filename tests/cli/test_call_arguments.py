"""Arguments of a call: from key=value to what the input schema asks for."""

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.cli.arguments import convert, prompt_arguments, read_argument, read_json, tool_arguments
from antiphon.types import PromptArgument

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer", "minimum": 0},
        "ratio": {"type": "number"},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "extra": {"type": "object"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "mixed": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "array"}]},
        "colour": {"$ref": "#/$defs/Colour"},
        "level": {"enum": [1, 2, "high"]},
        "free": {},
    },
    "required": [],
    "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
    "additionalProperties": False,
}


def read(*words, base=None, schema=SCHEMA):
    return tool_arguments(words, base or {}, schema)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("text=5", "5"),
        ("text=null", "null"),
        ("count=5", 5),
        ("count= 5 ", 5),
        ("ratio=1.5", 1.5),
        ("ratio=2", 2),
        ("ratio=-1e3", -1000.0),
        ("loud=true", True),
        ("loud=Yes", True),
        ("loud=off", False),
        ("loud=0", False),
        ("tags=a,b", ["a", "b"]),
        ("tags=a, b", ["a", "b"]),
        ("tags=", []),
        ('tags=["a,b"]', ["a,b"]),
        ("sizes=1,2", [1, 2]),
        ('extra={"a": 1}', {"a": 1}),
        ("maybe=3", 3),
        ("maybe=null", None),
        ("mixed=5", 5),
        ("mixed=05", "05"),
        ("mixed=a,b", "a,b"),
        ("mixed=null", "null"),
        ('mixed=["a"]', ["a"]),
        ("colour=red", "red"),
        ("level=2", 2),
        ("level=high", "high"),
        ("free=5", 5),
        ("free=word", "word"),
        ("count:=7", 7),
        ('text:="7"', "7"),
    ],
)
def test_a_value_becomes_what_its_schema_says(word, value):
    (read_value,) = read(word).values()
    assert (read_value, type(read_value)) == (value, type(value))


def test_a_key_that_is_repeated_adds_to_its_list():
    assert read("tags=a", "tags=b,c") == {"tags": ["a", "b", "c"]}


def test_a_word_goes_before_json():
    assert read("count=2", base={"count": 1, "text": "x"}) == {"count": 2, "text": "x"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["text"], "'text' is not an argument: write key=value"),
        (["=5"], "'=5' is not an argument"),
        (["txt=a"], "There is no argument 'txt'; did you mean 'text'? Known arguments: text, count, ratio"),
        (["count=x"], "The argument 'count': expected a whole number, got 'x'"),
        (["count=1.5"], "expected a whole number, got '1.5'"),
        (["count=" + "9" * 30], "at most 64 bits"),
        (["ratio=nan"], "expected a number, got 'nan'"),
        (["ratio=1e999"], "too large"),
        (["loud=maybe"], "expected true or false, got 'maybe'"),
        (["sizes=1,x"], "expected a whole number, got 'x'"),
        (["extra=5"], "expected an object such as"),
        (["maybe=x"], "expected a whole number or null"),
        (["colour=green"], "expected one of 'red', 'blue', got 'green'"),
        (["count=1", "count=2"], "The argument 'count': given twice, but not a list"),
        (["tags:=[]", "tags=a"], "given twice, once as JSON"),
        (["count:=x"], "count is not valid JSON"),
        (["count=-1"], "Invalid arguments: 'count':"),
        (['count:="5"'], "Invalid arguments: 'count':"),
    ],
)
def test_what_does_not_fit_is_said_in_words(words, said):
    with pytest.raises(click.UsageError) as caught:
        read(*words)
    assert said in str(caught.value)


def test_all_that_is_missing_is_named_with_its_description():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "The first."}, "b": {}},
        "required": ["a", "b"],
    }
    with pytest.raises(click.UsageError) as caught:
        read(schema=schema)
    assert str(caught.value) == "2 arguments are missing:\n  a=...  The first.\n  b=..."


def test_a_tool_without_arguments_says_that_it_takes_none():
    with pytest.raises(click.UsageError, match="no arguments are taken"):
        read("a=1", schema={"type": "object", "properties": {}, "additionalProperties": False})


def test_a_schema_that_allows_more_takes_more():
    schema = {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert read("b=5", schema=schema) == {"b": 5}
    assert read("b=5", schema={"type": "object"}) == {"b": 5}


def test_a_schema_that_cannot_be_used_is_left_to_the_server():
    assert read("a=1", schema={"properties": {"a": {"type": "integer", "minimum": "x"}}}) == {"a": 1}


def test_a_schema_that_refers_to_itself_is_not_followed_for_ever():
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}]}}}
    assert read("a=1", schema=schema) == {"a": 1}


def test_json_must_be_an_object():
    assert read_json('{"a": 1}') == {"a": 1}
    for text in ("[1]", "5", "{"):
        with pytest.raises(click.UsageError, match="--json"):
            read_json(text)


def test_a_prompts_arguments_are_strings():
    known = (PromptArgument(name="to", required=True), PromptArgument(name="tone"))
    assert prompt_arguments(["to=5"], {}, known) == {"to": "5"}
    with pytest.raises(click.UsageError, match="1 argument is missing:\n  to="):
        prompt_arguments(["tone=x"], {}, known)
    with pytest.raises(click.UsageError, match="There is no argument 'from'"):
        prompt_arguments(["from=x"], {}, known)
    with pytest.raises(click.UsageError, match="'to'"):
        prompt_arguments(["to:=5"], {}, known)


def test_a_schema_whose_references_multiply_is_walked_once():
    many = [{"$ref": "#/$defs/A"} for _ in range(30)]
    schema = {"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"anyOf": [*many, {"type": "integer"}]}}}
    assert convert("5", schema, ["a"]) == 5


# --- properties

# Small alphabets without filters: Hypothesis draws them quickly, on a busy machine and in a fresh checkout too.
ANY = st.text("aZ05²٣ü€😀'\"\\{}[]:=,.+-eE_ \u2003\t\n\0", max_size=10)
LETTERS = st.text("aZ05ü€😀'\"\\{}]:=.-", min_size=1, max_size=5)
SCALARS = {
    "integer": st.integers(-(2**63), 2**64 - 1),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "string": ANY,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | LETTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(SCALARS)).flatmap(lambda kind: st.tuples(st.just(kind), SCALARS[kind])))
def test_a_scalar_survives_the_way_through_text(drawn):
    kind, value = drawn
    text = value if kind == "string" else json.dumps(value)
    assert convert(text, {"type": kind}) == value


@given(JSON)
def test_any_value_survives_the_way_through_json(value):
    text = json.dumps(value)
    assert read(f"free:={text}", schema={"properties": {"free": {}}}) == {"free": value}


@given(st.lists(LETTERS, max_size=5))
def test_a_list_survives_the_way_through_commas(items):
    assert convert(",".join(items), SCHEMA, ["tags"]) == items


KEYS = st.sampled_from([*SCHEMA["properties"], "x"])
WORDS = ANY | st.builds("{}{}{}".format, KEYS, st.sampled_from(["=", ":="]), ANY)


@given(st.lists(WORDS, max_size=4))
def test_any_words_are_arguments_or_a_usage_error(words):
    try:
        found = read(*words)
    except click.UsageError as fault:
        assert str(fault)
    else:
        assert set(found) == {read_argument(word).key for word in words}
