"""Reads the statistics of alert rules with long windows: a few subjects a turn, in turn by tenant.

Of each subject only the sums over the windows of its rules are kept. Thirty days of one subject take some milliseconds
to read, so a tenant with many such rules must neither hold the event loop nor the turns of others.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from duetime.domain.alert_facts import RECENT_SECONDS, Ended, Seen, sums_over
from duetime.domain.alert_rules import AlertKind, AlertRule
from duetime.domain.instants import DAY, HOUR, SECOND
from duetime.domain.job import JobType
from duetime.domain.statistics import StatisticsQuery, StatisticsRow
from duetime.ports.clock import Clock
from duetime.ports.store import Store

DAYS_A_TURN = 1000  # of statistics that are read in one turn; each subject counts as a day at least
EVERY = 15 * SECOND  # a window of up to an hour is read so often
LONG_EVERY = 60 * SECOND
KEPT = 600 * SECOND  # of tenants that had no turn since: so many tenants do not lose facts between their turns

Rules = Mapping[str, Mapping[str, AlertRule]]  # by tenant and name
Subject = tuple[str, str]  # tenant and subject
K = TypeVar("K", bound=tuple[str, str])

_BY_STATISTICS = frozenset(
    {AlertKind.FAILURE_RATIO, AlertKind.LATENESS_P99, AlertKind.DEAD_LETTERS, AlertKind.NO_SUCCESS}
)


class _Known(NamedTuple):
    windows: frozenset[float]
    read_at: int
    sums: Mapping[float, Seen]


class LongWindows:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._known: dict[Subject, _Known] = {}

    async def read_some(self, rules: Rules) -> None:
        """Reads the sums that are missing or old: those of a few subjects."""
        now, wanted = self._clock.now(), _wanted(rules)
        self._known = {
            key: known for key, known in self._known.items()
            if (wanted.get(key) == known.windows if key[0] in rules else is_fresh(known.read_at, now, KEPT))
        }  # fmt: skip
        ages = {key: self._known[key].read_at if key in self._known else 0 for key in wanted}
        due = [key for key, windows in wanted.items() if not is_fresh(ages[key], now, _every(windows))]
        left = DAYS_A_TURN
        for key in in_turn(due, ages):
            left -= _days(wanted[key])
            if left < 0:
                break
            self._known[key] = _Known(wanted[key], now, await self._sums(key, wanted[key], now))

    def sums(self) -> dict[str, dict[tuple[str, float], Seen]]:
        """Returns the sums by tenant, subject and seconds of the window."""
        found: dict[str, dict[tuple[str, float], Seen]] = defaultdict(dict)
        for (tenant, subject), known in self._known.items():
            found[tenant].update({(subject, window): seen for window, seen in known.sums.items()})
        return dict(found)

    async def _sums(self, key: Subject, windows: frozenset[float], now: int) -> Mapping[float, Seen]:
        tenant, subject = key
        since = now - round(max(windows) * SECOND)
        rows = await self._store.list_statistics(
            StatisticsQuery(since=since, until=now + 1, tenant=tenant, subject=subject)
        )
        await asyncio.sleep(0)
        return sums_over(ended_of(rows), windows, now)


def ended_of(rows: Iterable[StatisticsRow]) -> list[Ended]:
    return [
        Ended(
            row.bucket_at, row.span, row.tenant, row.subject, row.tally.completed, row.tally.failures, row.tally.dead,
            row.tally.lateness,
        )
        for row in rows
        if row.type != JobType.NOTICE  # notices that fail must not make more notices
    ]  # fmt: skip


def in_turn(due: Sequence[K], ages: Mapping[K, int]) -> list[K]:
    """Returns the keys, which begin with a tenant, by the time of their last read; of each tenant one after another."""
    ranks: dict[str, int] = defaultdict(int)
    order: list[tuple[int, int, K]] = []
    for key in sorted(due, key=lambda key: (ages[key], key)):
        order.append((ranks[key[0]], ages[key], key))
        ranks[key[0]] += 1
    return [key for *_, key in sorted(order)]


def is_fresh(read_at: int, now: int, every: int) -> bool:
    return abs(now - read_at) < every


def is_of_jobs(rule: AlertRule) -> bool:
    """Returns whether the rule is measured by when the jobs of its scope ran."""
    return rule.enabled and rule.scope != "all" and rule.kind in (AlertKind.NOT_RUN, AlertKind.NO_SUCCESS)


def _wanted(rules: Rules) -> dict[Subject, frozenset[float]]:
    """Returns the long windows of each subject, in seconds. The rules are filled."""
    found: dict[Subject, set[float]] = defaultdict(set)
    for tenant, own in rules.items():
        for rule in own.values():
            window = rule.window_seconds or 0.0
            if rule.enabled and rule.kind in _BY_STATISTICS and not is_of_jobs(rule) and window > RECENT_SECONDS:
                found[tenant, "" if rule.scope == "all" else rule.scope].add(window)
    return {key: frozenset(windows) for key, windows in found.items()}


def _days(windows: frozenset[float]) -> int:
    return 1 + round(max(windows) * SECOND) // DAY


def _every(windows: frozenset[float]) -> int:
    return EVERY if max(windows) * SECOND <= HOUR else LONG_EVERY
