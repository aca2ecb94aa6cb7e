"""Statistics: sums what ends on this node in memory, writes it once a second, and rolls up what is old.

A page of ends costs a few hundred microseconds; nothing is kept for a single execution. A killed node loses the last
second of its statistics, and nothing of the ledger. `domain.statistics` has the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import structlog

from duetime.domain.commands import (
    ChangeJob,
    CreateJobs,
    Fire,
    Fired,
    RecountJobs,
    ResumeJob,
    RollUpStatistics,
    WithNotifications,
    WriteStatistics,
)
from duetime.domain.errors import DuetimeError
from duetime.domain.instants import DAY, LATEST, MINUTE, SECOND
from duetime.domain.node_report import FORGOTTEN
from duetime.domain.plan import Skipped
from duetime.domain.shares import fair_level
from duetime.domain.skips import skips_of
from duetime.domain.statistics import (
    BUCKET,
    KEPT,
    MOST_KEYS,
    NO_TYPE,
    OTHERS,
    SPANS,
    Key,
    StatisticsQuery,
    StatisticsRow,
    Tally,
    Watched,
    bucket_of,
    group,
    most_keys,
    number_of,
    watched,
)
from duetime.engine.service import Service
from duetime.ports.clock import Clock
from duetime.ports.store import Store, apply_one
from duetime.telemetry.emitted import AttemptsEnded, Written
from duetime.telemetry.hub import Telemetry

log = structlog.get_logger()

PAGE = 250  # rows in one command
FORGET = 2 * MINUTE  # buckets in memory; the store refuses rows of older ones anyway
ROLL_UP_EVERY = 30 * SECOND
ROLL_UP_PAGES = 20  # a turn
RECOUNT_FIRST = 10 * MINUTE
RECOUNT_EVERY = DAY


def nothing() -> None:
    pass


class Collected:
    """The tallies of this process, over all terms of its engine. It subscribes to the ends and skips of executions."""

    def __init__(self, telemetry: Telemetry, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[int, dict[Key, Tally]] = {}
        self._changed: set[tuple[int, Key]] = set()
        self._wanted: dict[str, tuple[tuple[str, str], ...]] = {}
        self._watching: dict[str, Watched] = {}
        self._subjects: dict[int, Counter[str]] = {}  # the number of keys with a subject, by bucket and tenant
        self._share = MOST_KEYS  # of one tenant, of the keys with a subject in a bucket
        self.on_promise: Callable[[], None] = nothing  # a job with an `slo` was written: `watch` may get it
        self.node = 0  # the first id of this process: rows of one bucket must not have two writers
        telemetry.subscribe(AttemptsEnded, self._add_ends)
        telemetry.subscribe(Written, self._add_skips)
        telemetry.subscribe(Written, self._note_promises)

    def watch(self, subjects: Iterable[tuple[str, str]], of: str = "rules") -> None:
        """Keeps tallies of these (tenant, subject) from now on: `job:<id>`, `tag:<name>=<value>`; and of no others.

        `of`: who wants them; subjects that somebody else wants are kept, too.
        """
        self._wanted[of] = tuple(subjects)
        self._watching = watched(subject for some in self._wanted.values() for subject in some)
        self._share = max(1, fair_level([most_keys(own) for own in self._watching.values()] or [0], MOST_KEYS))

    def _add_ends(self, ended: AttemptsEnded) -> None:
        bucket_at = bucket_of(ended.at)
        for key, results in group(ended.results, ended.refused, self._watching).items():
            if (tally := self._tally(bucket_at, key)) is not None:
                (tally.add_of_job if key[2].startswith("job:") else tally.add)(results)

    def _add_skips(self, written: Written) -> None:
        for command, answer in zip(written.commands, written.answers, strict=False):
            if type(command) is Fire and isinstance(answer, Fired):
                for skip in skips_of(command, answer):
                    self._add_skip(command.now, skip)
            elif type(command) is WithNotifications or type(command) is ResumeJob:
                self._add_resumed(command, answer)

    def _note_promises(self, written: Written) -> None:
        for command in written.commands:
            if type(command) is CreateJobs:
                specs = [job.spec for job in command.jobs]
            else:
                specs = [command.spec] if type(command) is ChangeJob else []
            if any(spec.slo is not None for spec in specs):
                self.on_promise()

    def _add_resumed(self, command: WithNotifications[object] | ResumeJob, answer: object) -> None:
        first = command.first if isinstance(command, WithNotifications) else command
        if isinstance(first, ResumeJob) and first.skipped is not None and not isinstance(answer, DuetimeError):
            self._add_skip(first.now, first.skipped)

    def _add_skip(self, at: int, skip: Skipped) -> None:
        subjects = [""]
        watching = self._watching.get(skip.tenant)
        if watching is not None and skip.job_id in watching.jobs:
            subjects.append(f"job:{skip.job_id}")
        for subject in subjects:
            if (tally := self._tally(bucket_of(at), (skip.tenant, NO_TYPE, subject))) is not None:
                tally.skip(skip.reason, number_of(skip))

    def _tally(self, bucket_at: int, key: Key) -> Tally | None:
        """Returns the tally to add to, which will be written. None: there are too many, and a sum has this, too."""
        tallies = self._buckets.get(bucket_at)
        if tallies is None:
            tallies = self._buckets[bucket_at] = {}
        tally = tallies.get(key)
        if tally is None:
            tenant, kind, subject = key
            subjects = self._subjects.setdefault(bucket_at, Counter())
            if subject:
                if subjects[tenant] >= self._share or subjects.total() >= MOST_KEYS:
                    return None
                subjects[tenant] += 1
            elif tenant != OTHERS and len(tallies) - subjects.total() >= MOST_KEYS:
                return self._tally(bucket_at, (OTHERS, kind, ""))
            tally = tallies[key] = Tally()
        self._changed.add((bucket_at, key))
        return tally

    def take(self) -> list[StatisticsRow]:
        """Returns the rows that have changed since the last call, as copies. `put_back` those that were not written."""
        changed, self._changed = self._changed, set()
        rows = []
        for bucket_at, key in sorted(changed):
            tally = Tally()
            tally.merge(self._buckets[bucket_at][key])
            rows.append(StatisticsRow(BUCKET, bucket_at, *key, self.node, tally))
        self._forget(self._clock.now() - FORGET)
        return rows

    def put_back(self, rows: Iterable[StatisticsRow]) -> None:
        self._changed.update((row.bucket_at, row.key) for row in rows if row.bucket_at in self._buckets)

    def _forget(self, before: int) -> None:
        for bucket_at in [bucket_at for bucket_at in self._buckets if bucket_at < before]:
            del self._buckets[bucket_at]
            self._subjects.pop(bucket_at, None)
            self._changed = {one for one in self._changed if one[0] != bucket_at}


class Statistics(Service):
    """Writes what was collected. On the node where `runs_housekeeping` returns True, it also rolls up and removes rows.

    `is_clock_right()`: with a wrong clock nothing is rolled up or removed.
    """

    def __init__(
        self, store: Store, clock: Clock, collected: Collected, runs_housekeeping: Callable[[], bool],
        is_clock_right: Callable[[], bool], *, alone: bool,
    ) -> None:  # fmt: skip
        super().__init__("statistics", clock)
        self._store = store
        self._collected = collected
        self._runs_housekeeping = runs_housekeeping
        self._is_clock_right = is_clock_right
        self._roll_up_at = 0
        # A node that is alone has no other versions beside it.
        self._recount_at = LATEST if alone else clock.now() + RECOUNT_FIRST

    async def run_once(self) -> int:
        await self.flush()
        now = self._clock.now()
        if not self._roll_up_at - ROLL_UP_EVERY <= now < self._roll_up_at:
            self._roll_up_at = now + ROLL_UP_EVERY
            if self._is_clock_right() and self._runs_housekeeping():
                await self._keep_house(now)
        return now + SECOND

    async def flush(self) -> None:
        rows = self._collected.take()
        for first in range(0, len(rows), PAGE):
            try:
                await apply_one(self._store, WriteStatistics(self._clock.now(), tuple(rows[first : first + PAGE])))
            except BaseException:
                self._collected.put_back(rows[first:])
                raise

    async def _keep_house(self, now: int) -> None:
        for span, into in zip(SPANS, (*SPANS[1:], None), strict=True):
            until = bucket_of(now - KEPT[span], into or span)
            if await self._has_rows(span, until):
                await self._roll_up(RollUpStatistics(now, span, into, until, reports_before=now - FORGOTTEN))
        if now >= self._recount_at:
            self._recount_at = now + RECOUNT_EVERY
            await self._recount(now)

    async def _has_rows(self, span: int, until: int) -> bool:
        query = StatisticsQuery(since=0, until=until, span=span, subject=None, limit=1)
        return bool(await self._store.list_statistics(query))

    async def _roll_up(self, command: RollUpStatistics) -> None:
        for _ in range(ROLL_UP_PAGES):
            if not await apply_one(self._store, command):
                return

    async def _recount(self, now: int) -> None:
        try:
            if wrong := await apply_one(self._store, RecountJobs(now)):
                log.info("totals of jobs by status were corrected", totals=wrong)
        except DuetimeError as error:  # it reads all timers; the totals stay as they are until the next time
            log.warning("totals of jobs by status could not be recounted", error=error.message)

    async def stop(self) -> None:
        await super().stop()
        await self.flush()
