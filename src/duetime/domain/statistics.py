"""Statistics: counts and histograms of ended attempts, by time bucket, tenant, type of job and subject.

A `Tally` sums the attempts that ended within one bucket of time. Every node keeps the tallies of its own attempts, and
writes them as rows. Each ended attempt is counted in exactly one row of the subject "": rows of ten seconds are rolled
up into rows of a minute, and those into rows of an hour, so a sum over rows of any spans counts nothing twice.

A subject is "" (everything of the tenant and type), `job:<id>` or `tag:<name>=<value>`. Only watched subjects have rows
of their own. A skipped instant that was never an execution has no type: its rows have the type "".

Pure: pages, rows and instants come in as arguments.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.histogram import Histogram
from duetime.domain.instants import DAY, HOUR, MINUTE, SECOND
from duetime.domain.job import JobType
from duetime.domain.objectives import punctuality
from duetime.domain.plan import MOST_COUNTED, Skipped
from duetime.domain.states import OPEN, State, Trigger

BUCKET = 10 * SECOND  # minutes would make rates over one minute jump
SPANS = (BUCKET, MINUTE, HOUR)
# When rows of a span are rolled up into rows of the next one; those of the last span are removed.
KEPT = {BUCKET: 3 * MINUTE, MINUTE: 2 * HOUR, HOUR: 31 * DAY}

MOST_KEYS = 1_000  # of a node in one bucket; the rest is summed under OTHERS
MOST_WATCHED = 200  # subjects of one tenant that have rows of their own
OTHERS = "*"  # in place of a tenant; no tenant has this name
NO_TYPE = ""

Key = tuple[str, str, str]  # tenant, type, subject
Result = tuple[Claim, AttemptEnd]


class Tally(msgspec.Struct, omit_defaults=True):
    """Sums of attempts. `completed`, `failed`, `timeout` and `cancelled` are ends of executions.

    `retried`: attempts after which the execution waits for another one. `lateness`: from the scheduled instant to the
    start, of first attempts. `duration`: of attempts that started. `on_time` and `late`: first attempts within and
    beyond the lateness objective of their job, exactly; only in rows of a single job.
    """

    attempts: int = 0
    completed: int = 0
    failed: int = 0
    timeout: int = 0
    cancelled: int = 0
    retried: int = 0
    dead: int = 0
    on_time: int = 0
    late: int = 0
    skipped: dict[str, int] = msgspec.field(default_factory=dict)  # by reason
    errors: dict[str, int] = msgspec.field(default_factory=dict)  # by error type, of attempts
    lateness: Histogram = msgspec.field(default_factory=Histogram)
    duration: Histogram = msgspec.field(default_factory=Histogram)

    @property
    def failures(self) -> int:
        return self.failed + self.timeout

    @property
    def ended(self) -> int:
        """Returns how many executions completed or failed."""
        return self.completed + self.failures

    @property
    def failure_ratio(self) -> float:
        """Returns the share of failures among the executions that completed or failed; 0 if there are none."""
        return self.failures / self.ended if self.ended else 0.0

    def add(self, results: Sequence[Result]) -> None:
        """Adds ends of attempts. It costs a few hundred ns an end: counted in C, no object for each."""
        states = [end.state for _, end in results]
        completed = states.count(State.COMPLETED)
        self.completed += completed
        self.attempts += len(results) - states.count(State.SKIPPED)
        if len(results) > completed:
            self._add_failures(results, Counter(states))
        self.lateness.add(
            [
                end.started_at - claim.scheduled_at
                for claim, end in results
                if claim.attempt == 1 and end.started_at is not None and claim.trigger is not Trigger.RETRY
            ]
        )
        self.duration.add([end.ended_at - end.started_at for _, end in results if end.started_at is not None])

    def add_of_job(self, results: Sequence[Result]) -> None:
        """Adds ends of attempts of a single job, whose objectives are counted, too."""
        self.add(results)
        on_time, late = punctuality(results)
        self.on_time += on_time
        self.late += late

    def _add_failures(self, results: Sequence[Result], states: Mapping[State, int]) -> None:
        self.failed += states[State.FAILED]
        self.timeout += states[State.TIMEOUT]
        self.cancelled += states[State.CANCELLED]
        self.retried += sum(states[state] for state in OPEN)
        self.dead += sum([end.dead for _, end in results])
        _count(self.errors, Counter([end.error_type for _, end in results if end.error_type is not None]))
        if states[State.SKIPPED]:
            _count(self.skipped, Counter([end.reason or "" for _, end in results if end.state is State.SKIPPED]))

    def skip(self, reason: str, number: int) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    def merge(self, other: Tally) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        _count(self.skipped, other.skipped)
        _count(self.errors, other.errors)
        self.lateness.merge(other.lateness)
        self.duration.merge(other.duration)


_COUNTS = ("attempts", "completed", "failed", "timeout", "cancelled", "retried", "dead", "on_time", "late")


def _count(into: dict[str, int], more: Mapping[Any, int]) -> None:
    for name, number in more.items():
        into[str(name)] = into.get(str(name), 0) + number


class StatisticsRow(msgspec.Struct, frozen=True, array_like=True):
    """The tally of one bucket, [bucket_at, bucket_at + span). `node`: whose attempts; 0: of all nodes, rolled up."""

    span: int
    bucket_at: int
    tenant: str
    type: str
    subject: str
    node: int
    tally: Tally

    @property
    def key(self) -> Key:
        return self.tenant, self.type, self.subject


class StatisticsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Rows whose bucket overlaps [since, until). None: any. `subject` "": the sums of tenants and types."""

    since: int
    until: int
    span: int | None = None
    tenant: str | None = None
    type: str | None = None
    subject: str | None = ""
    limit: int = 100_000  # rows, the latest first


def merged(rows: Iterable[StatisticsRow]) -> Tally:
    found = Tally()
    for row in rows:
        found.merge(row.tally)
    return found


def grouped(rows: Iterable[StatisticsRow], field: str) -> dict[str, Tally]:
    """Returns the sums by `tenant`, `type` or `subject`."""
    found: dict[str, Tally] = defaultdict(Tally)
    for row in rows:
        found[getattr(row, field)].merge(row.tally)
    return dict(found)


def bucket_of(at: int, span: int = BUCKET) -> int:
    return at - at % span


class Watched(NamedTuple):
    """The watched subjects of one tenant."""

    jobs: frozenset[str]
    tags: frozenset[tuple[str, str]]


def watched(subjects: Iterable[tuple[str, str]]) -> dict[str, Watched]:
    """Returns the watched subjects by tenant, from (tenant, subject): the first MOST_WATCHED of each, in their order.

    The order makes every node watch the same ones. Subjects that this version does not know are left out.
    """
    by_tenant: dict[str, set[str]] = defaultdict(set)
    for tenant, subject in subjects:
        by_tenant[tenant].add(subject)
    found = {}
    for tenant, some in by_tenant.items():
        kept = sorted(some)[:MOST_WATCHED]
        jobs = frozenset(one.removeprefix("job:") for one in kept if one.startswith("job:"))
        tags = frozenset(_tag(one) for one in kept if one.startswith("tag:") and "=" in one)
        found[tenant] = Watched(jobs, tags)
    return found


def most_keys(own: Watched) -> int:
    """Returns how many keys the subjects of a tenant can have in a bucket: one for each type of jobs with a tag."""
    return 2 * len(own.jobs) + (len(JobType) + 1) * len(own.tags)


def _tag(subject: str) -> tuple[str, str]:
    name, _, value = subject.removeprefix("tag:").partition("=")
    return name, value


def group(
    results: Sequence[Result], refused: Collection[str], watching: Mapping[str, Watched]
) -> dict[Key, Sequence[Result]]:
    """Returns a page of ends by key. Ends that the store refused are left out; an end may be in several groups."""
    if refused:
        results = [result for result in results if result[1].execution_id not in refused]
    found: dict[Key, Sequence[Result]] = {}
    for tenant, some in _by_tenant_and_type(results):
        name = str(some[0][0].spec.type)
        found[tenant, name, ""] = some
        if (subjects := watching.get(tenant)) is not None:
            for subject, part in _by_subject(some, subjects).items():
                found[tenant, name, subject] = part
    return found


def _by_tenant_and_type(results: Sequence[Result]) -> Iterable[tuple[str, Sequence[Result]]]:
    if not results:
        return ()
    first = results[0][0]
    tenants, types = [claim.tenant for claim, _ in results], [claim.spec.__class__ for claim, _ in results]
    if tenants.count(first.tenant) == types.count(first.spec.__class__) == len(results):  # nearly all pages
        return ((first.tenant, results),)
    parts: dict[tuple[str, type], list[Result]] = defaultdict(list)
    for key, result in zip(zip(tenants, types, strict=True), results, strict=True):
        parts[key].append(result)
    return [(tenant, part) for (tenant, _), part in parts.items()]


def _by_subject(results: Sequence[Result], subjects: Watched) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = defaultdict(list)
    if subjects.jobs.intersection([claim.job_id for claim, _ in results]):
        for result in results:
            if result[0].job_id in subjects.jobs:
                found[f"job:{result[0].job_id}"].append(result)
    if subjects.tags:
        for result in results:
            for name, value in subjects.tags.intersection(result[0].spec.tags.items()):
                found[f"tag:{name}={value}"].append(result)
    return found


def number_of(skip: Skipped) -> int:
    """Returns how many instants a span has. A number that is too high to count is counted as that limit."""
    return MOST_COUNTED if skip.count is None else skip.count


def roll_up(
    rows: Iterable[StatisticsRow], existing: Iterable[StatisticsRow], into: int, room: int
) -> list[StatisticsRow]:
    """Returns the rows of the span `into` that replace `existing` ones when `rows`, all of one bucket, are added.

    `room`: how many new keys the bucket may get. Beyond that, tenants are summed under OTHERS, and rows of a single
    subject are dropped.
    """
    tallies: dict[Key, Tally] = {row.key: row.tally for row in existing}
    bucket_at = 0
    for row in rows:
        bucket_at = bucket_of(row.bucket_at, into)
        key = row.key
        if key not in tallies:
            room -= 1
            if room < 0 and row.tenant != OTHERS:
                if row.subject:
                    continue
                key = OTHERS, row.type, ""
        tallies.setdefault(key, Tally()).merge(row.tally)
    return [StatisticsRow(into, bucket_at, *key, 0, tally) for key, tally in tallies.items()]


# Rates, errors and durations


WINDOWS = {"1m": MINUTE, "5m": 5 * MINUTE, "15m": 15 * MINUTE}
SETTLED = 2 * SECOND  # until then every node has written the bucket before


class Window(NamedTuple):
    since: int
    until: int

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / SECOND


def window(now: int, length: int) -> Window:
    """Returns the window of about `length` that every node sees alike: of whole buckets that all have been written.

    A window longer than a minute begins at a whole minute: its older rows may be of minutes.
    """
    until = bucket_of(now - SETTLED)
    since = until - length
    return Window(since if length <= MINUTE else bucket_of(since, MINUTE), until)


def in_window(rows: Iterable[StatisticsRow], of: Window) -> list[StatisticsRow]:
    return [row for row in rows if of.since <= row.bucket_at < of.until]


# Histograms over time

MOST_BUCKETS = 300  # in a response
USUAL_BUCKETS = 60


def finest_at(since: int, now: int) -> int:
    """Returns the longest span of the rows since then: no bucket can be shorter."""
    for span in SPANS[:-1]:
        if since >= now - KEPT[span] + 2 * span:
            return span
    return SPANS[-1]


def bucket_width(since: int, until: int, wanted: int | None, finest: int) -> int:
    """Returns the length of buckets: as wanted, or for about USUAL_BUCKETS; but as long as they must be."""
    least = max(finest, -(-(until - since) // MOST_BUCKETS))
    width = max(least, (until - since) // USUAL_BUCKETS if wanted is None else wanted)
    return -(-width // finest) * finest
