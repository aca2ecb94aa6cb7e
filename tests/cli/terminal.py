"""A program in a terminal of its own: a test types keys, changes the size, and waits for text on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE_SECONDS

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")
FRAME = "\x1b[H"  # a new frame is drawn from the top left corner


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process = process
        self._screen = screen
        self._seen = ""

    def type(self, keys: str) -> None:
        """Types keys. What was on the screen before is forgotten: a wait is for what comes after the keys."""
        self._seen = ""
        os.write(self._screen, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._seen = ""
        set_size(self._screen, columns, lines)
        self.process.send_signal(signal.SIGWINCH)

    def wait_for(self, *texts: str, without: Sequence[str] = ()) -> str:
        """Returns the first frame that has all the texts, and none of those `without`."""
        has = lambda frame: all(text in frame for text in texts) and not any(text in frame for text in without)  # noqa: E731
        return self.wait_until(has, f"{texts} without {without}")

    def wait_until(self, is_it: Callable[[str], bool], what: str) -> str:
        """Returns the first frame for which the condition holds."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            for frame in self.frames():
                if is_it(frame):
                    return frame
            assert self._read(deadline), f"there was no frame with {what}; the last is:\n{self.frames()[-1]}"

    def frames(self) -> list[str]:
        return [plain(frame) for frame in self._seen.split(FRAME)]

    def wait_for_end(self) -> int:
        """Returns the exit code."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.process.poll() is None:
            self._read(deadline)
            assert time.monotonic() < deadline, f"it did not end:\n{plain(self._seen)}"
        return self.process.returncode

    def is_echoing(self) -> bool:
        """Returns whether the terminal is as a shell expects it."""
        return bool(termios.tcgetattr(self._screen)[3] & termios.ECHO)

    def everything(self) -> str:
        return self._seen

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._screen], [], [], min(0.2, max(0.0, deadline - time.monotonic())))
        if ready:
            try:
                self._seen += os.read(self._screen, 65536).decode(errors="replace")
            except OSError:  # the program has closed the terminal
                return False
        return time.monotonic() < deadline


def plain(text: str) -> str:
    return _ESCAPES.sub("", text)


def set_size(screen: int, columns: int, lines: int) -> None:
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


@contextmanager
def program(*arguments: str, columns: int = 140, lines: int = 50, folder: Path) -> Iterator[Terminal]:
    """Runs `duetime …` in a terminal."""
    screen, inside = pty.openpty()
    set_size(inside, columns, lines)
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [sys.executable, "-m", "duetime.cli.main", *arguments], stdin=inside, stdout=inside, stderr=inside, cwd=folder,
        env={**environment, "TERM": "xterm-256color"}, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(inside)
        os.close(screen)
