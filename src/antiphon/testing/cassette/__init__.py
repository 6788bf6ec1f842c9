"""Cassettes: record a conversation, replay it to a client, or verify a server with it."""

from antiphon.testing.cassette.format import Cassette, CassetteBroken, CassetteEntry, CassetteTurn
from antiphon.testing.cassette.links import Player, Recorder
from antiphon.testing.cassette.matching import Drift, Drifted

__all__ = ["Cassette", "CassetteBroken", "CassetteEntry", "CassetteTurn", "Drift", "Drifted", "Player", "Recorder"]
