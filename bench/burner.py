"""Keeps the machine busy to a given share, so that two runs can be compared under the same load."""

from __future__ import annotations

import sys
import time

from bench.machine import Busy

PERIOD_SECONDS = 0.05


def main(target: float) -> None:
    duty = 0.0
    while True:
        busy, until = Busy(), time.perf_counter() + PERIOD_SECONDS
        while time.perf_counter() < until - PERIOD_SECONDS * (1 - duty):
            pass
        time.sleep(max(0.0, until - time.perf_counter()))
        duty = min(1.0, max(0.0, duty + 0.2 * (target - busy.share())))


if __name__ == "__main__":
    main(float(sys.argv[1]))
