"""Cassettes: record a conversation, replay it to a client, or verify a server with it."""

from antiphon.testing.cassette.format import Cassette, CassetteBroken, Entry, Turn
from antiphon.testing.cassette.matching import Drift, Drifted
from antiphon.testing.cassette.recording import Recorder
from antiphon.testing.cassette.replay_link import Player

__all__ = ["Cassette", "CassetteBroken", "Drift", "Drifted", "Entry", "Player", "Recorder", "Turn"]
