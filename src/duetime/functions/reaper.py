"""The reaper: a small process beside a worker that has child processes. It outlives the worker by a moment, and kills
those children and all that they have started.

The kernel can kill a child when its parent dies, but not the child's own children; and a thread in the child that
watches for it may not get the interpreter's lock. Run as a program, it reads "+pid" and "-pid" lines, and acts when
its input ends: however the worker ended. It imports nothing of Duetime, so that it is there in milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


class Reaper:
    """The worker's side. The pipe's end is this process's alone: closed, it is the signal."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE, start_new_session=True, bufsize=0
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def watch(self, pid: int) -> None:
        self._say(f"+{pid}\n")

    def forget(self, pid: int) -> None:
        """It was reaped: its number may be another's soon."""
        self._say(f"-{pid}\n")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:  # killed by somebody: the children have the kernel's promise still
            return

    def close(self) -> None:
        self._process.communicate()


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    """All that a child of its own session has started, as far as it has stayed in its group."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # gone; on some systems, a zombie
        return


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its input does
    pids: set[int] = set()
    for line in sys.stdin:
        (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
    for pid in pids:
        kill_group(pid)


if __name__ == "__main__":
    main()
