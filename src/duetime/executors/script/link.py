"""The node's connection to its fork server. Starts the fork server on first use, and again after it has died."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duetime

_PROGRAM = (
    "import sys; sys.path += sys.argv[2:]; "
    "from duetime.executors.script.fork_server import main; main(int(sys.argv[1]))"
)
_PATH = (str(Path(duetime.__file__).parents[1]),)
_STOP_SECONDS = 15.0
_AT_ONCE = 32  # requests that wait for their supervisor; more would not fit the socket's buffer


class ForkServerLost(Exception):
    """The fork server did not accept a request; the script was not started."""


class ForkServerLink:
    """`program`: Python code whose arguments are its end of the socket, and `path`. Default: the one for scripts."""

    def __init__(self, program: str = _PROGRAM, path: Sequence[str] = _PATH) -> None:
        self._program = program
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self.turns = asyncio.Semaphore(_AT_ONCE)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._forget()
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            self._process = _spawn(self._program, theirs.fileno(), self._path)
        self._socket = ours

    def ask(self, *descriptors: int) -> None:
        """Requests a child process that gets these descriptors: for a script, its socket, stdout and stderr."""
        try:
            self._send(descriptors)
        except ConnectionError:
            self.give_up()
            self._send(descriptors)

    def _send(self, descriptors: tuple[int, ...]) -> None:
        self.start()
        assert self._socket is not None
        socket.send_fds(self._socket, [b"w"], descriptors)

    def give_up(self) -> None:
        """Kills a fork server that does not reply. The next request starts a new one. Supervisors keep running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    async def stop(self) -> None:
        """Closes the socket and waits for the fork server to end, which it does after its supervisors have ended."""
        process = self._process
        self._forget()
        if process is None:
            return
        try:
            await asyncio.to_thread(process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _forget(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._process = self._socket = None


def _spawn(program: str, descriptor: int, path: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts a fork server in its own session, so that Ctrl-C reaches only the node, and without our environment."""
    kept = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # some Pythons need it
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", program, str(descriptor), *path],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", env=kept, pass_fds=[descriptor],
        start_new_session=True,
    )  # fmt: skip
