"""Copies a script's output from its pipe to the log as it arrives. Keeps only the last characters in memory.

Reading is not limited until a stream has printed more than a log keeps; after that `Bandwidth` limits it.
"""

from __future__ import annotations

import asyncio
import codecs
import os

from duetime.executors.answer import KEPT_CHARACTERS, kept_text
from duetime.executors.script.bandwidth import FREE_BYTES, Bandwidth
from duetime.ports.logs import LogWriter, Stream

_CHUNK = 65_536
_LARGEST_PIPE = 1_048_576


class Output:
    """Stdout or stderr of a script. Creates the pipe; `descriptor` is the end that the script writes to."""

    def __init__(self, stream: Stream, log: LogWriter, bandwidth: Bandwidth, tenant: str) -> None:
        self._stream = stream
        self._log = log
        self._bandwidth = bandwidth
        self._tenant = tenant
        self._may_read = FREE_BYTES
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._last = ""
        self._reads, self.descriptor = os.pipe()
        os.set_blocking(self._reads, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reads, self._read_on)

    def close_writer(self) -> None:
        """Closes the node's copy of the write end, once the script's side has it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """Reads the rest and closes the pipe.

        No process of the script writes any more, so the rest is at most what a pipe can hold.
        """
        self._bandwidth.forget(self._tenant, self._resume)
        left = _LARGEST_PIPE
        while left > 0 and (size := self._read()):
            left -= size
        self._write(self._decoder.decode(b"", final=True))
        self.close_writer()
        if self._reads >= 0:
            self._end()

    def tail(self) -> str | None:
        """Returns the end of the output as text that is safe to store, to log and to show; None if it is empty."""
        return kept_text(self._last.encode()) or None

    def _read_on(self) -> None:
        self._may_read -= self._read()
        if self._may_read <= 0 and self._reads >= 0:
            self._loop.remove_reader(self._reads)
            self._bandwidth.ask(self._tenant, self._resume)

    def _resume(self, size: int) -> None:
        self._may_read = size
        self._loop.add_reader(self._reads, self._read_on)

    def _read(self) -> int:
        if self._reads < 0:
            return 0
        try:
            data = os.read(self._reads, _CHUNK)
        except BlockingIOError:
            return 0
        if data:
            self._write(self._decoder.decode(data))
        else:
            self._end()
        return len(data)

    def _write(self, text: str) -> None:
        if text:
            self._log.write(self._stream, text)
            self._last = (self._last + text[-KEPT_CHARACTERS:])[-KEPT_CHARACTERS:]

    def _end(self) -> None:
        self._loop.remove_reader(self._reads)
        os.close(self._reads)
        self._reads = -1
