"""What our own log hears when logs of executions can't be kept: one warning an outage, and one at its end, or
at the stop of the node."""

from __future__ import annotations

import structlog

log = structlog.get_logger()


class OutageLog:
    def __init__(self, place: str) -> None:
        self._place = place
        self._lost_lines = 0
        self.lasts = False

    def begin(self, error: BaseException) -> None:
        if not self.lasts:
            self.lasts = True
            log.warning("logs of executions can't be kept: some lines may be lost", place=self._place, error=why(error))

    def end(self) -> None:
        if self.lasts:
            self.lasts = False
            log.warning("logs of executions are kept again", place=self._place, lost_lines=self._lost_lines)
            self._lost_lines = 0

    def stop(self) -> None:
        """The node stops, and with it whatever it still held."""
        if self._lost_lines:
            log.warning("logs of executions were lost with the stop", place=self._place, lost_lines=self._lost_lines)
            self._lost_lines = 0

    def lose(self, lines: int) -> None:
        """Lines that nobody will see, of a log that can't say so itself."""
        self._lost_lines += lines


def why(error: BaseException) -> str:
    """The first line: some libraries go on for pages."""
    return (str(error) or type(error).__name__).splitlines()[0]
