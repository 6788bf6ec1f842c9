"""Starts the command in its arguments and relays its standard streams; notes every line in the file named first."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO


def relay(source: BinaryIO, sink: BinaryIO, mark: bytes) -> None:
    for line in source:
        note.write(mark + line)
        sink.write(line)
        sink.flush()
    sink.close()


with Path(sys.argv[1]).open("wb", buffering=0) as note:
    child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stdout is not None
    inward = threading.Thread(target=relay, args=(sys.stdin.buffer, child.stdin, b"> "), daemon=True)
    inward.start()
    relay(child.stdout, sys.stdout.buffer, b"< ")
    inward.join(5)
    sys.exit(child.wait())
