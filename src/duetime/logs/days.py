"""Prunes logs, grouped by the day their executions were scheduled for: old logs by day, logs over the limit by tenant.

Over the limit the tenants with the most lose their oldest logs, until all fit (`domain.history.excess`). Logs whose
execution is no longer in the ledger are removed first: they can't be read.

The size of a day is cached: this node's own writes are added as they happen, and a new measurement now and then finds
the writes of other nodes. A log's name does not contain its tenant. The ledger is asked for it, and only while the logs
exceed the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from duetime.domain.history import NO_TENANT, excess
from duetime.domain.ids import instant_of
from duetime.domain.instants import DAY, format_instant
from duetime.ports.clock import Clock
from duetime.ports.logs import TenantsOf

LOOK_SECONDS = 600.0  # between measurements of days that are still written to
LOOK_SELDOM_SECONDS = 6 * 3600.0  # between measurements of past days
ASKED_AT_ONCE = 1000  # executions in one query for their tenants

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def day_at(at: int) -> str:
    return format_instant(at)[:10]


def day_of(execution_id: str) -> str:
    return day_at(instant_of(execution_id))


def is_day(name: str) -> bool:
    return _DAY.fullmatch(name) is not None


class LogDays(Protocol):
    """The storage of the days."""

    async def list_days(self) -> list[str]:
        """Returns all days that are stored. Entries not named like a day are not Duetime's, and are left out."""

    async def measure(self, day: str) -> int:
        """Returns the bytes that a day takes in the storage."""

    async def list_logs(self, day: str) -> list[tuple[str, int]]:
        """Returns (execution id, bytes) of the day's logs, oldest first."""

    async def remove_logs(self, day: str, execution_ids: Sequence[str]) -> None:
        """Removes these logs of this day."""

    async def remove_day(self, day: str) -> int:
        """Removes all logs of this day. Returns how many there were."""


class Totals:
    """Bytes by day, as far as they were measured, and by tenant where that was needed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}  # bytes, and when they were measured
        self._by_tenant: dict[str, dict[str, int]] = {}  # by day

    def add(self, day: str, count: int, tenant: str = NO_TENANT) -> None:
        if day in self._known:
            held, measured_at = self._known[day]
            self._known[day] = (max(0, held + count), measured_at)
        if day in self._by_tenant:
            tenants = self._by_tenant[day]
            tenants[tenant] = max(0, tenants.get(tenant, 0) + count)

    async def of(self, day: str, logs: LogDays) -> int:
        now = self._clock.monotonic()
        held, measured_at = self._known.get(day, (0, -LOOK_SELDOM_SECONDS - 1))
        recent = day >= day_at(max(0, self._clock.now() - DAY))
        if day not in self._known or now - measured_at > (LOOK_SECONDS if recent else LOOK_SELDOM_SECONDS):
            held = await logs.measure(day)
            self._known[day] = (held, now)
            self._by_tenant.pop(day, None)
        return held

    async def by_tenant(self, day: str, logs: LogDays, tenants_of: TenantsOf) -> Mapping[str, int]:
        if day not in self._by_tenant:
            found: dict[str, int] = {}
            for page in _pages(await logs.list_logs(day)):
                owners = await tenants_of([execution_id for execution_id, _ in page])
                for execution_id, size in page:
                    tenant = owners.get(execution_id, NO_TENANT)
                    found[tenant] = found.get(tenant, 0) + size
            self._by_tenant[day] = found
        return self._by_tenant[day]

    def forget(self, day: str) -> None:
        self._known.pop(day, None)
        self._by_tenant.pop(day, None)


async def prune_days(
    logs: LogDays, totals: Totals, before: int, most_bytes: int, tenants_of: TenantsOf | None = None
) -> int:
    """Removes logs of days before the instant `before`, then logs over the limit. Returns how many were removed.

    `tenants_of` returns the tenants of executions. Without it, the oldest logs are removed first.
    """
    days = sorted(await logs.list_days())
    first_kept = day_at(max(0, before))
    gone = 0
    for day in [day for day in days if day < first_kept]:
        gone += await logs.remove_day(day)
        totals.forget(day)
    days = [day for day in days if day >= first_kept]
    total = 0
    for day in days:
        total += await totals.of(day, logs)
    if total > most_bytes:
        gone += await _prune_shares(logs, totals, days, most_bytes, tenants_of or _of_nobody)
    return gone


async def _prune_shares(
    logs: LogDays, totals: Totals, days: Sequence[str], most_bytes: int, tenants_of: TenantsOf
) -> int:
    held: dict[str, int] = {}
    for day in days:
        for tenant, size in (await totals.by_tenant(day, logs, tenants_of)).items():
            held[tenant] = held.get(tenant, 0) + size
    too_much = excess(held, most_bytes)
    gone = 0
    for day in days:
        tenants = await totals.by_tenant(day, logs, tenants_of)
        if not any(too_much.get(tenant, 0) > 0 for tenant in tenants):
            continue
        for page in _pages(await logs.list_logs(day)):
            owners = await tenants_of([execution_id for execution_id, _ in page])
            removed: list[str] = []
            for execution_id, size in page:
                tenant = owners.get(execution_id, NO_TENANT)
                if too_much.get(tenant, 0) > 0:
                    removed.append(execution_id)
                    too_much[tenant] -= size
                    totals.add(day, -size, tenant)
            if removed:
                await logs.remove_logs(day, removed)
                gone += len(removed)
            if not any(too_much.get(tenant, 0) > 0 for tenant in tenants):
                break
    return gone


async def _of_nobody(execution_ids: Sequence[str]) -> Mapping[str, str]:
    return {}


def _pages(logs: Sequence[tuple[str, int]]) -> Iterator[Sequence[tuple[str, int]]]:
    for start in range(0, len(logs), ASKED_AT_ONCE):
        yield logs[start : start + ASKED_AT_ONCE]
