"""Reads the facts of alert rules from the store, once a turn for all rules. It holds no rules.

A read that fails leaves its part out: rules that need it keep their state, and the others go on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import structlog

from duetime.domain.alert_facts import (
    RECENT_SECONDS,
    Burn,
    Ended,
    Facts,
    NodeFact,
    OpenCircuit,
    Seen,
    Use,
    WatchedJob,
    by_subject,
)
from duetime.domain.alert_rules import AlertRule
from duetime.domain.alerts import MOST_OF_RULE
from duetime.domain.budgets import JobStanding
from duetime.domain.capacity import Capacity
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.job import JobStatus
from duetime.domain.lease import View
from duetime.domain.node_report import CertificateFact, NodeFacts, NodeReport
from duetime.domain.objectives import expected_by
from duetime.domain.states import State
from duetime.domain.statistics import StatisticsQuery, bucket_of
from duetime.engine.alert_windows import KEPT, LongWindows, Rules, ended_of, in_turn, is_fresh, is_of_jobs
from duetime.ports.clock import Clock
from duetime.ports.store import ExecutionQuery, JobQuery, JobRecord, Store

MOST_TENANTS = 10_000  # with waiting executions, that are counted in one turn
MOST_COUNTED = 10_000  # waiting executions of one tenant
MOST_ORPHANS = 100
MOST_CIRCUITS = 10_000
MOST_NODES = 1000
MOST_JOBS = 100  # of the scope of one rule
PAGE = 1000
MOST_EXPECTED = 100_000  # jobs with expect_every, of all tenants
JOBS_EVERY = 15 * SECOND  # jobs of scopes are read this often, and not every turn
SCOPES_A_TURN = 50  # rules whose jobs are read in one turn
WAITED = SECOND  # an execution that waits for less is on its way

log = structlog.get_logger()

T = TypeVar("T")


class FactsReader:
    """`own()`: what this node tells of itself. `burns()`: objectives of jobs for which a burn-rate rule holds."""

    def __init__(
        self, store: Store, clock: Clock, node: int, capacity: Capacity, view: Callable[[], View | None],
        own: Callable[[], NodeFacts], *,
        burns: Callable[[], Sequence[JobStanding]] = list,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._node = node
        self._capacity = capacity
        self._own = own
        self._view = view
        self._burns = burns
        self._expected: dict[str, list[WatchedJob]] | None = None
        self._expected_at = 0
        self._jobs: dict[tuple[str, str], tuple[AlertRule, int, list[WatchedJob]]] = {}  # by tenant and rule
        self._long = LongWindows(store, clock)
        self._failed: set[str] = set()  # parts that could not be read the last time

    async def read(self, *, has_subjects: bool) -> Facts:
        """Returns the facts of all tenants. `has_subjects`: whether a rule is about a job or a tag.

        The facts of single rules are apart: `read_jobs` and `read_long`.
        """
        now = self._clock.now()
        reports = await self._part("nodes", self._read_reports(now))
        return Facts(
            now,
            ended=await self._part("statistics", self._read_ended(now, None if has_subjects else "")),
            waiting=await self._part("waiting", self._read_waiting(now, reports)),
            expected=await self._part("expected", self._read_expected(now)),
            circuits=await self._part("circuits", self._read_circuits()),
            certificates=None if reports is None else _certificates(reports, now),
            burns=[burn for one in self._burns() if (burn := _burn(one)) is not None],
            capacity=await self._part("capacity", self._read_capacity()),
            orphans=await self._part("orphans", self._read_orphans()),
            nodes=None if reports is None else self._nodes(reports),
            overdue_ms=await self._part("timers", self._read_overdue(now)),
        )

    async def _part(self, name: str, reading: Awaitable[T]) -> T | None:
        try:
            found = await reading
        except DuetimeError as error:
            if name not in self._failed:
                log.warning("facts for alerts can't be read", part=name, error=error.message)
            self._failed.add(name)
            return None
        self._failed.discard(name)
        return found

    async def _read_ended(self, now: int, subject: str | None) -> dict[tuple[str, str], list[Ended]]:
        """Reads a minute at a time: all rows at once would hold the event loop."""
        begin, found = bucket_of(now - round(RECENT_SECONDS * SECOND), MINUTE), []
        for since in range(begin, now + 1, MINUTE):
            until = min(since + MINUTE, now + 1)
            rows = await self._store.list_statistics(StatisticsQuery(since=since, until=until, subject=subject))
            found += ended_of(row for row in rows if row.bucket_at >= since or since == begin)
            await asyncio.sleep(0)
        return by_subject(found)

    async def _read_waiting(self, now: int, reports: Sequence[NodeReport] | None) -> dict[str, int] | None:
        """Returns by tenant the executions that wait for a node, and those that wait on one for a place."""
        if reports is None:
            return None
        found = Counter[str]()
        for report in reports:
            if report.is_fresh(now):
                found.update({use.tenant: use.waiting for use in report.facts.places if not use.target})
        after = ""
        for _ in range(0, MOST_TENANTS, PAGE):
            tenants = await self._store.list_waiting_tenants(now - WAITED, after, PAGE)
            for tenant in tenants:
                found[tenant] += await self._store.count_waiting(tenant, now - WAITED, MOST_COUNTED)
            if len(tenants) < PAGE:
                break
            after = tenants[-1]
        return found

    async def _read_expected(self, now: int) -> dict[str, list[WatchedJob]]:
        if self._expected is not None and 0 <= now - self._expected_at < JOBS_EVERY:
            return self._expected
        found: dict[str, list[WatchedJob]] = {}
        after, count = "", 0
        while count < MOST_EXPECTED:
            page = await self._store.list_watched_jobs(after, PAGE)
            for job in page:
                if job.expect_every is not None:
                    by = expected_by(job.expect_every, job.since, job.last_success_at)
                    found.setdefault(job.tenant, []).append(
                        WatchedJob(
                            job.job_id, job.name, job.since, None, job.last_success_at, by,
                            job.status is JobStatus.PENDING,
                        )
                    )  # fmt: skip
            count += len(page)
            if len(page) < PAGE:
                break
            after = page[-1].job_id
        self._expected, self._expected_at = found, now
        return found

    async def _read_circuits(self) -> list[OpenCircuit]:
        return [
            OpenCircuit(it.tenant, it.text, _origin(it.url), it.failures)
            for it in await self._store.list_open_circuits(MOST_OF_RULE, MOST_CIRCUITS)
        ]

    async def _read_capacity(self) -> list[Use]:
        load, most = await self._store.get_load(), self._capacity
        uses = (("jobs", load.jobs, most.most_jobs), ("bytes", load.bytes, most.most_bytes))
        return [Use(what, used, limit) for what, used, limit in uses if limit is not None]

    async def _read_orphans(self) -> int:
        found = await self._store.list_expired_claims(0, MOST_ORPHANS)
        return len(found) + len(found.unreadable)

    async def _read_reports(self, now: int) -> list[NodeReport]:
        others = [it for it in await self._store.list_node_reports(MOST_NODES) if it.node != self._node]
        return [NodeReport(self._node, now, self._own()), *others]  # a single node writes no report

    def _nodes(self, reports: Sequence[NodeReport]) -> list[NodeFact]:
        view = self._view()
        alive = frozenset() if view is None else frozenset(member.node for member in view.members)
        return [
            NodeFact(
                it.facts.name, it.at, it.node in alive, it.facts.clock_offset_ms, it.facts.in_flight, it.facts.limit,
                it.facts.failing,
            )
            for it in reports
        ]  # fmt: skip

    async def _read_overdue(self, now: int) -> int:
        due_at = await self._store.next_due_at()
        return 0 if due_at is None else max(0, now - due_at)

    # Facts of single rules: of a few of them they are read again in each turn

    async def read_long(self, rules: Rules) -> dict[str, dict[tuple[str, float], Seen]]:
        """Returns by tenant the sums over the long windows of its rules."""
        await self._part("long statistics", self._long.read_some(rules))
        return self._long.sums()

    async def read_jobs(self, rules: Rules) -> dict[tuple[str, str], Sequence[WatchedJob]]:
        """Returns the jobs of rules about a job or a tag, by tenant and name of the rule."""
        now = self._clock.now()
        wanted = {
            (tenant, name): rule for tenant, own in rules.items() for name, rule in own.items() if is_of_jobs(rule)
        }
        self._jobs = {
            key: kept for key, kept in self._jobs.items()
            if (wanted.get(key) == kept[0] if key[0] in rules else is_fresh(kept[1], now, KEPT))
        }  # fmt: skip
        ages = {key: self._jobs[key][1] if key in self._jobs else 0 for key in wanted}
        due = [key for key in wanted if not is_fresh(ages[key], now, JOBS_EVERY)]
        for key in in_turn(due, ages)[:SCOPES_A_TURN]:
            found = await self._part("jobs", self._read_scope(key[0], wanted[key]))
            if found is not None:
                self._jobs[key] = wanted[key], now, found
        return {key: kept[2] for key, kept in self._jobs.items()}

    async def _read_scope(self, tenant: str, rule: AlertRule) -> list[WatchedJob]:
        kind, _, rest = rule.scope.partition(":")
        if kind == "job":
            record = await self._store.get_job(tenant, rest)
            records: Sequence[JobRecord] = [] if record is None else [record]
        else:
            name, _, value = rest.partition("=")
            records = await self._store.list_jobs(JobQuery(tenant, tag=(name, value), limit=MOST_JOBS))
        return [await self._watched(tenant, record) for record in records]

    async def _watched(self, tenant: str, record: JobRecord) -> WatchedJob:
        # Silence counts from the last change: a job may have been paused until then.
        success_at = record.last_run_at if record.last_state is State.COMPLETED else None
        if success_at is None and record.successes:
            query = ExecutionQuery(tenant, job_id=record.job_id, state=State.COMPLETED, limit=1)
            success_at = next((it.ended_at for it in await self._store.list_executions(query)), None)
        return WatchedJob(
            record.job_id, record.spec.name, record.updated_at, record.last_run_at, success_at, None,
            record.status is JobStatus.PENDING,
        )  # fmt: skip


def _certificates(reports: Sequence[NodeReport], now: int) -> list[CertificateFact]:
    """Returns the certificates that nodes know of; of one target that which ends first."""
    found: dict[tuple[str, str], CertificateFact] = {}
    for report in reports:
        for it in report.facts.certificates if report.is_fresh(now) else ():
            known = found.get((it.tenant, it.target))
            found[it.tenant, it.target] = it if known is None or it.ends_at < known.ends_at else known
    return sorted(found.values(), key=lambda it: it.ends_at)


def _burn(one: JobStanding) -> Burn | None:
    standing, found = one.standing, one.standing.burning
    if found is None:
        return None
    return Burn(one.tenant, one.job_id, one.name, standing.objective.kind, found.rule.rate, found.long_rate)


def _origin(url: str) -> str:
    """Returns the URL without its path, which may hold a secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}" + (f":{parts.port}" if parts.port else "")
