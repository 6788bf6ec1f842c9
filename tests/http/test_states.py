"""The tables of an HTTP connection's states, read as a whole."""

import asyncio
from types import SimpleNamespace

import pytest

from antiphon.http import states
from antiphon.http.connection import ServerConnection
from antiphon.http.states import READING, WRITING, ReadEvent, Reading, WriteEvent, Writing

TABLES = {"reading": (READING, Reading, ReadEvent), "writing": (WRITING, Writing, WriteEvent)}
REFUSED = {
    "reading": {
        # A request begins where none is arriving.
        *((state, ReadEvent.BEGIN) for state in states.ARRIVING),
        # It is taken when its head has arrived.
        *((state, event) for state in set(Reading) - {Reading.HEAD} for event in (ReadEvent.TAKE, ReadEvent.TAKE_LAST)),
        # It completes after it began, and a response ends the connection only after a request.
        (Reading.NEW, ReadEvent.COMPLETE),
        (Reading.IDLE, ReadEvent.COMPLETE),
        (Reading.NEW, ReadEvent.END),
    },
    "writing": {
        # One response at a time, and none after the end.
        *((state, WriteEvent.START) for state in set(Writing) - {Writing.FREE}),
        *((state, WriteEvent.FINISH) for state in set(Writing) - {Writing.ANSWERING}),
        *((state, WriteEvent.LINGER) for state in set(Writing) - {Writing.FREE}),
    },
}


def reachable(table, start):
    found = {start}
    while more := {after for state in found for after in table[state].values()} - found:
        found |= more
    return found


@pytest.mark.parametrize("name", TABLES)
def test_each_event_is_defined_for_each_state_or_refused(name):
    table, kind, events = TABLES[name]
    assert set(table) == set(kind)
    missing = {(state, event) for state in kind for event in events if event not in table[state]}
    assert missing == REFUSED[name]
    assert all(isinstance(after, kind) for row in table.values() for after in row.values())


@pytest.mark.parametrize("name", TABLES)
def test_every_state_is_reached_from_the_first_and_comes_to_an_end(name):
    table, kind, _ = TABLES[name]
    first, *_, last = kind
    assert reachable(table, first) == set(kind)
    assert all(last in reachable(table, state) for state in kind)
    assert reachable(table, last) == {last}


@pytest.mark.parametrize("final", [states.ENDED, states.ENDING], ids=["ended", "ending"])
def test_reading_that_ends_does_not_begin_again(final):
    assert all(reachable(READING, state) <= final for state in final)


def test_the_names_are_those_of_the_members():
    for kind in (Reading, ReadEvent, Writing, WriteEvent):
        assert all(getattr(states, member.name) is member for member in kind)


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
