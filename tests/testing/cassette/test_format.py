"""The file: versioned, sorted, and refused with the place where it is broken; and its placeholders."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.cassette import Cassette, CassetteBroken, CassetteEntry, CassetteTurn
from antiphon.testing.cassette.format import SCHEMA, VERSION
from antiphon.testing.cassette.placeholders import (
    TIME,
    Part,
    Ref,
    filled,
    literal,
    parts_of,
    refs_in,
    written,
)

CALL = {"id": "${id:1}", "method": "tools/call", "params": {"name": "add", "arguments": {"b": 1, "a": 2}}}
FORM = {"properties": {"region": {"type": "string", "title": "R"}, "at": {}}, "type": "object"}
PLAIN: dict[str, Any] = {
    "antiphon-cassette": 1,
    "clients": [{"meta": {"x": 1}, "headers": {"authorization": "${secret:authorization}"}}],
    "entries": [
        {
            "turns": [
                {"client": CALL, "as": 1, "headers": {"mcp-param-region": "eu"}},
                {"server": {"id": "${id:1}", "result": {"schema": FORM}}, "status": 400},
            ],
        },
        {"turns": [{"client": CALL}, {"server": {"method": "notifications/tools/list_changed"}}]},
    ],
}


def changed(place: str, value: Any) -> str:
    """The cassette with something else at a place, or with nothing there."""
    plain = json.loads(json.dumps(PLAIN))
    *path, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    within: Any = plain
    for step in path:
        within = within[step]
    if value is None:
        del within[last]
    else:
        within[last] = value
    return json.dumps(plain)


def test_a_cassette_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    cassette = Cassette.from_json(json.dumps(PLAIN))
    cassette.save(tmp_path / "new" / "session.json")
    again = Cassette.load(tmp_path / "new" / "session.json")
    assert again == cassette
    assert json.loads((tmp_path / "new" / "session.json").read_text()) == PLAIN
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["session.json"]


def test_the_file_keeps_the_order_of_the_wire() -> None:
    text = Cassette.from_json(json.dumps(PLAIN)).to_json()
    assert text == Cassette.from_json(text).to_json()
    assert text.endswith("}\n")
    assert text.index('"antiphon-cassette"') < text.index('"clients"') < text.index('"entries"')
    assert text.index('"b": 1') < text.index('"a": 2')
    assert text.index('"region": {\n') < text.index('"at": {}')
    assert text.index('"type": "string"') < text.index('"title": "R"')


def test_letters_stay_readable() -> None:
    cassette = Cassette(
        version=VERSION, entries=[CassetteEntry(turns=[CassetteTurn(client={"method": "notifications/grüße"})])]
    )
    assert "grüße" in cassette.to_json()


def test_the_schema_says_the_same() -> None:
    validator = jsonschema_rs.validator_for(json.loads(SCHEMA.read_text()))
    assert validator.is_valid(PLAIN)
    for place, value in (("entries/0/turns/0/sort", 1), ("entries/0/turns", []), ("antiphon-cassette", 2)):
        assert not validator.is_valid(json.loads(changed(place, value)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "tape.json:1:2: not JSON"),
        ('{\n "a": tru}', "tape.json:2:7: not JSON"),
        ("[" * 100_000, "tape.json: nested too deep"),
        (
            changed("entries/0/turns/0/client/id", 0).replace('"id": 0', f'"id": {"[" * 900}{"]" * 900}'),
            "nested too deep",
        ),
        ("[]", 'tape.json: not a cassette: it does not say "antiphon-cassette": 1'),
        ("{}", "not a cassette"),
        (changed("antiphon-cassette", "1"), "not a cassette"),
        (changed("antiphon-cassette", 2), "a cassette of version 2, and this program knows version 1: update antiphon"),
        (changed("antiphon-cassette", 0), "a cassette of version 0, and this program knows version 1: record again"),
        (changed("entries", None), "the cassette: Object missing required field `entries`"),
        (changed("entries/0/turns/1/server", 5), "entries[0].turns[1].server: Expected `object | null`, got `int`"),
        (changed("entries/0/turn", []), "entries[0]: Object contains unknown field `turn`"),
        (changed("entries/1/turns", []), "entries[1].turns: an entry has at least one turn"),
        (changed("entries/0/turns/0/server", {}), "entries[0].turns[0]: a turn is either the client's or the server's"),
        (changed("entries/0/turns/0/client", None), "entries[0].turns[0]: a turn needs a message"),
        (changed("entries/0/turns/0/as", 2), "entries[0].turns[0]: as: there is no client 2"),
        (changed("entries/1/turns/0", None), "entries[1].turns[0]: an entry begins with a message of the client"),
        (changed("entries/0/turns/0/client/id", "${nonce:1}"), "${nonce:1} is no placeholder that is known"),
        (changed("entries/0/turns/0/client/id", "${state}"), "${state} needs a number, as in ${state:1}"),
        (changed("entries/0/turns/0/headers/mcp-param-region", "${number:x}"), "${number:x} needs a number"),
        (changed("clients/0/headers/authorization", "${text:x}"), "clients[0]: ${text:x} needs a number"),
        (changed("entries/0/turns/0/client/id", "${state:1@7}"), "${state:1@7}: there is no entry 7"),
    ],
)
def test_a_broken_file_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tape.json").write_text(text)
    with pytest.raises(CassetteBroken) as fault:
        Cassette.load("tape.json")
    assert str(fault.value).startswith("tape.json:")
    assert says in str(fault.value)


def test_a_file_that_cannot_be_read_or_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(CassetteBroken, match="none.json: cannot be read: No such file"):
        Cassette.load(tmp_path / "none.json")
    (tmp_path / "binary").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(CassetteBroken, match="not UTF-8 at byte 7"):
        Cassette.load(tmp_path / "binary")
    with pytest.raises(CassetteBroken, match="cannot be written"):
        Cassette(version=1, entries=[]).save(tmp_path / "binary" / "tape.json")


# --- placeholders -------------------------------------------------------------------------------------------------

texts = st.text(alphabet=st.sampled_from(list("${}:@$abstate1 é\n")), max_size=12) | st.text(max_size=12)
refs = st.builds(
    Ref, st.sampled_from(["state", "id", "text"]), st.integers(1, 12).map(str), st.none() | st.integers(1, 9)
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.lists(texts.filter(bool) | refs, max_size=6))
def test_parts_come_back_as_they_were(parts: list[Part]) -> None:
    merged: list[Part] = []
    for part in parts:
        if merged and isinstance(part, str) and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    assert parts_of(written(parts)) == (merged or [""])


@settings(deadline=None)
@given(values)
def test_a_message_without_placeholders_comes_back_as_it_was(value: Any) -> None:
    recorded = literal(value)
    assert list(refs_in(recorded)) == []
    assert filled(recorded, lambda ref: pytest.fail(str(ref))) == value


def test_a_placeholder_alone_stands_for_any_value_and_within_a_text_for_a_part_of_it() -> None:
    values = {"number": 7, "text": "Ada"}
    assert filled({"a": "${number:1}", "b": "<${number:1}> ${text:1@2}"}, lambda ref: values[ref.kind]) == {
        "a": 7,
        "b": "<7> Ada",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("${state:1}", [Ref("state", "1")]),
        ("${state:1@3}", [Ref("state", "1", 3)]),
        ("at ${time}.", ["at ", Ref("time"), "."]),
        ("${secret:api-key}", [Ref("secret", "api-key")]),
        ("${$}{state:1}", ["${state:1}"]),
        ("costs $5 {net}", ["costs $5 {net}"]),
        ("${HOME} ${}", ["${HOME} ${}"]),
        ("", [""]),
    ],
)
def test_a_text_is_taken_apart(text: str, says: list[Part]) -> None:
    assert parts_of(text) == says


@pytest.mark.parametrize(
    ("text", "is_time"),
    [
        ("2026-07-28T10:00:00Z", True),
        ("2026-07-28T10:00:00.123456", True),
        ("2026-07-28T10:00:00+02:00", True),
        ("2026-07-28", False),
        ("12026-07-28T10:00:00Z", False),
        ("2026-07-28T10:00:00Zulu", False),
    ],
)
def test_moments_are_recognised(text: str, is_time: bool) -> None:
    assert (TIME.fullmatch(text) is not None) is is_time
