"""Two runs of a step are one only if the same led to both."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from antiphon.rounds.journal import Answered, AskedQuestion, Journal
from antiphon.rounds.step_identity import step_identity

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
names = st.text(max_size=6)
answers = st.dictionaries(
    names, st.binary(max_size=8).map(lambda data: Answered(b"print", data, read=True)), max_size=4
)
steps = st.dictionaries(names, st.binary(max_size=8), max_size=4)
asked = st.dictionaries(names, st.just(AskedQuestion(b"print")), max_size=3)
journals = st.builds(
    Journal, flow=st.binary(min_size=12, max_size=12), answers=answers, steps=steps, asked=asked, state=st.none()
)
arrivals = st.dictionaries(names, values, max_size=3)
arguments = st.lists(values, max_size=3)
keywords = st.dictionaries(names, values, max_size=3)


def reordered(items: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(items.items()))


@given(journals, arrivals, names, arguments, keywords)
def test_the_same_in_any_order_is_the_same(
    journal: Journal, arrived: dict[str, Any], key: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    other = Journal(
        flow=journal.flow,
        asked=reordered(journal.asked),
        answers=reordered(journal.answers),
        steps=reordered(journal.steps),
    )
    assert step_identity(journal.pack(), arrived, key, args, kwargs) == step_identity(
        other.pack(), reordered(arrived), key, tuple(args), reordered(kwargs)
    )


@given(journals, arrivals, names, arguments, keywords)
def test_a_readable_token_has_the_identities_of_a_sealed_one(
    journal: Journal, arrived: dict[str, Any], key: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    journal.answers = {name: Answered(b"print", b'"text"') for name in journal.answers}
    journal.steps = dict.fromkeys(journal.steps, b"1")
    sealed = step_identity(journal.pack(), arrived, key, args, kwargs)
    assert sealed == step_identity(journal.pack(readable=True), arrived, key, args, kwargs)


@given(st.data(), journals, arrivals, names, arguments, keywords)
def test_whatever_differs_makes_another_identity(
    data: st.DataObject,
    journal: Journal,
    arrived: dict[str, Any],
    key: str,
    args: list[Any],
    kwargs: dict[str, Any],
) -> None:
    before = step_identity(journal.pack(), arrived, key, args, kwargs)
    name = data.draw(names)
    match data.draw(st.sampled_from(["flow", "answer", "step", "state", "arrived", "key", "argument", "keyword"])):
        case "flow":
            journal.flow = bytes([journal.flow[0] ^ 1]) + journal.flow[1:]
        case "answer":
            old = journal.answers.get(name, Answered(b"", b""))
            journal.answers = {**journal.answers, name: Answered(old.fingerprint, old.response + b" ", read=old.read)}
        case "step":
            journal.steps = {**journal.steps, name: journal.steps.get(name, b"") + b" "}
        case "state":
            journal.state = b"1"
        case "arrived":
            arrived = {**arrived, name: [arrived.get(name)]}
        case "key":
            key += name or "more"
        case "argument":
            args = [*args, data.draw(values)]
        case _:
            kwargs = {**kwargs, name: [kwargs.get(name)]}
    assert step_identity(journal.pack(), arrived, key, args, kwargs) != before


def identity(*args: Any, **kwargs: Any) -> str:
    return step_identity(Journal(b"f" * 12).pack(), {}, "key", args, kwargs)


def test_arguments_do_not_run_into_each_other() -> None:
    told = [identity("a", "b"), identity(["a", "b"]), identity("ab"), identity("a", b="b"), identity(a="a", b="b")]
    told += [identity(1), identity(True), identity("1"), identity(1.0), identity()]
    assert len(set(told)) == len(told)


class Connection:
    """Not data, and another object in every process."""


@dataclass
class Order:
    price: int
    over: Connection


def test_what_is_no_data_counts_by_its_type() -> None:
    assert identity(Connection(), 1) == identity(Connection(), 1) != identity(Connection(), 2)
    assert identity(Connection()) != identity(object())
    assert identity([{"over": Connection()}]) == identity([{"over": Connection()}])
    assert identity(Order(1, Connection())) == identity(Order(1, Connection())) != identity(Order(2, Connection()))
    assert identity(lambda: 1) == identity(lambda: 2)
    loop: list[Any] = []
    loop.append(loop)
    assert identity(loop) == identity(loop)
    assert identity("\ud800") == identity("\ud800")
    assert identity({Connection: 1}) == identity({Connection: 1})


def test_another_process_finds_the_same_identity() -> None:
    code = (
        "from antiphon.rounds.step_identity import step_identity as identity\n"
        "from antiphon.rounds.journal import Journal\n"
        "values = [{'a', 'b', 'c', 'd'}, {'x': 1, 'y': 2}, 2**70, b'\\xff', object(), {1, 'a', None}]\n"
        "print(identity(Journal(b'f' * 12).pack(), {}, 'key', values, {}))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(told) == 1
