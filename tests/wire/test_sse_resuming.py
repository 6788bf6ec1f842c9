"""Streams that can be taken up again: what is read out of their bytes."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.sse import LONGEST_WAIT, Events
from examples import examples

LIMIT = 1024


def fed(*chunks):
    events = Events(LIMIT, only_messages=True)
    return [data for chunk in chunks for data in events.feed(chunk)], events


@pytest.mark.parametrize(
    ("stream", "found", "last", "retry"),
    [
        (b"id: 1\ndata: {}\n\n", [b"{}"], "1", None),
        (b"id: 1\ndata:\n\n", [], "1", None),
        (b"id: 1\n\n", [], "1", None),
        (b"id: 1\ndata: {}\n", [], None, None),
        (b"id: 1\ndata: a\n\nid\ndata: b\n\n", [b"a", b"b"], None, None),
        (b"id: 1\n\nid: a\0b\ndata: x\n\n", [b"x"], "1", None),
        (b"id: a\tb\ndata: x\n\n", [b"x"], None, None),
        (b"retry: 500\n\n", [], None, 0.5),
        (b"retry: soon\nretry: -1\nretry: 1.5\n\n", [], None, None),
        (b"retry: 99999999999999999999999999\n\n", [], None, LONGEST_WAIT),
        (b"event: message\ndata: x\n\nevent: endpoint\ndata: /y\n\ndata: z\n\n", [b"x", b"z"], None, None),
        (b": comment\n\ndata: a\ndata: b\n\n", [b"a\nb"], None, None),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [b"a", b"b", b"c"], None, None),
        ("id: \u00fc\ndata: x\n\n".encode(), [b"x"], "\u00fc".encode().decode("latin-1"), None),
    ],
)
def test_what_a_stream_says(stream, found, last, retry):
    got, events = fed(stream)
    assert (got, events.last_id, events.retry) == (found, last, retry)
    got, events = fed(*[bytes([byte]) for byte in stream])
    assert (got, events.last_id, events.retry) == (found, last, retry)


def test_an_event_that_was_cut_off_is_forgotten_and_the_last_id_is_not():
    events = Events(LIMIT, only_messages=True)
    events.feed(b"id: 1\ndata: a\n\nid: 2\ndata: {ha")
    events.reconnected()
    assert events.feed(b"lf}\n\ndata: b\n\n") == [b"b"]
    assert events.last_id == "1"


@pytest.mark.parametrize("stream", [b"data: " + b"x" * LIMIT, b"data:\n" * (LIMIT + 1), b"x" * (LIMIT + 1)])
def test_an_event_that_is_too_large_ends_it(stream):
    with pytest.raises(ValueError, match="larger than 1024 bytes"):
        fed(stream)


IDS = st.text(st.characters(min_codepoint=0x20, exclude_characters="\x7f", exclude_categories=["Cs", "Cc"]), min_size=1)
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])


@examples(60)
@given(
    events=st.lists(
        st.tuples(st.none() | IDS, st.none() | st.integers(0, 10**6), st.dictionaries(IDS, IDS)), max_size=5
    ),
    newline=NEWLINES,
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_any_stream_in_any_pieces_is_read_the_same(events, newline, cuts):
    lines, last, retry = [], None, None
    for name, wait, data in events:
        lines += [] if name is None else [f"id: {name}"]
        lines += [] if wait is None else [f"retry: {wait}"]
        lines += [f"data: {json.dumps(data)}", ""]
        last, retry = last if name is None else name.encode().decode("latin-1"), retry if wait is None else wait / 1000
    stream = "".join(line + newline for line in lines).encode()
    places = sorted({0, len(stream), *[cut for cut in cuts if cut < len(stream)]})
    reader = Events(10**6, only_messages=True)
    found = [data for a, b in pairwise(places) for data in reader.feed(stream[a:b])]
    found += reader.feed(b"\n") if newline == "\r" else []
    assert [json.loads(data) for data in found] == [data for _, _, data in events]
    assert (reader.last_id, reader.retry) == (last, retry)


@given(chunks=st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_are_read_without_a_fault(chunks):
    _, events = fed(*chunks)
    assert events.last_id is None or all(0x20 <= ord(character) != 0x7F for character in events.last_id)
    if events.last_id is not None:
        events.last_id.encode("latin-1")
