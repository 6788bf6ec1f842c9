"""The tables of an HTTP connection's states, read as a whole."""

import asyncio
from types import SimpleNamespace

import pytest

from antiphon.http import states
from antiphon.http.connection import ServerConnection
from antiphon.http.states import READING, WRITING, Reading, Writing

TABLES = [(READING, Reading), (WRITING, Writing)]
NAMES = {id(event): name for name, event in vars(states).items() if name.isupper()}
REFUSED = {
    # A request begins where none is arriving.
    "BEGIN": states.ARRIVING,
    # It is taken when its head has arrived.
    "TAKE": set(Reading) - {Reading.HEAD},
    "TAKE_LAST": set(Reading) - {Reading.HEAD},
    # It completes after it began, and a response ends the connection only after a request.
    "COMPLETE": {Reading.NEW, Reading.IDLE},
    "END": {Reading.NEW},
    # The server may stop at any time, and refuse.
    "REFUSE": set(),
    "STOP": set(),
    # One response at a time, and none after the end.
    "START": set(Writing) - {Writing.FREE},
    "FINISH": set(Writing) - {Writing.ANSWERING},
    "LINGER": set(Writing) - {Writing.FREE},
    "CLOSE": set(),
}


def reachable(events, start):
    found = {start}
    while more := {event[state] for event in events for state in found if state in event} - found:
        found |= more
    return found


def test_each_event_is_defined_for_each_state_or_refused():
    refused = {NAMES[id(event)]: set(kind) - set(event) for events, kind in TABLES for event in events}
    assert refused == REFUSED


@pytest.mark.parametrize(("events", "kind"), TABLES, ids=["reading", "writing"])
def test_every_state_is_reached_from_the_first_and_comes_to_an_end(events, kind):
    first, *_, last = kind
    assert reachable(events, first) == set(kind)
    assert all(last in reachable(events, state) for state in kind)
    assert reachable(events, last) == {last}
    assert all(isinstance(state, kind) for event in events for pair in event.items() for state in pair)


@pytest.mark.parametrize("final", [states.ENDED, states.ENDING], ids=["ended", "ending"])
def test_reading_that_ends_does_not_begin_again(final):
    assert all(reachable(READING, state) <= final for state in final)


def test_the_names_are_those_of_the_members():
    assert all(getattr(states, member.name) is member for kind in (Reading, Writing) for member in kind)


async def test_a_transition_that_is_not_in_the_table_raises():
    config = SimpleNamespace(loaded_app=None, root_path="", limit_concurrency=None, timeout_keep_alive=5)
    state = SimpleNamespace(connections=set(), tasks=set(), total_requests=0, default_headers=[])
    connection = ServerConnection(config, state, {}, asyncio.get_running_loop())
    with pytest.raises(KeyError):
        connection.on_message_complete()
    connection.on_message_begin()
    with pytest.raises(KeyError):
        connection.on_message_begin()
    with pytest.raises(KeyError):
        connection.finish()
