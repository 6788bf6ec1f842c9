"""JSON with comments: what is read, and that a change leaves every other character as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.config.jsonc import load, with_member, without_member
from antiphon.errors import ConfigUnusable

ENTRY = {"command": "python", "args": ["-m", "antiphon", "serve", "/home/ada/notes.py"]}

# --- reading ------------------------------------------------------------------------------------------------------


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    ),
    indent=st.sampled_from([None, 2, "\t"]),
)
def test_plain_json_is_read_as_python_reads_it(value, indent):
    assert load(json.dumps(value, indent=indent)) == value
    assert load(json.dumps(value, indent=indent, ensure_ascii=False)) == value


def test_comments_trailing_commas_and_a_byte_order_mark_are_read():
    text = '\ufeff// first\n{"a": [1, 2,], /* not "b": 3 */ "c": "// no comment /* none */", // last\n}\n// end'
    assert load(text) == {"a": [1, 2], "c": "// no comment /* none */"}


def test_the_last_of_two_equal_names_counts():
    assert load('{"a": 1, "a": 2}') == {"a": 2}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1', "line 1, column 8: "),
        ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: Expecting ',' delimiter"),
        ('{\r\n  "a": 1\r\n  "b": 2\r\n}', "line 3, column 3: Expecting ',' delimiter"),
        ("{'a': 1}", "line 1, column 2: Expecting property name enclosed in double quotes"),
        ('{"a" 1}', "line 1, column 6: Expecting ':' delimiter"),
        ('\ufeff{"a": tru}', "line 1, column 7: Expecting value"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 01}', "line 1, column 8: Expecting ',' delimiter"),
        ('{"a": "x}\n', "line 1, column "),
        ('{"a": "x\ny"}', "line 1, column 9: Invalid control character"),
        ('{"a": "\\q"}', "line 1, column 8: Invalid \\escape"),
        ("[1 2]", "line 1, column 4: Expecting ',' delimiter"),
        ("{,}", "line 1, column 2: Expecting property name enclosed in double quotes"),
        ("[,]", "line 1, column 2: Expecting value"),
        ("[1,,]", "line 1, column 4: Expecting value"),
        ("[1, /* none */, ]", "line 1, column 15: Expecting value"),
        ('{"a": ,}', "line 1, column 7: Expecting value"),
        (",", "line 1, column 1: Expecting value"),
        ("{} {}", "line 1, column 4: Extra data"),
        ("{} /* open", "line 1, column 4: Extra data"),
        ("{} // 1\n2", "line 2, column 1: Extra data"),
        ("[" * 300, "line 1, column 201: it is nested too deeply"),
        ("1" * 5000, "Exceeds the limit"),
    ],
)
def test_what_is_broken_is_refused_with_its_place(text, problem):
    with pytest.raises(ConfigUnusable) as refused:
        load(text)
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("text", ["/* " * 100_000, '["' + '/*a"' * 99_999, '"' + '\\"' * 100_000, "[" + ", " * 100_000])
def test_what_is_never_closed_is_refused_at_once(text):
    with pytest.raises(ConfigUnusable):
        load(text)


@given(text=st.text(alphabet='{}[]",:/*\\ \n\rab01-.etrufalsn\ufeff', max_size=60))
def test_no_text_makes_the_reader_fail_in_another_way(text):
    try:
        value = load(text)
    except ConfigUnusable:
        return
    json.dumps(value)


# --- changing -----------------------------------------------------------------------------------------------------


LAYOUTS = {
    "two spaces": (
        '{\n  "mcpServers": {\n    "a": {}\n  }\n}\n',
        '{\n  "mcpServers": {\n    "a": {},\n    "n": 1\n  }\n}\n',
    ),
    "tabs": ('{\n\t"mcpServers": {\n\t\t"a": {}\n\t}\n}', '{\n\t"mcpServers": {\n\t\t"a": {},\n\t\t"n": 1\n\t}\n}'),
    "CRLF": (
        '{\r\n  "mcpServers": {\r\n    "a": {}\r\n  }\r\n}',
        '{\r\n  "mcpServers": {\r\n    "a": {},\r\n    "n": 1\r\n  }\r\n}',
    ),
    "one line": ('{"mcpServers": {"a": {}}}', '{"mcpServers": {"a": {}, "n": 1}}'),
    "trailing comma": (
        '{\n  "mcpServers": {\n    "a": {},\n  },\n}',
        '{\n  "mcpServers": {\n    "a": {},\n    "n": 1,\n  },\n}',
    ),
    "comment beside": (
        '{\n  "mcpServers": {\n    "a": {} // mine\n  }\n}',
        '{\n  "mcpServers": {\n    "a": {}, // mine\n    "n": 1\n  }\n}',
    ),
    "comment below": (
        '{\n  "mcpServers": {\n    "a": {}\n    // "b": {}\n  }\n}',
        '{\n  "mcpServers": {\n    "a": {},\n    "n": 1\n    // "b": {}\n  }\n}',
    ),
    "comment then brace": ('{"mcpServers": {"a": {} // x\n}}', '{"mcpServers": {"a": {}, // x\n"n": 1\n}}'),
    "brace on the line": ('{\n "mcpServers": {\n  "a": {}}}', '{\n "mcpServers": {\n  "a": {},\n  "n": 1}}'),
}


@pytest.mark.parametrize(("before", "after"), LAYOUTS.values(), ids=LAYOUTS)
def test_a_member_is_added_in_the_style_of_the_file_and_removed_without_a_trace(before, after):
    assert with_member(before, ["mcpServers", "n"], 1) == after
    assert without_member(after, ["mcpServers", "n"]) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "mcpServers": {\n    "n": 1\n  }\n}\n'),
        ("\ufeff", '\ufeff{\n  "mcpServers": {\n    "n": 1\n  }\n}\n'),
        ("{}", '{\n  "mcpServers": {\n    "n": 1\n  }\n}'),
        ("{\r\n}\r\n", '{\r\n  "mcpServers": {\r\n    "n": 1\r\n  }\r\n}\r\n'),
        ('{\n    "x": 1\n}', '{\n    "x": 1,\n    "mcpServers": {\n        "n": 1\n    }\n}'),
        ('{\n  "mcpServers": {}\n}', '{\n  "mcpServers": {\n    "n": 1\n  }\n}'),
        ('{\n  "mcpServers": {\n  }\n}', '{\n  "mcpServers": {\n    "n": 1\n  }\n}'),
        ('{\n  "mcpServers": { // none\n  }\n}', '{\n  "mcpServers": { // none\n    "n": 1\n  }\n}'),
        ('{"mcpServers":{}}', '{"mcpServers":{\n  "n": 1\n}}'),
    ],
)
def test_objects_that_are_missing_or_empty_are_filled(before, after):
    assert with_member(before, ["mcpServers", "n"], 1) == after


def test_only_the_value_of_a_member_that_is_there_is_replaced():
    before = '{\n  "mcpServers": {\n    "n" : {"command": "old"} , // mine\n    "b": {}\n  }\n}'
    after = with_member(before, ["mcpServers", "n"], {"command": "new"})
    assert after == before.replace('{"command": "old"}', '{\n      "command": "new"\n    }')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"n": 1}', "{}"),
        ('{\n  "n": 1\n}', "{}"),
        ('{\n  // keep\n  "n": 1\n}', "{\n  // keep\n}"),
        ('{\n  "n": 1,\n  "b": 2\n}', '{\n  "b": 2\n}'),
        ('{\n  "a": 1,\n  "n": 1, // of n\n  "b": 2\n}', '{\n  "a": 1,\n  "b": 2\n}'),
        ('{\n  "a": 1,\n  // above\n  "n": 1,\n  "b": 2\n}', '{\n  "a": 1,\n  // above\n  "b": 2\n}'),
        ('{"n": 1, /* of b */ "b": 2}', '{ /* of b */ "b": 2}'),
        ('{"a": 1, // of a\n"n": 1}', '{"a": 1 // of a\n}'),
        ('{ // first\n"n": 1, "b": 2}', '{ // first\n "b": 2}'),
        ('{"n": 1, "a": 2, "n": 3}', '{ "a": 2}'),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_a_member_is_removed_and_what_stands_around_it_stays(before, after):
    assert without_member(before, ["n"]) == after
    assert load(after) == {name: value for name, value in load(before).items() if name != "n"}


@pytest.mark.parametrize("text", ["[]", '{"mcpServers": []}', '{"mcpServers": null}'])
def test_what_is_not_an_object_is_not_replaced(text):
    for change in (
        lambda: with_member(text, ["mcpServers", "n"], 1),
        lambda: without_member(text, ["mcpServers", "n"]),
    ):
        with pytest.raises(ConfigUnusable, match="expected an object"):
            change()


# Texts with any layout, made of pieces that may stand between tokens.
GAPS = st.lists(
    st.sampled_from([" ", "\t", "\n", "\r\n", "\n  ", "// note\n", "// note\r\n", "/* block */", "/* two\nlines */"]),
    max_size=3,
).map("".join)
NAMES = st.sampled_from(["a", "b", "mcpServers", "n", "ü", 'q"'])


@st.composite
def texts(draw, depth=2):
    """An object as text, its members' names different from each other."""
    names = draw(st.lists(NAMES, max_size=3, unique=True))
    parts = []
    for number, name in enumerate(names):
        value = (
            draw(texts(depth - 1)) if depth and draw(st.booleans()) else draw(st.sampled_from(["1", '"x // y"', "[]"]))
        )
        is_last = number == len(names) - 1
        comma = "," if not is_last or draw(st.booleans()) else ""
        parts.append(f"{draw(GAPS)}{json.dumps(name)}{draw(GAPS)}:{draw(GAPS)}{value}{draw(GAPS)}{comma}")
    return "{" + "".join(parts) + draw(GAPS) + "}"


@given(text=texts(), name=st.sampled_from(["new", "n"]), path=st.sampled_from([[], ["mcpServers"], ["a", "b"]]))
def test_a_change_sets_one_member_and_no_other(text, name, path):
    try:
        after = with_member(text, [*path, name], ENTRY)
    except ConfigUnusable as refused:
        assert "expected an object" in str(refused)
        return
    expected = inner = load(text)
    for step in path:
        inner = inner.setdefault(step, {})
    inner[name] = ENTRY
    assert load(after) == expected
    del inner[name]
    assert load(without_member(after, [*path, name])) == expected


@given(
    text=texts(), before=st.sampled_from(["", "\ufeff", "// head\n"]), after=st.sampled_from(["", "\n", "\r\n// end"])
)
def test_adding_to_an_object_with_members_and_removing_gives_back_the_same_text(text, before, after):
    whole = before + text + after
    held = load(whole)
    if not held or "new" in held:
        return
    assert without_member(with_member(whole, ["new"], ENTRY), ["new"]) == whole
    for name, value in held.items():
        if isinstance(value, dict) and value:
            path = [name, "new"]
            assert without_member(with_member(whole, path, ENTRY), path) == whole


@given(text=texts(), name=NAMES)
def test_removing_leaves_a_text_that_reads_as_before_without_it(text, name):
    expected = {key: value for key, value in load(text).items() if key != name}
    assert load(without_member(text, [name])) == expected
