"""Limits the lines of one kind that a log gets in a second. Lines beyond the limit are counted."""

from __future__ import annotations

SECOND = 1.0


class LineRateLimiter:
    """`most` lines a second. Times are seconds of a clock that is never set back."""

    __slots__ = ("_left_out", "_most", "_since", "_written")

    def __init__(self, most: int) -> None:
        self._most = most
        self._since = 0.0
        self._written = 0
        self._left_out = 0

    def admit(self, now: float) -> bool:
        """Returns whether a line may be written. If not, it counts as left out."""
        if now - self._since >= SECOND:
            self._since = now
            self._written = 0
        if self._written < self._most:
            self._written += 1
            return True
        self._left_out += 1
        return False

    def take_left_out(self) -> int:
        """Returns how many lines were left out since the last call."""
        left_out, self._left_out = self._left_out, 0
        return left_out
