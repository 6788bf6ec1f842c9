"""Server-sent events, cut into pieces anywhere."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.sse import KEEP_ALIVE, Events, event

LIMIT = 1000


def fed(*chunks, limit=LIMIT):
    events = Events(limit)
    return [found for chunk in chunks for found in events.feed(chunk)]


def test_an_event_is_what_stands_in_its_data():
    assert fed(b"event: message\nid: 7\nretry: 10\ndata: hello\n\n") == [b"hello"]


def test_several_data_lines_are_one_event():
    assert fed(b"data: one\ndata: two\ndata\n\n") == [b"one\ntwo\n"]


def test_comments_and_unknown_fields_carry_nothing():
    assert fed(KEEP_ALIVE, b": nothing\n\n", b"other: x\n\n", b"nothing\n\n") == []


def test_an_event_that_has_not_ended_is_not_given():
    assert fed(b"data: half\n") == []


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lines_end_in_three_ways(end):
    assert fed(end.join([b"data: a", b"", b"data:b", b"", b""])) == [b"a", b"b"]


def test_an_event_may_be_as_large_as_the_limit_and_no_larger():
    assert fed(b"data: " + b"x" * 990 + b"\n\n") == [b"x" * 990]
    with pytest.raises(ValueError, match="larger than 1000"):
        fed(b"data: " + b"x" * 1001 + b"\n\n")


def test_a_line_that_never_ends_is_noticed_before_it_fills_the_memory():
    events = Events(LIMIT)
    for _ in range(5):
        assert events.feed(b"x" * 200) == []
    with pytest.raises(ValueError, match="larger"):
        events.feed(b"x")


def test_comments_without_end_are_not_too_large():
    events = Events(LIMIT)
    for _ in range(1000):
        assert events.feed(b": ping\n\n") == []


@given(
    st.lists(st.binary(max_size=40).filter(lambda data: b"\r" not in data and b"\n" not in data), max_size=6),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.data(),
)
def test_events_come_whole_however_the_stream_is_cut(payloads, end, data):
    stream = b"".join(event(payload) + b":\n\n" for payload in payloads).replace(b"\n", end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:stop] for begin, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert fed(*pieces) == payloads


@pytest.mark.heavy
def test_many_short_lines_take_the_room_that_is_counted():
    events = Events(LIMIT := 1 << 17)
    chunk = b"data:ab\n" * 1000
    tracemalloc.start()
    try:
        for _ in range(LIMIT // 3000 - 1):
            events.feed(chunk)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 2 * LIMIT
    (whole,) = events.feed(b"\n")
    assert set(whole.split(b"\n")) == {b"ab"}
