"""Counts of all tenants, for the operator: as `figures.count`, and which tenants have most that waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest

from duetime.api.context import ApiContext
from duetime.api.figures import LATE, MOST_COUNTED, STATS_SECONDS, due, is_capped
from duetime.domain.instants import HOUR
from duetime.domain.states import State
from duetime.wire.statistics import Stats, TenantBacklog

MOST_TENANTS = 10
MOST_ROWS = 2 * MOST_TENANTS + 1  # of the ledger, two of a tenant: the last says whether there are more


async def count_all(context: ApiContext) -> Stats:
    """Returns the counts of all tenants, at most a few seconds old."""
    return await context.moments.get("stats of all", STATS_SECONDS, lambda: _count_all(context))


async def _count_all(context: ApiContext) -> Stats:
    now, store = context.clock.now(), context.store
    record = await store.get_backlog(MOST_ROWS, 0)
    overdue = await due(context, "overdue", 0, now - LATE)
    coming = await due(context, "coming", now, now + HOUR)
    tenants = await _backlogs(context, record.waiting, overdue, now - LATE)
    late = sum(overdue.values()) + sum(one.late - overdue.get(one.tenant, 0) for one in tenants)
    unread = len({tenant for tenant, _, number in record.waiting if number}) > MOST_TENANTS
    return Stats(
        (await store.get_all_totals()).jobs, {str(state): record.executions.get(state, 0) for state in State},
        late, unread or len(record.waiting) >= MOST_ROWS or late >= MOST_COUNTED or is_capped(overdue),
        sum(coming.values()), is_capped(coming), "cluster", tenants,
    )  # fmt: skip


async def _backlogs(
    context: ApiContext, waiting: Sequence[tuple[str, State, int]], overdue: dict[str, int], until: int
) -> list[TenantBacklog]:
    """Returns the tenants with most that waits. How many are late is counted for all of them together up to a limit."""
    numbers = {(tenant, state): number for tenant, state, number in waiting}
    sums = Counter(overdue)
    for (tenant, _), number in numbers.items():
        sums[tenant] += number
    found, left = [], MOST_COUNTED
    for tenant in nlargest(MOST_TENANTS, sums, key=sums.__getitem__):
        late = await context.store.count_waiting(tenant, until, left) if left > 0 else 0
        left -= late
        queued, retrying = (numbers.get((tenant, state), 0) for state in (State.QUEUED, State.RETRYING))
        found.append(TenantBacklog(tenant, queued, retrying, late + overdue.get(tenant, 0)))
    return found
