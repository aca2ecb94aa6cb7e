"""Settings of the interpreter and of the process that a node runs best with."""

from __future__ import annotations

import gc
import resource
import sys
import zoneinfo

# Threads that wait for Python's lock (the writer, the HTTP client's) get it after this long. The default of 5 ms is
# longer than a commit takes: with it, a busy loop makes every write wait.
SWITCH_INTERVAL_SECONDS = 0.0005


def tune_the_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # A run under way holds a socket: take as many as the machine lets us have.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # What is loaded now stays: the collector need not look at it again. A burst makes many short-lived objects and no
    # cycles, so it may look less often: 6 % of the time of a burst, measured.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    # Zones come from the tzdata package, the same on every node, and not from what the machine happens to have.
    zoneinfo.reset_tzpath(())
