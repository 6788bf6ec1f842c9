"""A terminal for tests: a real pseudo-terminal under a program, and a screen that shows what it draws."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pyte

PATIENCE = 15.0

ENTER, ESC, SPACE, BACKSPACE = "\r", "\x1b", " ", "\x7f"
UP, DOWN = "\x1b[A", "\x1b[B"
LISTENS, LISTENS_NO_MORE = b"\x1b[?2004h", b"\x1b[?2004l"
"""Bracketed paste, on while a prompt reads keys: what is typed before goes to the line discipline."""
CTRL_A, CTRL_C, CTRL_D, CTRL_K = "\x01", "\x03", "\x04", "\x0b"


class PseudoTerminal:
    """Runs a command in a terminal of its own: ``sees`` waits for text on the screen, ``types`` presses keys."""

    def __init__(self, command, *, cwd, env=None, columns=100, lines=60, stdout=None):
        self._own, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen = pyte.Screen(columns, lines)
        # A terminal answers when it is asked where its cursor is.
        self.screen.write_process_input = lambda data: os.write(self._own, data.encode())
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._mark = self._row = 0
        kept = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "CI", "ANTIPHON_KEYS"}}
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", **(env or {})},
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)

    def asks(self, *texts):
        """Wait for a new prompt, with these texts on the screen since the last key."""
        return self._wait(texts, lambda: self.raw.rfind(LISTENS) > max(self._mark - 1, self.raw.rfind(LISTENS_NO_MORE)))

    def sees(self, *texts):
        """Wait until these texts stand on the screen, below where the last key was pressed."""
        return self._wait(texts, lambda: True)

    def types(self, *keys):
        self._mark, self._row = len(self.raw), self.screen.cursor.y
        for key in keys:
            os.write(self._own, key.encode())
        return self

    def ends(self):
        """Read to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE
        while self._receive(deadline):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    @property
    def text(self):
        return "\n".join(row.rstrip() for row in self.screen.display).rstrip()

    @property
    def fresh(self):
        """What stands below where the last key was pressed, if anything was drawn since."""
        rows = self.screen.display[self._row :] if len(self.raw) > self._mark else []
        return "\n".join(row.rstrip() for row in rows)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._own)

    def _wait(self, texts, ready):
        deadline = time.monotonic() + PATIENCE
        while not (all(text in self.fresh for text in texts) and ready()):
            if not self._receive(deadline):
                raise AssertionError(f"it ended before {texts!r}; the screen shows:\n{self.text}")
        return self

    def _receive(self, deadline):
        """Some more output; False at its end."""
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._own], [], [], max(0, left))
        if not ready:
            raise AssertionError(f"nothing more came within {PATIENCE} s; the screen shows:\n{self.text}")
        try:
            data = os.read(self._own, 65536)
        except OSError:  # Linux: EIO when the last program has closed its end
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)
