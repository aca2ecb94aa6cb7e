"""Decoding of frames from any chunks."""

from __future__ import annotations

import pytest

from duetime.client.calls import Frame
from duetime.client.sse import Frames

TEXT = (
    ": following\n\n"
    "id: 1\nevent: log\ndata: grün\ndata:  two\n\n"
    "event: no data\n\n"
    "id: x\r\ndata: plain\r\ndata: more\r\n\r\n"
    "data\r\rid: 3\nevent: end\ndata: {}\n\n"
    "id: 4\nevent: cut\ndata: off"
)
FRAMES = [
    Frame(1, "log", "grün\n two"),
    Frame(None, "message", "plain\nmore"),
    Frame(None, "message", ""),
    Frame(3, "end", "{}"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
def test_frames_are_the_same_wherever_a_chunk_ends(size: int) -> None:
    frames, raw = Frames(), TEXT.encode()
    found = [frame for begin in range(0, len(raw), size) for frame in frames.feed(raw[begin : begin + size])]
    assert found == FRAMES
