"""Bounds on the bytes in addition to a body, and on the rate of a body."""

from __future__ import annotations

from duetime.domain.http_bounds import LEAST_BYTES_PER_SECOND, MAX_FRAMING_BYTES, framing_after, is_too_slow


def framing_of(chunk: int, chunks: int) -> int:
    """Returns the counted framing after this many chunks of this many bytes."""
    framing, overhead = 0, len(f"{chunk:x}") + 4
    for _ in range(chunks):
        framing = framing_after(framing, chunk + overhead, chunk)
    return framing


def test_a_head_counts_in_full():
    assert framing_after(0, 500, 0) == 500
    assert framing_after(500, 500, 0) == 1000


def test_chunks_of_a_byte_soon_exceed_the_bound():
    assert framing_of(1, 100) == 500
    assert framing_of(1, 14_000) > MAX_FRAMING_BYTES


def test_chunks_of_a_line_never_exceed_the_bound():
    assert framing_of(60, 100_000) == 0


def test_a_large_body_does_not_raise_the_bound_for_later_bytes():
    framing = framing_after(0, 10_000_000, 10_000_000)
    assert framing_after(framing, MAX_FRAMING_BYTES + 1, 0) > MAX_FRAMING_BYTES


def test_a_body_is_too_slow_below_the_least_average_rate():
    rate = LEAST_BYTES_PER_SECOND
    assert is_too_slow(rate * 100 - 1, 160, 60)
    assert not is_too_slow(rate * 100, 160, 60)


def test_a_body_may_begin_late():
    assert not is_too_slow(0, 60, 60)
    assert is_too_slow(0, 60.1, 60)
