"""The Link: three methods are enough, and what wraps a link with a session passes all of it on."""

import pytest

from antiphon import Client, Link
from antiphon.transports.link import Around, Caller, SessionLink, session_of
from antiphon.wire.revisions import REVISION


class Three:
    """A Link of a user's own."""

    def __init__(self):
        self.did = []

    async def open(self):
        self.did.append("open")

    async def request(self, message, *, headers, on_notification=None):
        self.did.append(message["method"])
        return {"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", "contents": []}}

    async def close(self):
        self.did.append("close")


class Stateful(Three, SessionLink):
    """A Link with a session."""

    revision = "2025-06-18"

    def introduce(self, caller):
        self.did.append(("introduce", caller))

    def abandon(self, state, why):
        self.did.append(("abandon", state, why))

    def moot(self, state):
        self.did.append(("moot", state))


async def test_a_link_of_three_methods_is_enough():
    link = Three()
    assert isinstance(link, Link)
    async with Client(link) as client:
        await client.read_resource("a:b")
        assert (client.era, client.protocol_version) == ("modern", REVISION)
    assert link.did == ["open", "resources/read", "close"]


@pytest.mark.parametrize("make", [session_of, Around, lambda link: Around(Around(link))])
def test_a_link_of_three_methods_gets_the_defaults_of_a_session(make):
    link = make(Three())
    assert (link.revision, link.stateful) == (REVISION, False)
    link.introduce(Caller({}, print, print))
    link.abandon("state", ValueError())
    assert link.moot("state") is None


def test_a_link_with_a_session_is_taken_as_it_is():
    link = Stateful()
    assert session_of(link) is link


async def test_what_is_around_a_link_passes_everything_on():
    inner, caller, fault = Stateful(), Caller({}, print, print), ValueError()
    link = Around(Around(inner))
    assert (link.revision, link.stateful) == ("2025-06-18", True)
    link.introduce(caller)
    await link.open()
    await link.request({"id": 1, "method": "ping"}, headers={})
    link.abandon("state", fault)
    link.moot("state")
    await link.close()
    assert inner.did == [
        ("introduce", caller),
        "open",
        "ping",
        ("abandon", "state", fault),
        ("moot", "state"),
        "close",
    ]
