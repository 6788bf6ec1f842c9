"""Cassettes: record a conversation, play it to a client, or hold a server to it."""

from antiphon.testing.cassette.drift import Drift, Drifted
from antiphon.testing.cassette.player import Player
from antiphon.testing.cassette.recorder import Recorder
from antiphon.testing.cassette.tape import Cassette, CassetteBroken, Entry, Turn

__all__ = ["Cassette", "CassetteBroken", "Drift", "Drifted", "Entry", "Player", "Recorder", "Turn"]
