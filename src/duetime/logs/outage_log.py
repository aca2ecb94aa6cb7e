"""Reports outages of the log store in the node's own log: one warning when an outage begins, one when it ends."""

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
        """The node stops: lines that it still held are lost."""
        if self._lost_lines:
            log.warning("logs of executions were lost at the stop", place=self._place, lost_lines=self._lost_lines)
            self._lost_lines = 0

    def lose(self, lines: int) -> None:
        """Counts lost lines that the execution's log itself can't mention."""
        self._lost_lines += lines


def why(error: BaseException) -> str:
    """Returns the first line of the error: messages of some libraries fill pages."""
    return (str(error) or type(error).__name__).splitlines()[0]
