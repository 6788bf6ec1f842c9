"""Servers for the tests of calls: processes that serve a file over HTTP."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("antiphon"))
CLINIC = Path(__file__).with_name("clinic.py")
ODD = Path(__file__).with_name("odd.py")
PATIENCE = 20.0


@contextlib.contextmanager
def served(file=CLINIC, *, port=0, env=None):
    """The URL of a server that runs as long as the context."""
    process = subprocess.Popen(
        [SCRIPT, "serve", str(file), "--http", "--port", str(port)],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    impatience = threading.Timer(PATIENCE, process.kill)
    impatience.start()
    heard = ""
    try:
        for line in process.stderr:
            heard += line
            if line.startswith("Serving "):
                break
        else:
            raise AssertionError(f"it does not serve: {heard}")
        impatience.cancel()
        yield line.split()[-1]
    finally:
        impatience.cancel()
        process.terminate()
        try:
            process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()
