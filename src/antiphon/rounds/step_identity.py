"""The identity of a step in a store that instances share: two runs of a step are one only if the same led to both.

It is a digest of:

* the journal in the token that the request brought: the conversation, its answers, earlier results, and its state;
* the answers that came with the request;
* the step's key;
* the step's arguments, as far as they are data; of anything else only the type counts.

What happens while the request runs has no part in it, so tasks may do their steps and read their answers in any order.
A request that is sent again brings all of this again, to whichever instance. One that answers the same token otherwise
is a fork of the conversation, and runs its own steps.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b

import msgspec

from antiphon.rounds.journal import Journal


def step_identity(
    brought: bytes, arrived: Mapping[str, object], key: str, args: Sequence[object], kwargs: Mapping[str, object]
) -> str:
    """Return the identity. ``brought`` is the packed journal, which may list its entries in any order."""
    parts = [
        _data(Journal.unpack(brought)),
        _data(arrived),
        _data(key),
        *map(_data, args),
        b"",
        *(_data([name, _data(value)]) for name, value in sorted(kwargs.items())),
    ]
    counted = b"".join([b"%d:%b" % (len(part), part) for part in parts])
    return blake2b(counted, digest_size=16, person=b"antiphon step").hexdigest()


def _name_of_type(value: object) -> str:
    return f"<{type(value).__qualname__}>"


_encode = msgspec.json.Encoder(order="sorted", enc_hook=_name_of_type).encode


def _data(value: object) -> bytes:
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _encode(_name_of_type(value))
