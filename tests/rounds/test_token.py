"""A token opens unchanged, in time, for the call and the caller it was sealed for, and otherwise not at all."""

# pyright: reportPrivateUsage=false

import base64
import json
import random
import re
import string
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from antiphon.rounds import token as module
from antiphon.rounds.token import (
    Codec,
    Opened,
    Seal,
    SealBroken,
    SignedState,
    StateTooLarge,
    binding,
    generate_key,
    parse_keys,
)

NOW = 1_790_000_000.5
KEY = generate_key(b"k" * 32)
OLDER = generate_key(b"o" * 32)
STRANGER = generate_key(b"s" * 32)
ENTROPY = bytes(range(12))
CALL = binding(method="tools/call", name="deploy", arguments={"env": "prod"}, audience=None, principal="ada")
ALPHABET = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"

Kind = Callable[..., Seal | SignedState]
both = pytest.mark.parametrize("kind", [Seal, SignedState])


def sealed(codec: Seal | SignedState, payload: bytes = b"state", entropy: bytes = ENTROPY) -> str:
    return codec.seal(payload, bound_to=CALL, now=NOW, entropy=entropy)


def opened(codec: Seal | SignedState, token: str, *, bound_to: bytes = CALL, now: float = NOW + 1) -> Opened:
    return codec.open(token, bound_to=bound_to, now=now)


def refusal(codec: Seal | SignedState, token: str, *, bound_to: bytes = CALL, now: float = NOW + 1) -> str:
    with pytest.raises(SealBroken) as caught:
        codec.open(token, bound_to=bound_to, now=now)
    assert str(caught.value) == caught.value.reason
    return caught.value.reason


def raw_bytes(token: str) -> bytes:
    body = token.removeprefix("ap1.")
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def token_of(raw: bytes) -> str:
    return "ap1." + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


# Round trips


@both
@given(payload=st.binary(max_size=4096), bound_to=st.binary(max_size=64), entropy=st.binary(min_size=12, max_size=12))
def test_what_was_sealed_opens(kind: Kind, payload: bytes, bound_to: bytes, entropy: bytes) -> None:
    codec = kind(KEY)
    token = codec.seal(payload, bound_to=bound_to, now=NOW, entropy=entropy)
    assert codec.open(token, bound_to=bound_to, now=NOW).payload == payload


@given(entry=st.binary(min_size=10, max_size=40), times=st.integers(200, 900))
def test_a_long_state_opens_and_is_shorter_than_it_was(entry: bytes, times: int) -> None:
    payload = entry * times
    token = sealed(Seal(KEY), payload)
    assert opened(Seal(KEY), token).payload == payload
    assert len(token) < len(payload)


@pytest.mark.parametrize("size", [1024, 1025, 20_000])
def test_a_state_that_does_not_compress_is_sealed_as_it_is(size: int) -> None:
    payload = random.Random(size).randbytes(size)
    token = sealed(Seal(KEY), payload)
    assert raw_bytes(token)[4] == 0
    assert opened(Seal(KEY), token).payload == payload


@pytest.mark.parametrize(("size", "flags"), [(1024, 0), (1025, 1)])
def test_only_a_state_over_a_kilobyte_is_compressed(size: int, flags: int) -> None:
    assert raw_bytes(sealed(Seal(KEY), bytes(size)))[4] == flags


@both
def test_a_token_is_url_safe_text(kind: Kind) -> None:
    assert re.fullmatch(r"[A-Za-z0-9._-]+", sealed(kind(KEY), bytes(range(256))))


@both
def test_a_token_says_when_it_expires_and_has_its_own_id(kind: Kind) -> None:
    codec = kind(KEY, ttl=60)
    first, second = (opened(codec, sealed(codec, entropy=bytes([n]) * 12)) for n in (1, 2))
    assert first.expires == NOW + 60
    assert first.id != second.id
    assert first.id == opened(codec, sealed(codec, entropy=bytes([1]) * 12)).id


def test_a_token_hides_what_it_carries() -> None:
    token = sealed(Seal(KEY), b"the reservation is R-1234")
    assert b"R-1234" not in raw_bytes(token)


def test_two_tokens_of_one_state_differ() -> None:
    assert sealed(Seal(KEY), entropy=bytes(12)) != sealed(Seal(KEY), entropy=ENTROPY)


def test_an_object_with_two_methods_is_a_codec() -> None:
    class Plain:
        def seal(self, payload: bytes) -> str:
            return payload.hex()

        def open(self, token: str) -> bytes:
            return bytes.fromhex(token)

    codec: Codec = Plain()
    assert codec.open(codec.seal(b"state")) == b"state"


# Refusals, each with its reason


@both
@given(token=st.text(max_size=200))
@example(token="")
@example(token="ap1.")
@example(token=".")
@example(token="\ud800")
@example(token="ap1.\ud800")
def test_random_text_is_refused(kind: Kind, token: str) -> None:
    assert refusal(kind(KEY), token) in {"malformed", "wrong version", "unknown key", "forged"}


@given(body=st.text(alphabet=ALPHABET, max_size=300))
def test_random_text_in_a_token_s_clothes_is_refused(body: str) -> None:
    assert refusal(Seal(KEY), f"ap1.{body}") in {"malformed", "unknown key", "forged"}


@given(bit=st.integers(min_value=0))
def test_any_changed_bit_is_refused(bit: int) -> None:
    raw = bytearray(raw_bytes(sealed(Seal(KEY))))
    place = bit % (len(raw) * 8)
    raw[place // 8] ^= 1 << place % 8
    assert refusal(Seal(KEY), token_of(bytes(raw))) in {"malformed", "unknown key", "forged"}


@both
@given(data=st.data())
def test_any_changed_character_is_refused(kind: Kind, data: st.DataObject) -> None:
    token = sealed(kind(KEY))
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    refusal(kind(KEY), token[:place] + other + token[place + 1 :])


@both
def test_every_truncation_is_refused(kind: Kind) -> None:
    token = sealed(kind(KEY))
    for length in range(len(token)):
        assert refusal(kind(KEY), token[:length]) in {"malformed", "forged"}


@both
@given(tail=st.text(min_size=1, max_size=20))
@example(tail="=")
@example(tail="\n")
@example(tail="-TAMPERED")
def test_every_extension_is_refused(kind: Kind, tail: str) -> None:
    assert refusal(kind(KEY), sealed(kind(KEY)) + tail) in {"malformed", "forged"}


@pytest.mark.parametrize("version", ["ap0.", "ap2.", "ap12."])
def test_a_token_of_another_version_is_refused(version: str) -> None:
    assert refusal(Seal(KEY), version + sealed(Seal(KEY)).removeprefix("ap1.")) == "wrong version"


@pytest.mark.parametrize("version", ["", "ap1", "AP1.", " ap1.", "ap1:", "v1."])
def test_a_token_without_its_version_is_refused(version: str) -> None:
    assert refusal(Seal(KEY), version + sealed(Seal(KEY)).removeprefix("ap1.")) == "malformed"


@pytest.mark.parametrize("size", [0, 1, 4, 5, 17, 40])
def test_a_token_too_short_to_be_one_is_malformed(size: int) -> None:
    assert refusal(Seal(KEY), token_of(raw_bytes(sealed(Seal(KEY)))[:size])) == "malformed"


def test_unknown_flags_are_refused() -> None:
    raw = raw_bytes(sealed(Seal(KEY)))
    refused = {flags: refusal(Seal(KEY), token_of(raw[:4] + bytes([flags]) + raw[5:])) for flags in range(2, 256)}
    assert set(refused.values()) == {"malformed"}


def test_a_flag_cannot_be_turned_on_or_off() -> None:
    for payload in (b"short", bytes(5000)):
        raw = raw_bytes(sealed(Seal(KEY), payload))
        assert refusal(Seal(KEY), token_of(raw[:4] + bytes([raw[4] ^ 1]) + raw[5:])) == "forged"


def test_a_token_of_an_unknown_key_is_refused() -> None:
    assert refusal(Seal(KEY), sealed(Seal(STRANGER))) == "unknown key"
    assert refusal(SignedState(KEY), sealed(SignedState(STRANGER))) == "forged"


def test_a_token_that_borrows_a_known_key_s_id_is_forged() -> None:
    ours, theirs = raw_bytes(sealed(Seal(KEY))), raw_bytes(sealed(Seal(STRANGER)))
    assert refusal(Seal(KEY), token_of(ours[:4] + theirs[4:])) == "forged"


@both
@pytest.mark.parametrize(
    "other",
    [
        {"method": "prompts/get"},
        {"name": "destroy"},
        {"arguments": {"env": "staging"}},
        {"arguments": None},
        {"audience": "https://other.example"},
        {"principal": "eve"},
        {"principal": None},
    ],
    ids=str,
)
def test_a_token_moved_to_another_call_or_caller_is_forged(kind: Kind, other: dict[str, object]) -> None:
    call: dict[str, object] = {
        "method": "tools/call",
        "name": "deploy",
        "arguments": {"env": "prod"},
        "audience": None,
        "principal": "ada",
    }
    elsewhere = binding(**{**call, **other})  # type: ignore[arg-type]
    assert refusal(kind(KEY), sealed(kind(KEY)), bound_to=elsewhere) == "forged"


@both
def test_bytes_cannot_move_between_the_binding_and_the_token(kind: Kind) -> None:
    token = kind(KEY).seal(b"state", bound_to=b"call", now=NOW, entropy=ENTROPY)
    for bound_to in (b"", b"cal", b"call\x00", b"call" + token[:4].encode()):
        assert refusal(kind(KEY), token, bound_to=bound_to) == "forged"


def test_bytes_cannot_move_from_the_binding_to_the_text_of_a_signed_state() -> None:
    token = SignedState(KEY).seal(b"state", bound_to=b"call", now=NOW, entropy=ENTROPY)
    assert refusal(SignedState(KEY), "call" + token, bound_to=b"") == "forged"
    assert refusal(SignedState(KEY), token[4:], bound_to=b"call" + token[:4].encode()) == "forged"


@both
def test_a_late_token_is_expired(kind: Kind) -> None:
    codec = kind(KEY, ttl=60)
    token = sealed(codec)
    assert opened(codec, token, now=NOW + 59.999).payload == b"state"
    assert refusal(codec, token, now=NOW + 60) == "expired"
    assert refusal(codec, token, now=NOW + 1e9) == "expired"
    assert refusal(codec, token, now=float("nan")) == "expired"


@both
def test_one_question_may_wait_longer_than_the_others(kind: Kind) -> None:
    codec = kind(KEY, ttl=60)
    token = codec.seal(b"state", bound_to=CALL, now=NOW, ttl=3600, entropy=ENTROPY)
    assert opened(codec, token, now=NOW + 3599).expires == NOW + 3600
    assert refusal(codec, token, now=NOW + 3600) == "expired"


@both
@pytest.mark.parametrize("late", [0, 10_000])
def test_a_forged_token_is_forged_before_it_is_late(kind: Kind, late: float) -> None:
    assert refusal(kind(KEY), sealed(kind(KEY)), bound_to=b"elsewhere", now=NOW + late) == "forged"


@both
def test_a_reason_is_all_a_refusal_carries(kind: Kind) -> None:
    with pytest.raises(SealBroken) as caught:
        kind(KEY).open(sealed(kind(KEY)), bound_to=b"elsewhere", now=NOW)
    assert caught.value.args == ("forged",)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_the_two_kinds_do_not_open_each_other_s_tokens() -> None:
    assert refusal(SignedState(KEY), sealed(Seal(KEY))) == "forged"
    assert refusal(Seal(KEY), sealed(SignedState(KEY))) == "malformed"


# One text per token


@given(raw=st.binary(max_size=200))
def test_the_armour_agrees_with_the_standard_library(raw: bytes) -> None:
    text = module._armour(raw)
    assert text == base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    assert len(text) == module._armoured_length(len(raw))
    assert module._unarmour(text.encode()) == raw


@given(text=st.text(alphabet=ALPHABET + '+/=!"\\ \n', max_size=12).map(str.encode) | st.binary(max_size=12))
@example(text=b"AB")
@example(text=b"AAB")
@example(text=b"AA==")
@example(text=b"AAAA====")
@example(text=b'AAAA"')
@example(text=b"\\u0041A")
def test_text_that_is_read_is_the_text_that_is_written(text: bytes) -> None:
    try:
        raw = module._unarmour(text)
    except SealBroken:
        return
    assert module._armour(raw).encode() == text


@pytest.mark.parametrize("size", [5, 6, 7])
def test_the_unused_bits_of_the_last_character_must_be_zero(size: int) -> None:
    token = sealed(Seal(KEY), bytes(size))
    twins = [token[:-1] + last for last in ALPHABET if raw_bytes(token[:-1] + last) == raw_bytes(token)]
    assert len(twins) == {0: 1, 1: 16, 2: 4}[len(raw_bytes(token)) % 3]
    for twin in twins:
        if twin != token:
            assert refusal(Seal(KEY), twin) == "malformed"


@both
def test_padding_white_space_and_the_other_alphabet_are_refused(kind: Kind) -> None:
    token = sealed(kind(KEY), b"\xfb\xff\xbf" * 40)
    standard = token.replace("-", "+").replace("_", "/")
    fullwidth = "".join(chr(ord(character) + 0xFEE0) for character in token)
    assert standard != token
    for twin in (
        standard,
        fullwidth,
        f"{token}=",
        f"{token}==",
        f" {token}",
        f"{token}\n",
        f"{token[:9]}\n{token[9:]}",
    ):
        assert refusal(kind(KEY), twin) in {"malformed", "forged"}


# Keys


@both
def test_the_first_key_seals_and_every_key_opens(kind: Kind) -> None:
    before, during, after = kind([OLDER]), kind([KEY, OLDER]), kind([KEY])
    assert opened(during, sealed(before)).payload == b"state"
    assert opened(after, sealed(during)).payload == b"state"
    assert refusal(before, sealed(during)) in {"unknown key", "forged"}
    assert refusal(after, sealed(before)) in {"unknown key", "forged"}


@both
def test_a_ring_opens_its_tokens_in_any_order(kind: Kind) -> None:
    for seals in (KEY, OLDER, STRANGER):
        for ring in ([KEY, OLDER, STRANGER], [STRANGER, OLDER, KEY], [OLDER, OLDER, KEY, STRANGER]):
            assert opened(kind(ring), sealed(kind([seals]))).payload == b"state"


@both
def test_a_new_key_is_deployed_to_open_before_it_is_deployed_to_seal(kind: Kind) -> None:
    spread, promoted = kind([OLDER, KEY]), kind([KEY, OLDER])
    assert opened(spread, sealed(promoted)).payload == b"state"
    assert opened(promoted, sealed(spread)).payload == b"state"


@both
def test_a_key_is_the_same_as_text_as_bytes_and_alone_or_in_a_list(kind: Kind) -> None:
    token = sealed(kind([KEY]))
    for keys in (KEY, KEY.encode(), [KEY.encode()], (KEY,), f"  {KEY}\n"):
        assert opened(kind(keys), token).payload == b"state"


@both
@pytest.mark.parametrize("key", ["correct horse battery staple, twice over", b"\x00\xff" * 16, "é" * 16])
def test_any_text_or_bytes_of_32_bytes_can_be_a_key(kind: Kind, key: str | bytes) -> None:
    assert opened(kind(key), sealed(kind(key))).payload == b"state"


@both
@pytest.mark.parametrize("key", ["", "secret", "x" * 31, b"y" * 31, " " * 40])
def test_a_short_key_is_refused_with_the_way_to_a_good_one(kind: Kind, key: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"key 1 of 1 has \d+ bytes.* at least 32.*antiphon keygen"):
        kind(key)
    with pytest.raises(ValueError, match="key 2 of 2"):
        kind([KEY, key])


@pytest.mark.parametrize("key", [KEY[:-1], KEY[:-8], f"{KEY}A", KEY[:-1] + "+", KEY[:-2] + "=="])
def test_a_generated_key_that_was_copied_badly_is_refused_without_printing_it(key: str) -> None:
    with pytest.raises(ValueError, match="not a whole generated key") as caught:
        Seal([key])
    assert key[4:] not in str(caught.value)


def test_a_generated_key_is_recognisable_text() -> None:
    assert re.fullmatch(r"ak1_[A-Za-z0-9_-]{43}", generate_key(bytes(range(32))))
    assert generate_key(bytes(32)) != generate_key(b"\x01" * 32)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_a_key_is_made_from_exactly_32_random_bytes(size: int) -> None:
    with pytest.raises(ValueError, match=f"32 random bytes, not {size}"):
        generate_key(bytes(size))


@pytest.mark.parametrize("text", [f"{KEY},{OLDER}", f"{KEY} {OLDER}", f" {KEY} ,\n\t{OLDER}, ", f"{KEY}\n{OLDER}\n"])
def test_keys_are_read_from_commas_and_white_space(text: str) -> None:
    assert parse_keys(text) == [KEY, OLDER]


@pytest.mark.parametrize("text", ["", " \n", ",", " , ,"])
def test_no_text_is_no_keys(text: str) -> None:
    assert parse_keys(text) == []


def test_a_bad_key_is_named_by_its_place_and_never_printed() -> None:
    with pytest.raises(ValueError, match="key 2 of 3 has 7 bytes") as caught:
        parse_keys(f"{KEY}, hunter2, {OLDER}")
    for secret in (KEY[4:], "hunter2", OLDER[4:]):
        assert secret not in str(caught.value)


@both
def test_a_codec_does_not_show_its_keys(kind: Kind) -> None:
    shown = repr(kind([KEY, OLDER]))
    assert KEY[4:] not in shown
    assert OLDER[4:] not in shown
    assert "ttl=600" in shown


def test_a_seal_without_keys_takes_them_later_and_keeps_its_policy() -> None:
    policy = Seal(ttl=5, audience="https://api.example", single_use=True, max_bytes=1000)
    assert not policy.has_keys
    assert refusal(policy, sealed(Seal(KEY))) == "unknown key"
    with pytest.raises(ValueError, match="ANTIPHON_KEYS"):
        sealed(policy)
    keyed = policy.with_keys([KEY])
    assert keyed.has_keys
    assert (keyed.ttl, keyed.audience, keyed.single_use, keyed.max_bytes) == (5, "https://api.example", True, 1000)
    assert opened(keyed, sealed(keyed)).payload == b"state"


def test_a_signed_state_needs_a_key() -> None:
    with pytest.raises(ValueError, match="no key to seal with"):
        SignedState([])


def test_a_codec_s_policy_can_be_read() -> None:
    for codec in (Seal(KEY, audience="here", single_use=True), SignedState(KEY, audience="here", single_use=True)):
        assert (codec.ttl, codec.audience, codec.single_use, codec.max_bytes) == (600, "here", True, 65536)


def test_cryptography_is_imported_when_a_seal_is_first_used() -> None:
    script = (
        "import sys; from antiphon.rounds.token import Seal\n"
        f"s = Seal([{KEY!r}]); assert 'cryptography' not in sys.modules\n"
        "s.seal(b'', bound_to=b'', now=0, entropy=bytes(12)); assert 'cryptography' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


# Arguments the caller gets wrong


@both
@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
def test_a_time_to_live_is_positive_and_finite(kind: Kind, ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl is a number of seconds above 0"):
        kind(KEY, ttl=ttl)
    with pytest.raises(ValueError, match="ttl is a number of seconds above 0"):
        kind(KEY).seal(b"", bound_to=CALL, now=NOW, ttl=ttl, entropy=ENTROPY)


@both
@pytest.mark.parametrize("size", [0, 11, 13, 16])
def test_a_token_takes_twelve_random_bytes(kind: Kind, size: int) -> None:
    with pytest.raises(ValueError, match=f"12 random bytes, fresh for every token, not {size}"):
        sealed(kind(KEY), entropy=bytes(size))


# Sizes


@both
def test_max_bytes_bounds_the_token_to_the_byte(kind: Kind) -> None:
    payload = random.Random(1).randbytes(700)
    token = sealed(kind(KEY), payload)
    exact, short = kind(KEY, max_bytes=len(token)), kind(KEY, max_bytes=len(token) - 1)
    assert sealed(exact, payload) == token
    assert opened(exact, token).payload == payload
    assert refusal(short, token) == "too large"
    with pytest.raises(StateTooLarge) as caught:
        sealed(short, payload)
    assert (caught.value.payload, caught.value.token, caught.value.limit) == (700, len(token), len(token) - 1)


@both
def test_a_huge_token_is_refused_unread(kind: Kind) -> None:
    assert refusal(kind(KEY), "\ud800" * 65537) == "too large"
    assert refusal(kind(KEY), "ap1." + "A" * 65533) == "too large"


def test_a_state_that_inflates_beyond_the_bound_is_never_sealed() -> None:
    codec = Seal(KEY, max_bytes=1000)
    assert opened(codec, sealed(codec, bytes(16_000))).payload == bytes(16_000)
    with pytest.raises(StateTooLarge):
        sealed(codec, bytes(16_001))


def test_a_compression_bomb_is_refused_without_inflating_it() -> None:
    bomb = sealed(Seal(KEY, max_bytes=1 << 21), bytes(1 << 24))
    narrow = Seal(KEY, max_bytes=len(bomb))
    tracemalloc.start()
    try:
        assert refusal(narrow, bomb) == "too large"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 22


def compressed_by_the_key_s_holder(packed: bytes) -> str:
    codec = Seal(KEY)
    head = raw_bytes(sealed(codec))[:4] + b"\x01"
    expiry = module._EXPIRY.pack(NOW + 60)
    text = codec._cipher(head[:4]).encrypt(ENTROPY, expiry + packed, b"ap1." + head + CALL)
    return token_of(head + ENTROPY + text)


def deflated(payload: bytes) -> bytes:
    return zlib.compress(payload, 1, wbits=-15)


@pytest.mark.parametrize("packed", [b"", b"\xff" * 20, deflated(b"x" * 2000)[:-1], deflated(b"x" * 2000) + b"more"])
def test_a_broken_compressed_state_is_malformed_even_if_it_is_authentic(packed: bytes) -> None:
    assert refusal(Seal(KEY), compressed_by_the_key_s_holder(packed)) == "malformed"


def test_the_same_way_with_a_whole_compressed_state_opens() -> None:
    assert opened(Seal(KEY), compressed_by_the_key_s_holder(deflated(b"x" * 2000))).payload == b"x" * 2000


# The readable kind


def test_a_signed_state_can_be_read_by_anyone() -> None:
    token = sealed(SignedState(KEY, ttl=60), b'{"step":"confirmed"}\nsecond line')
    claims, payload = raw_bytes(token.partition(".")[0]).split(b"\n", 1)
    assert json.loads(claims) == {"exp": NOW + 60, "id": ENTROPY.hex()}
    assert payload == b'{"step":"confirmed"}\nsecond line'


def test_a_signed_state_edited_by_a_reader_is_refused() -> None:
    text, _, mac = sealed(SignedState(KEY), b'{"role":"guest"}').partition(".")
    edited = base64.urlsafe_b64encode(raw_bytes(text).replace(b"guest", b"admin")).rstrip(b"=").decode()
    assert refusal(SignedState(KEY), f"{edited}.{mac}") == "forged"
    assert refusal(SignedState(KEY), f"{text}.") == "forged"
    assert refusal(SignedState(KEY), f".{mac}") == "forged"
    assert refusal(SignedState(KEY), f"{text}.{mac}.{mac}") == "forged"
    assert refusal(SignedState(KEY), text) == "malformed"


@pytest.mark.parametrize("body", [b"", b"{}\n", b"[]\n", b'{"exp":"soon","id":""}\n', b'{"exp":9e99,"id":"no hex"}\n'])
def test_claims_that_cannot_be_read_are_malformed_even_if_they_are_authentic(body: bytes) -> None:
    codec = SignedState(KEY)
    text = module._armour(body)
    mac = module._mac(codec._ring[0][1], CALL, text.encode()).decode()
    assert refusal(codec, f"{text}.{mac}") == "malformed"


# What a token is bound to

texts = st.text(max_size=8)
maybe = st.none() | texts
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=4)
calls = st.fixed_dictionaries(
    {"method": texts, "name": texts, "arguments": st.none() | objects, "audience": maybe, "principal": maybe}
)


def same_call(one: dict[str, object], other: dict[str, object]) -> bool:
    def canonical(call: dict[str, object]) -> str:
        return json.dumps({**call, "arguments": call["arguments"] or {}}, sort_keys=True)

    return canonical(one) == canonical(other)


@given(one=calls, other=calls)
def test_two_calls_have_one_binding_only_if_they_are_the_same(one: dict[str, object], other: dict[str, object]) -> None:
    assert (binding(**one) == binding(**other)) == same_call(one, other)  # type: ignore[arg-type]


@given(call=calls, field=st.sampled_from(["method", "name", "audience", "principal"]), other=texts)
def test_changing_one_field_changes_the_binding(call: dict[str, object], field: str, other: str) -> None:
    assume(call[field] != other)
    assert binding(**call) != binding(**{**call, field: other})  # type: ignore[arg-type]


def shuffled(arguments: dict[str, object], rng: random.Random) -> object:
    return json.loads(json.dumps(arguments), object_pairs_hook=lambda pairs: dict(rng.sample(pairs, len(pairs))))


@given(arguments=objects, rng=st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter_at_any_depth(arguments: dict[str, object], rng: random.Random) -> None:
    def bound(value: object) -> bytes:
        return binding(method="tools/call", name="t", arguments=value, audience=None, principal=None)

    assert bound(arguments) == bound(shuffled(arguments, rng))


def test_the_order_of_a_list_matters() -> None:
    def bound(value: object) -> bytes:
        return binding(method="tools/call", name="t", arguments=value, audience=None, principal=None)

    assert bound({"a": [1, 2]}) != bound({"a": [2, 1]})
    assert bound({"a": 1}) != bound({"a": "1"}) != bound({"a": True})


def test_absent_arguments_are_an_empty_object() -> None:
    def bound(value: object) -> bytes:
        return binding(method="tools/call", name="t", arguments=value, audience=None, principal=None)

    assert bound(None) == bound({})
    assert bound(None) != bound({"a": None})


@given(left=texts, right=texts, cut=st.integers(0, 8))
def test_text_cannot_move_from_one_field_to_the_next(left: str, right: str, cut: int) -> None:
    joined = left + right
    moved_left, moved_right = joined[:cut], joined[cut:]
    assume(moved_left != left)

    def bound(method: str, name: str) -> bytes:
        return binding(method=method, name=name, arguments=None, audience=None, principal=None)

    assert bound(left, right) != bound(moved_left, moved_right)


def test_no_caller_and_an_empty_name_are_different() -> None:
    seen = {
        binding(method="tools/call", name="t", arguments=None, audience=audience, principal=principal)
        for audience in (None, "", "-", "0:")
        for principal in (None, "", "-", "0:")
    }
    assert len(seen) == 16


@given(one=st.binary(max_size=64), other=st.binary(max_size=64))
def test_a_value_is_found_by_its_marks_which_do_not_tell_it(one: bytes, other: bytes) -> None:
    older, newer = Seal(OLDER), Seal([KEY, OLDER])
    assert newer.marks(one)[1:] == older.marks(one)
    assert len({*newer.marks(one), *newer.marks(other)}) == (2 if one == other else 4)
    assert all(re.fullmatch("[0-9a-f]{48}", mark) for mark in newer.marks(one))
