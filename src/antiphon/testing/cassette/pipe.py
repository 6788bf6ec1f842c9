"""Playing on standard streams: a line in, the recorded lines out."""

import sys

from antiphon.testing.cassette.scribe import read_line
from antiphon.testing.cassette.stage import Cue, Stage, Visitor
from antiphon.types import JsonObject
from antiphon.wire.jsonrpc import encode


def play(stage: Stage) -> None:
    """Answer the client on standard streams until its input ends, or it no longer listens."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    visitor = Visitor()
    for line in iter(source.readline, b""):
        message = read_line(line)
        if message is None:
            continue
        try:
            for cue in stage.heard(visitor, message):
                sink.write(encode(message_of(cue)) + b"\n")
            sink.flush()
        except OSError:
            return


def message_of(cue: Cue) -> JsonObject:
    """What a pipe says where HTTP has a status without a message."""
    if cue.message is not None:
        return cue.message
    text = cue.text or f"The server answered with HTTP status {cue.status}"
    return {"jsonrpc": "2.0", "id": cue.to, "error": {"code": -32603, "message": text}}
