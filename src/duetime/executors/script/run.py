"""One script as the node sees it: its supervisor's socket and its two pipes. Closing the socket ends the script."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from types import TracebackType

from duetime.executors.script.bandwidth import Bandwidth
from duetime.executors.script.link import ForkServerLink, ForkServerLost
from duetime.executors.script.output import Output
from duetime.executors.script.wire import GO, TERMINATE, Answer, Ended, Ready, Refused, Request, from_line, pack
from duetime.ports.logs import LogWriter

_READY_SECONDS = 10.0  # a fork server that takes longer is stuck
_END_SECONDS = 15.0  # the supervisor's grace period, and time for the kernel to free large processes
_FOLDER_SECONDS = 5.0  # to remove the folder; a million files are removed without waiting for the end


class SupervisorLost(Exception):
    """The supervisor was killed, or it can't end the script. The fork server kills the script's processes."""


class ScriptRun:
    """Use with `async with`: on leaving, all descriptors are closed."""

    def __init__(self, log: LogWriter, bandwidth: Bandwidth, tenant: str) -> None:
        self._supervisor = 0  # the supervisor's process id
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self.stdout = Output("stdout", log, bandwidth, tenant)
        try:
            self.stderr = Output("stderr", log, bandwidth, tenant)
        except OSError:
            self.stdout.close()
            raise

    async def __aenter__(self) -> ScriptRun:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stdout.close()
        self.stderr.close()
        if self._writer is not None:
            self._writer.transport.abort()
            with suppress(OSError):
                await self._writer.wait_closed()

    async def prepare(self, link: ForkServerLink, request: Request) -> Refused | None:
        """Prepares everything except the start. Returns None if the script may start.

        Raises ForkServerLost; the caller may then call this once more.
        """
        async with link.turns:
            try:
                async with asyncio.timeout(_READY_SECONDS):
                    answer = await self._ask(link, request)
            except TimeoutError:
                link.give_up()
                raise ForkServerLost("the fork server of scripts does not answer") from None
        if not isinstance(answer, Ready | Refused):
            raise ForkServerLost("the supervisor of the script ended before it began")
        self.stdout.close_writer()
        self.stderr.close_writer()
        if isinstance(answer, Refused):
            return answer
        self._supervisor = answer.supervisor
        return None

    async def _ask(self, link: ForkServerLink, request: Request) -> Answer | None:
        if self._writer is not None:
            self._writer.transport.abort()
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_unix_connection(sock=ours)
            link.ask(theirs.fileno(), self.stdout.descriptor, self.stderr.descriptor)
        self._writer.write(pack(request))
        return await self._answer()

    def go(self) -> None:
        self._order(GO)

    async def ended(self) -> Ended | Refused:
        answer = await self._answer()
        if isinstance(answer, Ended | Refused):
            return answer
        raise SupervisorLost

    async def end(self) -> Ended | Refused:
        """Has the supervisor send SIGTERM, and SIGKILL after the grace period. Returns when no process is left."""
        self._order(TERMINATE)
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self.ended()
        except TimeoutError:
            with suppress(ProcessLookupError, PermissionError):
                # Its script may have stopped it. The fork server inherits the script.
                os.kill(self._supervisor, signal.SIGKILL)
            raise SupervisorLost from None

    async def folder_removed(self) -> None:
        assert self._reader is not None
        with suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(_FOLDER_SECONDS):
                await self._reader.read()

    async def _answer(self) -> Answer | None:
        """Returns the supervisor's next answer; None if the supervisor has closed the socket."""
        assert self._reader is not None
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return from_line(line) if line.endswith(b"\n") else None

    def _order(self, order: bytes) -> None:
        assert self._writer is not None
        self._writer.write(order)
