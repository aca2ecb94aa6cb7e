"""What the sink (or the tally) saw: how it is fetched, and how arrivals become lateness, missing and repeated.

A target's path is `/<run>/<n>` for one webhook a job, and `/<run>/<n>/<instant in ms>` where the peer knows which due
instant it serves. Duetime names the instant in a header.
"""

from __future__ import annotations

import http.client
import subprocess
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bench import processes


class Arrival(msgspec.Struct, frozen=True, array_like=True):
    at: float  # seconds since the epoch
    path: str
    execution_id: str
    scheduled_at: str

    @property
    def instant(self) -> float | None:
        """The due instant that this request serves, where the request says so."""
        if self.scheduled_at:
            return datetime.fromisoformat(self.scheduled_at.replace("Z", "+00:00")).timestamp()
        parts = self.path.split("/")
        return int(parts[3]) / 1000 if len(parts) > 3 else None

    @property
    def job(self) -> str:
        return "/".join(self.path.split("/")[:3])


class Arrivals(ABC):
    """Where a run's calls leave their trace."""

    @abstractmethod
    def where(self) -> dict[str, Any]:
        """The fields of an order by which a peer finds it."""

    @abstractmethod
    def count(self) -> int: ...

    @abstractmethod
    def reset(self) -> None: ...

    @abstractmethod
    def arrivals(self, run: str) -> list[Arrival]:
        """What came for this run, in order; what an earlier run left behind is not counted."""

    def wait_for(self, count: int, *, idle_seconds: float, until: float) -> None:
        """Return when `count` have come, or none came for a while after the instant `until`."""
        seen, changed_at = -1, time.time()
        while True:
            now, number = time.time(), self.count()
            if number >= count:
                return
            if number != seen or now < until:
                seen, changed_at = number, now
            if now - changed_at > idle_seconds:
                return
            time.sleep(0.1)


class Sink(Arrivals):
    """A running sink."""

    def __init__(self) -> None:
        self._child = processes.start([processes.PYTHON, "-m", "bench.sink"], stdout=subprocess.PIPE, stderr=None)
        assert self._child.stdout is not None
        self.port = int(self._child.stdout.readline())

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def where(self) -> dict[str, int]:
        return {"port": self.port}

    def count(self) -> int:
        return int(self._ask("/__count"))

    def reset(self) -> None:
        self._ask("/__reset")

    def arrivals(self, run: str) -> list[Arrival]:
        every = msgspec.msgpack.decode(self._ask("/__report"), type=list[Arrival])
        return [arrival for arrival in every if arrival.path.startswith(f"/{run}/")]

    def stop(self) -> None:
        processes.stop(self._child)

    def _ask(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the sorted values don't exceed."""
    return values[min(len(values) - 1, int(len(values) * share))]


def burst_figures(arrivals: Sequence[Arrival], count: int, due_at: float) -> dict[str, float]:
    """One webhook a job, all due at one instant. The drain rate counts from the instant, not from the first."""
    first: dict[str, float] = {}
    for arrival in arrivals:
        first.setdefault(arrival.job, arrival.at)
    late = sorted(at - due_at for at in first.values())
    figures = _lateness(late)
    figures["drain_per_second"] = len(late) / late[-1] if late and late[-1] > 0 else 0.0
    figures["missing"] = count - len(first)
    figures["repeated"] = len(arrivals) - len(first)
    return figures


def recurring_figures(arrivals: Sequence[Arrival], jobs: int, instants: Sequence[float]) -> dict[str, float]:
    """Jobs due again and again, where each job has the same due instants."""
    by_job: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_job[arrival.job].append(arrival)
    late: list[float] = []
    for of_job in by_job.values():
        late.extend(_lateness_of_job(of_job, instants))
    figures = _lateness(sorted(late))
    figures["missing"] = jobs * len(instants) - len(late)
    figures["repeated"] = len(arrivals) - len(late)
    return figures


def spread_figures(arrivals: Sequence[Arrival], expected: int) -> dict[str, float]:
    """Jobs whose instants are spread by jitter: each request is measured against the instant that it names."""
    first: dict[tuple[str, float], float] = {}
    for arrival in arrivals:
        if arrival.instant is not None:
            first.setdefault((arrival.job, arrival.instant), arrival.at)
    figures = _lateness(sorted(at - instant for (_, instant), at in first.items()))
    figures["missing"] = expected - len(first)
    figures["repeated"] = len(arrivals) - len(first)
    return figures


def _lateness_of_job(arrivals: Sequence[Arrival], instants: Sequence[float]) -> Iterable[float]:
    """Lateness of each instant that was served, once each.

    A request that doesn't name its instant is matched in order when none is missing, and else with the latest
    instant before it: the reading that is kindest to the peer.
    """
    named: dict[float, float] = {}
    unnamed: list[float] = []
    for arrival in arrivals:
        instant = arrival.instant
        if instant is None:
            unnamed.append(arrival.at)
        elif instant in instants:
            named.setdefault(instant, arrival.at - instant)
    if not unnamed:
        return named.values()
    times = sorted(unnamed)
    if len(times) >= len(instants):
        return [at - instant for at, instant in zip(times, instants, strict=False)]
    nearest: dict[float, float] = {}
    for at in times:
        before = [instant for instant in instants if instant <= at]
        if before:
            nearest.setdefault(before[-1], at - before[-1])
    return nearest.values()


def _lateness(late: Sequence[float]) -> dict[str, float]:
    if not late:
        return {}
    return {
        "first_ms": late[0] * 1000,
        "p50_ms": percentile(late, 0.5) * 1000,
        "p99_ms": percentile(late, 0.99) * 1000,
        "last_ms": late[-1] * 1000,
    }
