"""Spoil a million tokens: `make fuzz`.

Seals states for random calls, spoils each token in many ways, and demands that every spoiled one is refused with
`SealBroken` and every untouched one opens. The same seed makes the same trials; a failure is printed as its recipe.
"""

import argparse
import base64
import binascii
import random
import string
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import get_args

from antiphon.rounds.token import Reason, Seal, SealBroken, SignedState, binding, generate_key

NOW = 1_790_000_000.0
TTL = 600.0
ALPHABET = string.ascii_letters + string.digits + "-_"
SPOILS_PER_TOKEN = 50
ENOUGH_FAILURES = 20
UNTOUCHED = "untouched"
OPENED = "opened"
REFUSALS = get_args(Reason)

Codec = Seal | SignedState


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    method: str
    name: str
    arguments: dict[str, object]
    audience: str | None
    principal: str | None

    def bound(self) -> bytes:
        return binding(
            method=self.method,
            name=self.name,
            arguments=self.arguments,
            audience=self.audience,
            principal=self.principal,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A token and everything with which it opens."""

    codec: Codec
    stranger: Codec
    call: Call
    payload: bytes
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What is presented to `open`; with the call and not its binding, which is itself under test."""

    codec: Codec
    token: str
    call: Call | bytes
    now: float

    def bound_to(self) -> bytes:
        return self.call if isinstance(self.call, bytes) else self.call.bound()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    name: str
    sealed: Sealed
    attempt: Attempt


Spoil = Callable[[random.Random, Sealed, Sealed], Attempt]


def plain(sealed: Sealed) -> Attempt:
    return Attempt(codec=sealed.codec, token=sealed.token, call=sealed.call, now=NOW + 1)


def with_token(sealed: Sealed, token: str) -> Attempt:
    return replace(plain(sealed), token=token)


def with_call(sealed: Sealed, call: Call) -> Attempt:
    return replace(plain(sealed), call=call)


# Where the protected bytes of a token lie: after the version of a `Seal`, before the MAC of a `SignedState`.
def body_of(sealed: Sealed) -> tuple[str, str, str]:
    if isinstance(sealed.codec, Seal):
        return sealed.token[:4], sealed.token[4:], ""
    text, dot, mac = sealed.token.partition(".")
    return "", text, dot + mac


def decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def flip_a_bit_of_the_bytes(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    before, body, after = body_of(sealed)
    raw = bytearray(decoded(body))
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    return with_token(sealed, before + encoded(bytes(raw)) + after)


def flip_a_bit_of_the_text(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    place = rng.randrange(len(sealed.token))
    flipped = chr(ord(sealed.token[place]) ^ 1 << rng.randrange(8))
    return with_token(sealed, sealed.token[:place] + flipped + sealed.token[place + 1 :])


def change_several_bytes(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    before, body, after = body_of(sealed)
    raw = bytearray(decoded(body))
    for _change in range(rng.randint(2, 8)):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return with_token(sealed, before + encoded(bytes(raw)) + after)


def truncate(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    start, end = (0, rng.randrange(len(sealed.token))) if rng.random() < 0.8 else (rng.randint(1, 8), None)
    return with_token(sealed, sealed.token[start:end])


def extend(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    extra = "".join(rng.choices(ALPHABET + ".=+/ \n\0", k=rng.randint(1, 12)))
    return with_token(sealed, rng.choice([sealed.token + extra, extra + sealed.token]))


def insert(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    place = rng.randint(0, len(sealed.token))
    extra = rng.choice([*ALPHABET, ".", "=", " ", "\n", "\t", "\0", "\\", '"', "\u200b", "\ufeff"])
    return with_token(sealed, sealed.token[:place] + extra + sealed.token[place:])


def swap_two_characters(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    characters = list(sealed.token)
    one, other = rng.randrange(len(characters)), rng.randrange(len(characters))
    characters[one], characters[other] = characters[other], characters[one]
    return with_token(sealed, "".join(characters))


def splice(rng: random.Random, sealed: Sealed, other: Sealed) -> Attempt:
    cut = rng.randint(1, min(len(sealed.token), len(other.token)) - 1)
    return with_token(
        sealed, rng.choice([sealed.token[:cut] + other.token[cut:], other.token[:cut] + sealed.token[cut:]])
    )


def splice_the_parts(rng: random.Random, sealed: Sealed, other: Sealed) -> Attempt:
    """Key id, flags, nonce or tag of one token in another: the seams an attacker who read the source would try."""
    before, body, after = body_of(sealed)
    ours, theirs = decoded(body), decoded(body_of(other)[1])
    start, end = rng.choice([(0, 4), (4, 5), (5, 17), (0, 5), (0, 17), (17, 25), (-16, None)])
    spliced = bytearray(ours)
    spliced[start:end] = theirs[start:end]
    return with_token(sealed, before + encoded(bytes(spliced)) + after)


def present_another_token(_: random.Random, sealed: Sealed, other: Sealed) -> Attempt:
    return with_token(sealed, other.token)


def rebind_method(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return with_call(sealed, replace(sealed.call, method=rng.choice(["", "tools/list", sealed.call.method + "x"])))


def rebind_name(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return with_call(sealed, replace(sealed.call, name=rng.choice(["", "destroy", sealed.call.name + "x"])))


def rebind_arguments(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    others: list[object] = [None, True, "other", 7, [7], {"env": "prod"}]
    arguments = {**sealed.call.arguments, rng.choice(["env", "force", ""]): rng.choice(others)}
    return with_call(sealed, replace(sealed.call, arguments=arguments))


def rebind_audience(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return with_call(sealed, replace(sealed.call, audience=rng.choice([None, "", "https://other.example"])))


def rebind_principal(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return with_call(sealed, replace(sealed.call, principal=rng.choice([None, "", "eve"])))


def rebind_raw_bytes(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    bound_to = bytearray(sealed.call.bound())
    bound_to[rng.randrange(len(bound_to))] ^= 1 << rng.randrange(8)
    return replace(plain(sealed), call=rng.choice([b"", bytes(bound_to), bytes(bound_to) + b"\0"]))


def use_another_key(_: random.Random, sealed: Sealed, __: Sealed) -> Attempt:
    return replace(plain(sealed), codec=sealed.stranger)


def come_late(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return replace(plain(sealed), now=NOW + TTL + rng.choice([0.0, 0.001, 1.0, 1e6, 1e300, float("inf"), float("nan")]))


def use_another_alphabet(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    before, body, after = body_of(sealed)
    raw = decoded(body)
    written = rng.choice(
        [
            body.replace("-", "+").replace("_", "/"),
            body + "=" * (-len(body) % 4 or 4),
            binascii.b2a_base64(raw).decode("ascii"),
            base64.b32encode(raw).decode("ascii"),
            raw.hex(),
            raw.decode("latin-1"),
            body.swapcase(),
            "".join(chr(ord(character) + 0xFEE0) for character in body),
            "".join(f"%{ord(character):02X}" for character in body),
            body[:-1] + chr(0xD800 + rng.randrange(0x800)),
        ]
    )
    return with_token(sealed, before + written + after)


def set_unused_bits(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    end = rng.choice([len(sealed.token), len(sealed.token.partition(".")[0])])
    return with_token(sealed, sealed.token[: end - 1] + rng.choice(ALPHABET) + sealed.token[end:])


def write_random_text(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    length = rng.randint(0, 300)
    written = rng.choice(
        [
            "".join(rng.choices(ALPHABET, k=length)),
            "".join(rng.choices(string.printable, k=length)),
            "".join(chr(rng.randrange(0x110000)) for _ in range(length)),
            encoded(rng.randbytes(length)),
        ]
    )
    return with_token(sealed, rng.choice(["", "ap1.", "ap2.", "ap1", sealed.token[:10]]) + written)


def overflow(rng: random.Random, sealed: Sealed, _: Sealed) -> Attempt:
    return with_token(sealed, sealed.token + "A" * (sealed.codec.max_bytes - len(sealed.token) + rng.randint(1, 9)))


SPOILS: tuple[Spoil, ...] = (
    flip_a_bit_of_the_bytes,
    flip_a_bit_of_the_text,
    change_several_bytes,
    truncate,
    extend,
    insert,
    swap_two_characters,
    splice,
    splice_the_parts,
    present_another_token,
    rebind_method,
    rebind_name,
    rebind_arguments,
    rebind_audience,
    rebind_principal,
    rebind_raw_bytes,
    use_another_key,
    come_late,
    use_another_alphabet,
    set_unused_bits,
    write_random_text,
)
# An overflowing token is 64 KB long, so there are few.
OVERFLOWS = 0.002


def some_call(rng: random.Random) -> Call:
    return Call(
        method=rng.choice(["tools/call", "prompts/get", "resources/read"]),
        name=rng.choice(["deploy", "provision", "file:///etc/motd"]) + str(rng.randrange(1000)),
        arguments={"env": f"env-{rng.randrange(1000)}", "replicas": rng.randrange(9)},
        audience=f"https://{rng.randrange(1000)}.example",
        principal=f"user-{rng.randrange(1000)}",
    )


def some_payload(rng: random.Random) -> bytes:
    kind = rng.randrange(20)
    if kind == 0:
        return rng.randbytes(rng.randint(1025, 3000))
    if kind <= 2:
        return rng.randbytes(8) * rng.randint(200, 600)
    return rng.randbytes(rng.randint(0, 400))


def codecs(rng: random.Random) -> list[tuple[Codec, Codec]]:
    """Rings, each with one that shares no key with it."""
    keys = [generate_key(rng.randbytes(32)) for _ in range(6)]
    return [
        (Seal(keys[:1], ttl=TTL), Seal(keys[3:], ttl=TTL)),
        (Seal(keys[:3], ttl=TTL), Seal(keys[3:], ttl=TTL)),
        (SignedState(keys[0], ttl=TTL), SignedState(keys[3:], ttl=TTL)),
        (SignedState(keys[:3], ttl=TTL), SignedState(keys[3], ttl=TTL)),
    ]


def some_token(rng: random.Random, rings: list[tuple[Codec, Codec]]) -> Sealed:
    codec, stranger = rng.choice(rings)
    call, payload = some_call(rng), some_payload(rng)
    token = codec.seal(payload, bound_to=call.bound(), now=NOW, entropy=rng.randbytes(12))
    return Sealed(codec=codec, stranger=stranger, call=call, payload=payload, token=token)


def spoiled(rng: random.Random, sealed: Sealed, other: Sealed) -> Trial:
    """An attempt that differs from the honest one; some spoils happen to change nothing."""
    honest = plain(sealed)
    while True:
        spoil = overflow if rng.random() < OVERFLOWS else rng.choice(SPOILS)
        attempt = spoil(rng, sealed, other)
        if attempt != honest:
            return Trial(name=spoil.__name__, sealed=sealed, attempt=attempt)


def trials(rng: random.Random, count: int) -> Iterator[Trial]:
    """`count` spoiled tokens, and every token untouched before it is spoiled."""
    rings = codecs(rng)
    sealed = some_token(rng, rings)
    for start in range(0, count, SPOILS_PER_TOKEN):
        sealed, other = some_token(rng, rings), sealed
        yield Trial(name=UNTOUCHED, sealed=sealed, attempt=plain(sealed))
        for _ in range(min(SPOILS_PER_TOKEN, count - start)):
            yield spoiled(rng, sealed, other)


def outcome(trial: Trial) -> str:
    attempt = trial.attempt
    try:
        opened = attempt.codec.open(attempt.token, bound_to=attempt.bound_to(), now=attempt.now)
    except SealBroken as broken:
        return broken.reason
    except Exception as fault:  # noqa: BLE001 - any other exception is what this program looks for
        return f"raised {fault!r}"
    return OPENED if opened.payload == trial.sealed.payload else "opened as something else"


def is_right(trial: Trial, came: str) -> bool:
    return came == OPENED if trial.name == UNTOUCHED else came in REFUSALS


def recipe(trial: Trial, number: int, came: str) -> str:
    sealed, attempt = trial.sealed, trial.attempt
    return (
        f"FAILED trial {number}, {trial.name}: {came}\n"
        f"  sealed by {sealed.codec!r} for {sealed.call}\n"
        f"  sealed    {sealed.token!r}\n"
        f"  presented {attempt.token!r}\n"
        f"  to        {attempt.codec!r} for {attempt.call!r} now={attempt.now}"
    )


def fuzz(*, seed: int, count: int, seconds: float) -> int:
    began = time.perf_counter()
    tried: Counter[str] = Counter()
    ended: Counter[str] = Counter()
    failed = 0
    for number, trial in enumerate(trials(random.Random(seed), count)):
        came = outcome(trial)
        tried[trial.name] += 1
        ended[came] += 1
        if not is_right(trial, came):
            failed += 1
            print(recipe(trial, number, came))
        if failed >= ENOUGH_FAILURES or time.perf_counter() - began > seconds:
            break
    took = time.perf_counter() - began
    table("tried", tried)
    table("came to", ended)
    untouched, total = tried[UNTOUCHED], tried.total()
    print(f"{total - untouched} spoiled and {untouched} untouched tokens in {took:.1f} s, {total / took:.0f} a second")
    print(f"{total - failed} passed, {failed} failed")
    return 1 if failed else 0


def table(title: str, counted: Counter[str]) -> None:
    print(title)
    for name, times in counted.most_common():
        print(f"{times:>9}  {name.replace('_', ' ')}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Spoil tokens and see that each one is refused.")
    parser.add_argument("--count", type=int, default=1_000_000, help="how many spoiled tokens (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=90, help="stop after this time (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=20260728, help="default: %(default)s")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    return fuzz(seed=given.seed, count=given.count, seconds=given.seconds)


if __name__ == "__main__":
    sys.exit(main())
