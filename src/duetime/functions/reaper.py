"""The reaper: a small process next to a worker that has child processes. It outlives the worker by a moment, and kills
those children and all processes they have started.

The kernel can kill a child when its parent dies, but not the child's own children; and a thread in the child that
watches the parent may not get the GIL. Run as a program, the reaper reads "+pid" and "-pid" lines, and kills when its
input ends, however the worker ended. It imports nothing of Duetime, so that it starts in milliseconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


class Reaper:
    """The worker's side. Only this process holds the pipe's write end: its closing is the signal to kill."""

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
        """The child was reaped: another process may get its pid soon."""
        self._say(f"-{pid}\n")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:  # the reaper was killed; on Linux the kernel still kills the children
            return

    def close(self) -> None:
        self._process.communicate()


def kill_group(pid: int, number: int = signal.SIGKILL) -> None:
    """Signals a child with its own session, and the processes it has started that are still in its process group."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # already dead; on some systems, a zombie
        return


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends when its input ends
    pids: set[int] = set()
    for line in sys.stdin:
        (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
    for pid in pids:
        kill_group(pid)


if __name__ == "__main__":
    main()
