"""The node's end of its fork server: starts it when it is first needed, and anew when it is gone."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duetime

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from duetime.executors.script.fork_server import main; main(int(sys.argv[2]))"
)
_STOP_SECONDS = 15.0
_AT_ONCE = 32  # requests that wait for their supervisor; more would not fit the socket


class ForkServerLost(Exception):
    """The fork server did not take a request; the script was not started."""


class ForkServerLink:
    """`spawn` starts the process with its end of the socket: by default the fork server of scripts."""

    def __init__(self, spawn: Callable[[int], subprocess.Popen[bytes]] | None = None) -> None:
        self._spawn = spawn or _spawn
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
            self._process = self._spawn(theirs.fileno())
        self._socket = ours

    def ask(self, *descriptors: int) -> None:
        """Have a supervisor forked that gets these: its socket, and its script's stdout and stderr."""
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
        """It does not answer: the next one to ask gets a new one. Supervisors that it has forked go on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    async def stop(self) -> None:
        """It ends by itself once the socket is closed and its supervisors are gone."""
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


def _spawn(descriptor: int) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C reaches the node alone, and without anything of our environment."""
    root = str(Path(duetime.__file__).parents[1])
    kept = {name: value for name, value in os.environ.items() if name == "LD_LIBRARY_PATH"}  # some Pythons need it
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, root, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        cwd="/",
        env=kept,
        pass_fds=[descriptor],
        start_new_session=True,
    )
