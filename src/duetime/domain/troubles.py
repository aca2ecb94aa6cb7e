"""The worst jobs of the last minutes, and who takes a node's places: what a node tells of itself for `duetime top`.

A sketch, not statistics: of each page it keeps the jobs that failed most and the latest one, by tenant, so that a
tenant with many bad jobs hides nobody else's. Its size is bounded. Pure: pages and instants come in as arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest

import msgspec

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.states import Trigger

KEPT = 5 * MINUTE
LATE = SECOND  # a job that starts less late than this is not worth a row
MOST_OF_PAGE = 10  # failing jobs of one tenant that a page adds
MOST_OF_TENANT = 30  # jobs of one tenant that are kept for each minute
MOST_TENANTS = 100  # of which jobs are kept for each minute
MOST_TOLD = 60  # rows of a report
MOST_TOLD_OF_TENANT = 10
LONGEST_NAME = 60

Result = tuple[Claim, AttemptEnd]


class JobTrouble(msgspec.Struct, frozen=True, array_like=True):
    """A job of the last minutes: how many of its attempts failed, and how late it started at most."""

    tenant: str
    job_id: str
    name: str
    type: str
    failures: int
    lateness_ms: int
    error: str  # the type of the last error; empty: none failed

    @property
    def badness(self) -> tuple[int, int]:
        return self.failures, self.lateness_ms


class PlaceUse(msgspec.Struct, frozen=True, array_like=True):
    """Executions of a tenant, or of one target of a tenant, that a node runs, and that wait there for a place."""

    tenant: str
    target: str  # empty: all of the tenant
    running: int
    waiting: int


class Troubles:
    """The worst jobs, by minute, tenant and job."""

    def __init__(self) -> None:
        self._minutes: dict[int, dict[str, dict[str, JobTrouble]]] = {}

    def add(self, at: int, results: Sequence[Result], refused: Collection[str]) -> None:
        if refused:
            results = [result for result in results if result[1].execution_id not in refused]
        self._forget(at)
        for trouble in (*_failing(results), *_late(results)):
            self._keep(at - at % MINUTE, trouble)

    def worst(self, now: int) -> tuple[JobTrouble, ...]:
        """Returns the worst jobs of each tenant. Each tenant has its worst one in, before any has its second."""
        self._forget(now)
        ranked = [_worst_of(jobs) for jobs in self._by_tenant().values()]
        turns = [[jobs[turn] for jobs in ranked if turn < len(jobs)] for turn in range(MOST_TOLD_OF_TENANT)]
        told = [job for turn in turns for job in sorted(turn, key=_badness, reverse=True)]
        return tuple(told[:MOST_TOLD])

    def _by_tenant(self) -> dict[str, dict[str, JobTrouble]]:
        found: dict[str, dict[str, JobTrouble]] = defaultdict(dict)
        for minute in sorted(self._minutes):
            for tenant, jobs in self._minutes[minute].items():
                for job_id, trouble in jobs.items():
                    found[tenant][job_id] = together(found[tenant].get(job_id), trouble)
        return found

    def _keep(self, minute: int, trouble: JobTrouble) -> None:
        tenants = self._minutes.setdefault(minute, {})
        if trouble.tenant not in tenants and len(tenants) >= MOST_TENANTS:
            return
        jobs = tenants.setdefault(trouble.tenant, {})
        known = jobs.get(trouble.job_id)
        if known is None and len(jobs) >= MOST_OF_TENANT:
            least = min(jobs.values(), key=_badness)
            if least.badness >= trouble.badness:
                return
            del jobs[least.job_id]
        jobs[trouble.job_id] = together(known, trouble)

    def _forget(self, now: int) -> None:
        for minute in [minute for minute in self._minutes if not now - KEPT < minute + MINUTE <= now + KEPT]:
            del self._minutes[minute]


def _badness(trouble: JobTrouble) -> tuple[int, int]:
    return trouble.badness


def _worst_of(jobs: dict[str, JobTrouble]) -> list[JobTrouble]:
    """Returns a tenant's worst jobs: half of them those that failed most, the others the latest."""
    failing = nlargest(MOST_TOLD_OF_TENANT // 2, (job for job in jobs.values() if job.failures), key=_badness)
    chosen = {job.job_id for job in failing}
    rest = (job for job in jobs.values() if job.job_id not in chosen)
    return failing + nlargest(MOST_TOLD_OF_TENANT - len(failing), rest, key=lambda job: job.lateness_ms)


def together(known: JobTrouble | None, more: JobTrouble) -> JobTrouble:
    """Returns the sum of what is known of a job and what came later, or from another node."""
    if known is None:
        return more
    return msgspec.structs.replace(
        more, failures=known.failures + more.failures, lateness_ms=max(known.lateness_ms, more.lateness_ms),
        error=more.error or known.error,
    )  # fmt: skip


def merged(reports: Iterable[Sequence[JobTrouble]], tenant: str | None) -> list[JobTrouble]:
    """Returns the jobs of all nodes, the worst first. `tenant`: only of this one."""
    found: dict[str, JobTrouble] = {}
    for troubles in reports:
        for trouble in troubles:
            if tenant is None or trouble.tenant == tenant:
                found[trouble.job_id] = together(found.get(trouble.job_id), trouble)
    return sorted(found.values(), key=_badness, reverse=True)


def merged_places(reports: Iterable[Sequence[PlaceUse]], tenant: str | None) -> list[PlaceUse]:
    """Returns the places that are taken on all nodes, those with most waiting first. `tenant`: only of this one."""
    found: dict[tuple[str, str], PlaceUse] = {}
    for uses in reports:
        for use in uses:
            if tenant is None or use.tenant == tenant:
                key = use.tenant, use.target
                known = found.get(key) or PlaceUse(*key, 0, 0)
                found[key] = PlaceUse(*key, known.running + use.running, known.waiting + use.waiting)
    return sorted(found.values(), key=lambda use: (-use.waiting, -use.running, use.tenant, use.target))


def _failing(results: Sequence[Result]) -> list[JobTrouble]:
    """Returns the jobs of a page that failed most, of each tenant. Without failures: one comparison each."""
    failed = [result for result in results if result[1].error_type is not None]
    if not failed:
        return []
    latest = {result[0].job_id: result for result in failed}
    numbers = Counter([claim.job_id for claim, _ in failed])
    chosen = numbers.most_common(MOST_OF_PAGE)
    if len(numbers) > MOST_OF_PAGE and len({claim.tenant for claim, _ in failed}) > 1:
        chosen = _most_of_each_tenant(numbers, latest)
    return [
        _trouble(claim, number, 0, str(end.error_type))
        for claim, end, number in [(*latest[job_id], number) for job_id, number in chosen]
    ]


def _most_of_each_tenant(numbers: Counter[str], latest: Mapping[str, Result]) -> list[tuple[str, int]]:
    chosen, of_tenant = [], Counter[str]()
    for job_id, number in numbers.most_common():
        tenant = latest[job_id][0].tenant
        of_tenant[tenant] += 1
        if of_tenant[tenant] <= MOST_OF_PAGE:
            chosen.append((job_id, number))
    return chosen


def _late(results: Sequence[Result]) -> list[JobTrouble]:
    """Returns the latest first attempt of each tenant in a page, if it was late."""
    began = [end.started_at - claim.scheduled_at for claim, end in results if end.started_at is not None]
    if not began or max(began) < LATE:
        return []
    latest: dict[str, tuple[int, Claim]] = {}
    for claim, end in results:
        lateness = 0 if end.started_at is None else end.started_at - claim.scheduled_at
        if lateness >= LATE and claim.attempt == 1 and claim.trigger is not Trigger.RETRY:
            known = latest.get(claim.tenant)
            if known is None or lateness > known[0]:
                latest[claim.tenant] = lateness, claim
    return [_trouble(claim, 0, lateness, "") for lateness, claim in latest.values()]


def _trouble(claim: Claim, failures: int, lateness: int, error: str) -> JobTrouble:
    spec = claim.spec
    return JobTrouble(claim.tenant, claim.job_id, spec.name[:LONGEST_NAME], str(spec.type), failures, lateness, error)
