"""What is kept of what travels."""

from hypothesis import given
from hypothesis import strategies as st

from antiphon.escaping import compact
from antiphon.inspect.traffic import LONGEST, bounded, frame_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON, st.integers(100, 2000))
def test_a_value_is_kept_whole_or_shortened_and_said_to_be(value, most):
    kept, is_cut = bounded(value, most)
    assert len(compact(kept)) <= (most if not is_cut else 2 * most + 100)
    assert is_cut == (len(compact(value)) > most)


def test_a_long_text_keeps_its_beginning_and_says_its_length():
    kept, is_cut = bounded({"text": "x" * 1_000_000, "list": list(range(1000))})
    assert is_cut
    assert kept["text"].startswith("xxx")
    assert kept["text"].endswith("… (1,000,000 characters)")
    assert kept["list"][-1] == "… (1,000 items)"


@given(st.binary())
def test_any_bytes_make_a_frame(data):
    frame = frame_of("received", "stdio", data)
    assert frame.bytes == len(data)
    assert (frame.text is None) or len(frame.text) <= LONGEST


def test_json_that_is_too_deep_is_shown_as_a_text():
    frame = frame_of("received", "stdio", b"[" * 100_000)
    assert (frame.message, frame.cut) == (None, True)
