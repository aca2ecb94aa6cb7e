"""Server-sent events: decodes frames, and resumes broken streams. No I/O."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from duetime.client.calls import Call, Followed, Frame

T = TypeVar("T")

_LINE_END = re.compile("\r\n|\n|\r")


class Frames:
    """Decodes the frames of one connection. An incomplete frame is dropped."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._number: int | None = None
        self.last: int | None = None  # the id of the last frame; a frame may have nothing but an id
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        text = self._rest + self._decoder.decode(chunk)
        held = "\r" if text.endswith("\r") else ""  # a line feed that belongs to it may follow
        *lines, rest = _LINE_END.split(text.removesuffix("\r") if held else text)
        self._rest = rest + held
        for line in lines:
            if line:
                self._field(line)
            else:
                self.last = self.last if self._number is None else self._number
                if self._data:
                    yield Frame(self._number, self._kind or "message", "\n".join(self._data))
                self._number, self._kind, self._data = None, "", []

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and value.isascii() and value.isdigit():
            self._number = int(value)


class Following(Generic[T]):
    """A stream, with all its connections."""

    def __init__(self, followed: Followed[T]) -> None:
        self._followed = followed
        self._after = followed.after
        self._frames = Frames()
        self._was_open = False
        self.is_over = False

    def call(self) -> Call[Any]:
        """Returns the call for the next connection."""
        return self._followed.call(self._after)

    def open(self) -> list[T]:
        """Begins a new connection. Returns items to yield before its events."""
        gap = self._followed.gap if self._was_open and self._after is None else None
        self._frames = Frames()
        self._was_open = True
        return [] if gap is None else [gap]

    def take(self, chunk: bytes) -> Iterator[T]:
        for frame in self._frames.feed(chunk):
            if frame.kind == self._followed.end:
                self.is_over = True
                return
            # Before the yield: the reader may stop there and continue later.
            self._after = self._after if frame.number is None else frame.number
            yield self._followed.read(frame)
        self._after = self._after if self._frames.last is None else self._frames.last
