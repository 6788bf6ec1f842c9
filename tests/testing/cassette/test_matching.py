"""Matching: a message is the recorded one, whatever its tokens are; what stands for a value is told from its likes."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.testing.cassette.matching import Match, content
from antiphon.testing.cassette.placeholders import UNBOUND, Ref, literal

texts = st.text(alphabet=st.sampled_from(list("${}:@$abstate1 é\n")), max_size=12) | st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)


@settings(deadline=None)
@given(values)
def test_a_message_without_placeholders_fits_itself(value: Any) -> None:
    assert Match(lambda _: UNBOUND).fits(literal(value), value)


def test_a_placeholder_has_one_value() -> None:
    match = Match(lambda _: UNBOUND)
    assert match.fits({"a": "${state:1}", "b": "again ${state:1}!"}, {"a": "x y", "b": "again x y!"})
    assert match.bound == {Ref("state", "1"): "x y"}
    assert not match.fits("${state:1}", "another")
    assert not Match(lambda _: "known").fits("${state:1}", "another")


@pytest.mark.parametrize(
    ("recorded", "came", "fits"),
    [
        (1, 1.0, True),
        (1, True, False),
        (None, 0, False),
        ("1", 1, False),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ("${number:1}", 5, True),
        ("${number:1}", "5", False),
        ("${number:1}", True, False),
        ("${boolean:1}", False, True),
        ("${time}", "2026-07-28T10:00:00Z", True),
        ("${time}", "noon", False),
        ("Done at ${time}", "Done at 2026-07-28T10:00:00Z", True),
        ("Done at ${time}", "Done at noon", False),
        ("${secret:pin}", "1234", True),
        ("${secret:pin}", 1234, True),
        ("${secret:pin}", {"any": "thing"}, False),
        ("${secret:pin}", None, False),
        ("${secret:pin}", "", False),
        ("${secret:pin} and ${secret:pin}", "1234 and 1234", True),
        ("${secret:pin} and ${secret:pin}", "1234 and 4321", False),
        ("${secret:pin} and ${secret:key}", "1234 and 4321", True),
        ("<${text:1}${text:2}>", "<ab>", True),
        ("${text:1}, ${text:2}, ${time}", "a, b, c, 2026-07-28T10:00:00Z", True),
        ("${text:1}, ${text:2}, ${time}", "a, b, c", False),
        ("a (${text:1}) b", "a (.*) b", True),
        ("a (${text:1}) b", 7, False),
    ],
)
def test_what_fits(recorded: Any, came: Any, fits: bool) -> None:
    assert Match(lambda _: UNBOUND).fits(recorded, came) is fits


def test_who_a_client_is_and_how_it_counts_is_not_what_it_says() -> None:
    meta = {"io.modelcontextprotocol/clientInfo": {"name": "x"}, "progressToken": 3, "traceparent": "00-1"}
    plain = {"method": "tools/call", "params": {"name": "add"}}
    assert (
        content({"jsonrpc": "2.0", "id": 1, **plain, "params": {"name": "add", "arguments": {}, "_meta": meta}})
        == plain
    )
    assert content({"method": "tools/list", "params": {"_meta": meta}, "id": 4}) == {"method": "tools/list"}
    own = {"method": "ping", "params": {"_meta": {"com.example/tenant": "a"}}}
    assert content(own) == own
    assert content({"id": 1, "method": "initialize", "params": {"clientInfo": {}}}) == {"method": "initialize"}


@pytest.mark.parametrize("kind", ["secret", "text"])
def test_many_values_in_one_text_take_no_time(kind: str) -> None:
    recorded = "\n".join(f"row,${{{kind}:{number}}}" for number in range(1, 13)) + "\nEND"
    came = "\n".join(["row,x"] * 3000) + "\nEND2"
    began = time.perf_counter()
    assert not Match(lambda _: UNBOUND).fits(recorded, came)
    assert Match(lambda _: UNBOUND).fits(recorded, came.removesuffix("2"))
    assert time.perf_counter() - began < 2


secrets = st.text(min_size=1, max_size=8) | st.text(alphabet=st.sampled_from(list('ab"\\\n/é')), min_size=1, max_size=6)


@settings(deadline=None)
@given(secrets, st.lists(texts.filter(lambda text: text and not {"$", "\\"} & {*text}), max_size=4), st.booleans())
def test_a_secret_that_is_known_is_found_in_a_text_and_in_json(secret: str, around: list[str], as_json: bool) -> None:
    said = json.dumps(secret)[1:-1] if as_json else secret
    around = ["begin", *around, "end"]
    recorded = "${secret:key}".join(around)
    match = Match(lambda _: secret)
    assert match.fits(recorded, said.join(around))
    assert match.fits("${secret:key}", secret)
    assert not match.fits(recorded, recorded)
