"""Functions as signatures: what peers see, what they may send, and what the function gets."""

import functools
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import annotated_types as at
import msgspec
import pytest
from jsonschema_rs import Draft202012Validator
from typing_extensions import Doc

from antiphon.shapes import MISSING, Email, Header, Mismatch, describe, hints_of, signature_of

if TYPE_CHECKING:
    from nowhere import Nothing


def create(title: str, body: str = "", tags: list[str] = []) -> int:
    """Create a note.

    Args:
        title: What it is called.
        tags: Words to find it by.
    """


def test_a_function_becomes_an_object_schema():
    assert signature_of(create).schema == {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "What it is called."},
            "body": {"type": "string", "default": ""},
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Words to find it by.",
                "default": [],
            },
        },
        "required": ["title"],
        "additionalProperties": False,
    }
    assert signature_of(create).description == "Create a note."


def test_parameters_are_told():
    title, body, tags = signature_of(create).parameters
    assert (title.name, title.default, title.description) == ("title", MISSING, "What it is called.")
    assert (body.name, body.annotation, body.default, body.description) == ("body", str, "", None)
    assert tags.default == []
    assert repr(MISSING) == "MISSING"


def test_a_function_without_parameters_takes_nothing():
    signature = signature_of(lambda: None)
    assert signature.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert signature.read({}) == {}
    with pytest.raises(Mismatch, match="^unknown argument 'x': expected no arguments$"):
        signature.read({"x": 1})


def test_arguments_are_read_and_defaults_filled_in():
    assert signature_of(create).read({"title": "a", "tags": ["b"]}) == {"title": "a", "body": "", "tags": ["b"]}


def test_defaults_are_fresh_copies():
    def grow(items: list[int] = [1], more: dict[str, list[int]] = {"a": [1]}, none: set[int] = set()):
        """Grow."""

    signature = signature_of(grow)
    first = signature.read({})
    first["items"].append(2)
    first["more"]["a"].append(2)
    first["none"].add(1)
    assert signature.read({}) == {"items": [1], "more": {"a": [1]}, "none": set()}


def test_a_default_of_any_class_is_passed_on():
    marker = object()
    frozen = msgspec.defstruct("Point", [("x", int)])(1)

    def f(a: Any = marker, b: Any = frozen, c: int | None = None):
        """F."""

    signature = signature_of(f)
    assert signature.read({}) == {"a": marker, "b": frozen, "c": None}
    assert signature.schema["properties"] == {
        "a": {},
        "b": {"default": {"x": 1}},
        "c": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "missing required argument 'title'"),
        ({"title": "a", "x": 1}, "unknown argument 'x': expected title, body, tags"),
        ({"title": 1}, "'title': expected str, got int"),
        ({"title": "a", "tags": ["b", 1]}, "'tags[1]': expected str, got int"),
        ({"title": "a", "tags": None}, "'tags': expected array, got null"),
        ([], "expected object, got array"),
        (None, "expected object, got null"),
    ],
)
def test_a_mismatch_names_the_argument(arguments, told):
    with pytest.raises(Mismatch) as caught:
        signature_of(create).read(arguments)
    assert str(caught.value) == told


def test_lax_reading_takes_strings_for_numbers():
    def f(n: int, flag: bool = False, ratio: float = 0.0, name: str = ""):
        """F."""

    assert signature_of(f).read({"n": "3", "flag": "true", "ratio": "0.5", "name": "7"}, lax=True) == {
        "n": 3,
        "flag": True,
        "ratio": 0.5,
        "name": "7",
    }
    with pytest.raises(Mismatch, match="'n': expected int"):
        signature_of(f).read({"n": "three"}, lax=True)
    with pytest.raises(Mismatch, match="'n': expected int, got str"):
        signature_of(f).read({"n": "3"})


def test_keys_that_are_numbers_and_whole_floats_are_read():
    def f(counts: dict[int, int], n: int = 0):
        """F."""

    assert signature_of(f).read({"counts": {"1": 2.0}, "n": 3.0}) == {"counts": {1: 2}, "n": 3}


def test_arguments_may_be_any_mapping():
    def f(n: int, m: int = 0):
        """F."""

    assert signature_of(f).read(MappingProxyType({"n": 3.0})) == {"n": 3, "m": 0}
    with pytest.raises(Mismatch, match="'n': expected int, got str"):
        signature_of(f).read(MappingProxyType({"n": "x"}))


def test_a_name_that_python_mangles_is_refused():
    def f(__hidden: int):
        """F."""

    with pytest.raises(TypeError, match="two underscores"):
        signature_of(f)


def test_parameters_without_annotation_take_anything():
    def f(a, b=1):
        """F."""

    signature = signature_of(f)
    assert signature.schema["properties"] == {"a": {}, "b": {"default": 1}}
    assert signature.read({"a": {"x": [None]}}) == {"a": {"x": [None]}, "b": 1}


def test_extra_arguments_go_to_keyword_parameters():
    def f(a: int, **rest):
        """F."""

    def g(a: int, **rest: int):
        """G."""

    assert signature_of(f).schema["additionalProperties"] is True
    assert signature_of(f).read({"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
    assert signature_of(g).schema["additionalProperties"] == {"type": "integer"}
    assert signature_of(g).read({"a": 1, "b": 2.0}) == {"a": 1, "b": 2}
    with pytest.raises(Mismatch, match="^'b': expected int, got str$"):
        signature_of(g).read({"a": 1, "b": "x"})


def test_what_cannot_be_sent_by_name_is_refused():
    def listed(*names):
        """L."""

    def positional(a, /, b):
        """P."""

    with pytest.raises(TypeError, match=r"listed\(\): \*names"):
        signature_of(listed)
    with pytest.raises(TypeError, match=r"positional\(\): parameter 'a' is positional-only"):
        signature_of(positional)


def test_a_type_that_cannot_be_expressed_names_parameter_and_function():
    def f(fine: int, wave: complex):
        """F."""

    with pytest.raises(TypeError, match=r"parameter 'wave' of f\(\): complex"):
        signature_of(f)


def test_skipped_parameters_are_not_in_the_schema():
    def f(a: int, ctx: complex):
        """F."""

    assert signature_of(f, skip={"ctx"}).read({"a": 1}) == {"a": 1}
    with pytest.raises(Mismatch, match="unknown argument 'ctx'"):
        signature_of(f, skip=["ctx"]).read({"a": 1, "ctx": 2})


async def test_every_kind_of_callable_has_a_signature():
    async def coroutine(a: int):
        """From a coroutine."""

    class Thing:
        """A thing."""

        def method(self, a: int):
            """From a method."""

        def __call__(self, a: int):
            """From a call."""

        @classmethod
        def kind(cls, a: int):
            """From a class method."""

        @staticmethod
        def bare(a: int):
            """From a static method."""

    for function in (coroutine, Thing().method, Thing(), Thing.kind, Thing.bare):
        signature = signature_of(function)
        assert signature.read({"a": 1}) == {"a": 1}
        assert signature.description.startswith("From a ")


def test_a_wrapped_function_is_seen_through():
    def outer(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    assert signature_of(outer(create)).schema == signature_of(create).schema


def test_what_a_partial_has_bound_is_hidden():
    def send(token: str, to: str, text: str = "hi"):
        """Send."""

    for function in (functools.partial(send, token="secret"), functools.partial(send, "secret")):
        signature = signature_of(function)
        assert set(signature.schema["properties"]) == {"to", "text"}
        assert "secret" not in str(signature.schema)
        assert signature.description == "Send."
        with pytest.raises(Mismatch, match="unknown argument 'token'"):
            signature.read({"to": "a", "token": "other"})


def test_annotations_win_over_docstrings_and_give_bounds():
    def f(
        a: Annotated[int, "From the annotation.", at.Ge(1)],
        b: Annotated[str, Doc("From the annotation.")] = "",
        c: Literal["x", "y"] = "x",
    ):
        """F.

        Args:
            a: From the docstring.
            b: From the docstring.
            c: From the docstring.
        """

    properties = signature_of(f).schema["properties"]
    assert properties["a"] == {"type": "integer", "minimum": 1, "description": "From the annotation."}
    assert properties["b"]["description"] == "From the annotation."
    assert properties["c"] == {
        "type": "string",
        "enum": ["x", "y"],
        "description": "From the docstring.",
        "default": "x",
    }
    assert [it.description for it in signature_of(f).parameters] == [
        "From the annotation.",
        "From the annotation.",
        "From the docstring.",
    ]
    with pytest.raises(Mismatch, match="^'a': expected int >= 1, got 0$"):
        signature_of(f).read({"a": 0})


def test_classes_are_read_and_shared_ones_defined_once():
    @dataclass
    class Place:
        """A place."""

        town: str
        mail: Email | None = None

    def move(start: Place, end: Place, via: "list[Place]"):
        """Move.

        Args:
            start: Where from.
        """

    signature = signature_of(move)
    assert signature.schema["properties"]["start"] == {"$ref": "#/$defs/Place", "description": "Where from."}
    assert Draft202012Validator(signature.schema).is_valid({"start": {"town": "a"}, "end": {"town": "b"}, "via": []})
    read = signature.read({"start": {"town": "a"}, "end": {"town": "b"}, "via": [{"town": "c"}]})
    assert read == {"start": Place("a"), "end": Place("b"), "via": [Place("c")]}
    with pytest.raises(Mismatch, match=r"^'via\[0\]\.mail': expected an email address"):
        signature.read({"start": {"town": "a"}, "end": {"town": "b"}, "via": [{"town": "c", "mail": "d"}]})


# -------------------------------------------------------------------------------------------- headers


def test_a_header_is_told_at_its_property():
    def f(region: Annotated[str, Header("Region")], shard: Annotated[int | None, Header("Shard")] = None):
        """F."""

    assert signature_of(f).schema["properties"] == {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "shard": {"type": "integer", "x-mcp-header": "Shard"},
    }


def test_headers_a_client_would_refuse_are_refused_here():
    @dataclass
    class Where:
        region: Annotated[str, Header("Region")]

    def number(a: Annotated[float, Header("A")]):
        """F."""

    def twice(a: Annotated[str, Header("A")], b: Annotated[str, Header("a")]):
        """F."""

    def listed(a: list[Annotated[str, Header("A")]]):
        """F."""

    def shared(a: Where, b: Where):
        """F."""

    def nested(a: Where):
        """F."""

    with pytest.raises(TypeError, match="parameter 'a' of number.*only a str, an int or a bool"):
        signature_of(number)
    with pytest.raises(TypeError, match="parameter 'b' of twice.*used twice"):
        signature_of(twice)
    with pytest.raises(TypeError, match="inside a list"):
        signature_of(listed)
    with pytest.raises(TypeError, match="inside a list, a union, or a class that is used twice"):
        signature_of(shared)
    assert signature_of(nested).schema["properties"]["a"]["properties"]["region"]["x-mcp-header"] == "Region"


# ---------------------------------------------------------------------------------------------- hints


def test_local_names_in_string_annotations_are_found():
    @dataclass
    class Local:
        x: int

    Alias = list[Local]

    def f(a: "Local", b: "Alias", c: "Annotated[int, at.Ge(1)]" = 1) -> "Local":
        """F."""

    hints = hints_of(f)
    assert hints == {"a": Local, "b": list[Local], "c": Annotated[int, at.Ge(1)], "return": Local}
    assert signature_of(f).read({"a": {"x": 1}, "b": []}) == {"a": Local(1), "b": [], "c": 1}


def test_names_of_a_closure_are_found_after_the_function_has_ended():
    def made():
        class Local:
            pass

        def f(a: "Local"):
            return Local

        return f, Local

    f, local = made()
    assert hints_of(f) == {"a": local}


def test_an_annotation_that_cannot_be_resolved_names_parameter_and_function():
    def f(fine: int, odd: "Nothing"):
        """F."""

    def g() -> "Nothing":
        """G."""

    with pytest.raises(TypeError, match=r"parameter 'odd' of .*f\(\) cannot be resolved: 'Nothing'"):
        hints_of(f)
    with pytest.raises(TypeError, match=r"the return annotation of .*g\(\) cannot be resolved"):
        hints_of(g)


def test_hints_of_partials_methods_and_callables():
    class Thing:
        def method(self, a: int) -> str:
            """M."""

        def __call__(self, a: int) -> str:
            """C."""

    for function in (Thing().method, Thing(), functools.partial(Thing().method, 1)):
        assert hints_of(function) == {"a": int, "return": str}


# ------------------------------------------------------------------------------------------ docstrings

GOOGLE = """Find things.

    Longer text, with a colon: here.

    Args:
        query (str, optional): What to look
            for, over two lines.
        *names: Names.
        limit: At most: this many.

    Returns:
        The things
        found.

    Raises:
        KeyError: never.
    """

NUMPY = """Find things.

    Longer text, with a colon: here.

    Parameters
    ----------
    query : str
        What to look
        for, over two lines.
    *names
        Names.
    limit, most : int, optional
        At most: this many.

    Returns
    -------
    list of str
        The things
        found.

    Raises
    ------
    KeyError
        never.
    """

REST = """Find things.

    Longer text, with a colon: here.

    :param str query: What to look
        for, over two lines.
    :param names: Names.
    :param limit: At most: this many.
    :type limit: int
    :returns: The things
        found.
    :raises KeyError: never.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_docstrings_of_every_style_are_understood(text):
    def f():
        pass

    f.__doc__ = text
    description, arguments, returns = describe(f)
    assert description.startswith("Find things.\n\nLonger text, with a colon: here.")
    assert arguments["query"] == "What to look for, over two lines."
    assert arguments["names"] == "Names."
    assert arguments["limit"] == "At most: this many."
    assert returns == "The things found."
    for gone in ("Args", "Parameters", "query", ":param", "The things"):
        assert gone not in description


def test_a_plain_docstring_is_a_description():
    def f():
        """One line.

        Note:
            Kept as it is.

        Example::

            f()
        """

    def bare():
        pass

    assert describe(f) == ("One line.\n\nNote:\n    Kept as it is.\n\nExample::\n\n    f()", {}, None)
    assert describe(bare) == (None, {}, None)


def test_words_that_only_look_like_sections_stay():
    def f():
        """Parameters: none that matter.

        Returns: see above.
        """

    assert describe(f) == ("Parameters: none that matter.\n\nReturns: see above.", {}, None)
