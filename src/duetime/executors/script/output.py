"""What a script prints, from its pipe to the log as it comes. Reading waits for nobody and keeps next to nothing."""

from __future__ import annotations

import asyncio
import codecs
import os

from duetime.executors.answer import KEPT_CHARACTERS, kept_text
from duetime.ports.logs import LogWriter, Stream

_CHUNK = 65_536
_LARGEST_PIPE = 1_048_576


class Output:
    """One of the two streams. Makes the pipe; `descriptor` is the end that the script writes to."""

    def __init__(self, stream: Stream, log: LogWriter) -> None:
        self._stream = stream
        self._log = log
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._last = ""
        self._reads, self.descriptor = os.pipe()
        os.set_blocking(self._reads, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._reads, self._read)

    def close_writer(self) -> None:
        """The script has it by now."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def close(self) -> None:
        """Read what is left. Nobody of the script writes any more, so that is at most what a pipe holds."""
        left = _LARGEST_PIPE
        while left > 0 and (size := self._read()):
            left -= size
        self._write(self._decoder.decode(b"", final=True))
        self.close_writer()
        if self._reads >= 0:
            self._end()

    def tail(self) -> str | None:
        """The last of it, as text that a store, a log and a page can hold; None: it printed nothing."""
        return kept_text(self._last.encode()) or None

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
