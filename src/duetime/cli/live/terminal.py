"""The terminal of the live view: single keys, and a wake-up when its size changes. It is left as it was found."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SEQUENCES = {
    "\x1b[A": "up", "\x1b[B": "down", "\x1bOA": "up", "\x1bOB": "down", "\r": "enter", "\n": "enter",
    "\x7f": "backspace", "\b": "backspace", "\x03": "ctrl-c", "\x1b": "esc",
}  # fmt: skip
_PIECE = 1024


def is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def split_keys(text: str) -> Iterator[str]:
    """Yields the names of keys in what a terminal sent. Unknown escape sequences are skipped whole."""
    while text:
        size = 1
        if text[0] == "\x1b" and text[1:2] in ("[", "O"):
            size = 3
            while size <= len(text) and not text[size - 1].isalpha() and text[size - 1] != "~":
                size += 1
        key, text = text[:size], text[size:]
        if size == 1:
            yield _SEQUENCES.get(key, key)
        elif key in _SEQUENCES:
            yield _SEQUENCES[key]


class Terminal:
    """Keys from stdin. `wake` ends a wait from another thread, and so does a change of the size."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def wake(self) -> None:
        with suppress(BlockingIOError):  # full: it wakes anyway
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> list[str]:
        """Returns the keys that were pressed, after `seconds` at the latest. An end of the input counts as q."""
        stdin = sys.stdin.fileno()
        ready, _, _ = select.select([stdin, self._reader], [], [], max(0.0, seconds))
        if self._reader in ready:
            with suppress(BlockingIOError):
                os.read(self._reader, _PIECE)
        if stdin not in ready:
            return []
        typed = os.read(stdin, _PIECE)
        return list(split_keys(typed.decode(errors="replace"))) if typed else ["q"]

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Gets keys one by one and unseen. Afterwards the terminal is as before."""
        stdin = sys.stdin.fileno()
        before = termios.tcgetattr(stdin)
        resized = signal.signal(signal.SIGWINCH, self._on_signal)
        try:
            tty.setcbreak(stdin)
            yield
        finally:
            termios.tcsetattr(stdin, termios.TCSADRAIN, before)
            signal.signal(signal.SIGWINCH, resized)
            os.close(self._reader)
            os.close(self._writer)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.wake()
