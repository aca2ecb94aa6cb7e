"""The facts that alert rules are measured by, read once a turn for all rules.

A part that is None could not be read: rules that need it keep their state. The operator's rules use what is of the
whole cluster; a tenant's rules use only what is the tenant's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from duetime.domain.histogram import Histogram
from duetime.domain.instants import SECOND
from duetime.domain.node_report import CertificateFact

RECENT_SECONDS = 300.0  # the sums of rules that look further back are read apart


class Ended(NamedTuple):
    """Executions that ended in the `span` ms from `at` on. `subject`: empty, `tag:name=value` or `job:<id>`."""

    at: int
    span: int
    tenant: str
    subject: str
    completed: int
    failed: int
    dead: int
    lateness: Histogram


class Seen(msgspec.Struct):
    """Executions that ended in a window."""

    completed: int = 0
    failed: int = 0
    dead: int = 0
    lateness: Histogram = msgspec.field(default_factory=Histogram)

    def add(self, ended: Ended) -> None:
        self.completed += ended.completed
        self.failed += ended.failed
        self.dead += ended.dead
        self.lateness.merge(ended.lateness)

    def copy(self) -> Seen:
        lateness = Histogram()
        lateness.merge(self.lateness)
        return Seen(self.completed, self.failed, self.dead, lateness)


class WatchedJob(NamedTuple):
    """A job that a rule names, or that states how often it must succeed.

    `since`: when it was created, or began to be expected; silence before that does not count.
    """

    job_id: str
    name: str
    since: int
    last_run_at: int | None = None
    last_success_at: int | None = None
    expected_by: int | None = None  # only of a job with expect_every
    is_active: bool = True


class NodeFact(NamedTuple):
    """A node, by its last report. `is_alive`: its lease has not expired. A node that left by itself is not listed."""

    name: str
    reported_at: int
    is_alive: bool
    clock_offset: int | None = None
    in_flight: int = 0
    limit: int = 0
    failing: tuple[str, ...] = ()  # services whose last turn failed


class OpenCircuit(NamedTuple):
    tenant: str
    circuit: str
    target: str  # without its path, which may hold a secret
    failures: int


class Burn(NamedTuple):
    """A job burns the error budget of an objective so fast that one of the rules of `domain.objectives` holds.

    `rate`: of that rule. `actual`: the job's rate over the rule's long span.
    """

    tenant: str
    job_id: str
    name: str
    objective: str
    rate: float
    actual: float


class Use(NamedTuple):
    """The use of one of the store's limits."""

    what: str
    used: int
    most: int


class Facts(msgspec.Struct, frozen=True):
    now: int
    ended: Mapping[tuple[str, str], Sequence[Ended]] | None = None  # by tenant and subject: of RECENT_SECONDS
    long: Mapping[str, Mapping[tuple[str, float], Seen]] = {}  # by tenant: of its rules' subjects and long windows
    waiting: Mapping[str, int] | None = None  # by tenant: executions that are due and do not run
    expected: Mapping[str, Sequence[WatchedJob]] | None = None  # by tenant: jobs with expect_every
    jobs: Mapping[tuple[str, str], Sequence[WatchedJob]] | None = None  # by tenant and rule: jobs of the rule's scope
    circuits: Sequence[OpenCircuit] | None = None
    certificates: Sequence[CertificateFact] | None = None
    burns: Sequence[Burn] | None = None
    capacity: Sequence[Use] | None = None
    orphans: int | None = None
    nodes: Sequence[NodeFact] | None = None
    overdue_ms: int | None = None  # of the earliest timer; 0 if none is overdue

    def seen(self, tenant: str, subject: str, window_seconds: float) -> Seen | None:
        """Returns the executions that ended in the window; None if that is not known now."""
        if window_seconds > RECENT_SECONDS:
            return self.long.get(tenant, {}).get((subject, window_seconds))
        if self.ended is None:
            return None
        return sums_over(self.ended.get((tenant, subject), ()), {window_seconds}, self.now)[window_seconds]

    def tenants(self) -> set[str]:
        """Returns the tenants that some fact is about."""
        found = {tenant for tenant, _ in self.ended or ()} | set(self.expected or ())
        found |= {tenant for tenant, count in (self.waiting or {}).items() if count}
        for listed in (self.circuits, self.certificates, self.burns):
            found |= {fact.tenant for fact in listed or ()}
        return found


def sums_over(ended: Iterable[Ended], windows: Collection[float], now: int) -> dict[float, Seen]:
    """Returns the sums over each window, which are given in seconds. A bucket that lies partly in one counts whole."""
    rows = sorted((one for one in ended if one.at <= now), key=lambda one: one.at + one.span)
    found, seen = {}, Seen()
    for window in sorted(windows):
        begin = now - round(window * SECOND)
        while rows and rows[-1].at + rows[-1].span > begin:
            seen.add(rows.pop())
        found[window] = seen.copy()
    return found


def by_subject(ended: Iterable[Ended]) -> dict[tuple[str, str], list[Ended]]:
    found: dict[tuple[str, str], list[Ended]] = {}
    for one in ended:
        found.setdefault((one.tenant, one.subject), []).append(one)
    return found
