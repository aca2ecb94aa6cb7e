"""The watchdog of a stop: ends the process when the time for the stop is over, whatever hangs.

It covers a thread that waits for a disk or a name server, which Python would wait for at exit, and a step that can't be
cancelled. Acknowledged writes are on disk by then, and the rest is recovered as after a crash.
"""

from __future__ import annotations

import os
import threading

import structlog

GRACE_SECONDS = 2.0  # beyond the limit of a stop, for the work after its last step
EXIT_CODE = 1

log = structlog.get_logger()


class Watchdog:
    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def end_in(self, seconds: float) -> None:
        """Ends the process after `seconds`. A later call replaces an earlier one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True  # a process that exits in time does not wait for the timer
        self._timer.start()

    def _end(self) -> None:
        log.error("the stop took too long: the process ends now, and its executions are recovered")
        os._exit(EXIT_CODE)
