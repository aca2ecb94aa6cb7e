"""POST /api/v1/jobs:batch: creates many jobs at once, from a JSON array or from NDJSON, which is read as it arrives.

An array is held in memory as a whole, so it may have 8 MB. NDJSON is not: a batch may have 100,000 jobs. The held part
of it (an incomplete line, and pages that are not written yet) counts among the large bodies of its tenant. If there is
no room, the batch waits for a while, and then refuses the rest.

A page of lines is checked while the pages before it are written. A bad line does not affect other lines: a line that is
too long is skipped up to its end, and lines over the limit are not read. The response always has the created jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from litestar import post

from duetime.api.advice import check_after
from duetime.api.batch_lines import MOST_ARRAY_BYTES, MOST_BYTES, MOST_JOBS, TooMany, read_blocks
from duetime.api.bodies import MAX_BODY_BYTES, decode_spec, decode_specs
from duetime.api.context import ApiContext
from duetime.api.http.starts import Slices
from duetime.api.queries import AnyRequest
from duetime.api.routes.create import Known, bound, create_command, new_job
from duetime.domain.audit import entry
from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.cron import is_zone
from duetime.domain.errors import DuetimeError, InvalidRequest, InvalidSchedule, Overloaded, PayloadTooLarge
from duetime.domain.identity import Caller, Right
from duetime.domain.instants import SECOND
from duetime.domain.job import JobSpec, JobType
from duetime.domain.weights import MOST_WEIGHT, memory_of, weigh
from duetime.wire.jobs import BatchResult, Refused

PAGE = 1000
PAGE_BYTES = 1024 * 1024  # of memory: a page ends at so many jobs, or when it takes so much
ROOM_SECONDS = 2.0  # how long a batch waits for room
PAGES_UNDER_WAY = 4
MOST_EXPLAINED = 1000  # refused lines that the response explains; of the others it has the index
LONGEST_TEXT = 300  # characters of the message about a refused line ...
MOST_FIELDS = 5  # ... and how many of its fields are named

_LIMITS = (
    f"A JSON array may have {MOST_ARRAY_BYTES // 1024**2} MiB; a larger one is refused with 413. Send more as "
    "`application/x-ndjson`, one job a line: it is read as it arrives, "
    f"up to {MOST_JOBS:,} jobs and {MOST_BYTES // 1024**2} MiB. A bad line does not affect the others."
)

_NOT_READ = "this line and those after it were not read: send them again"

_SQL = JobType.SQL_QUERY  # a name of the module is found faster than an enum's member
Numbered = tuple[int, NewJob]


@post(
    "/jobs:batch", tags=["jobs"], summary="Create many jobs at once (JSON array or NDJSON)", description=_LIMITS,
    status_code=200,
    request_max_body_size=MOST_BYTES, right=Right.WRITE,
)  # fmt: skip
async def create_jobs(request: AnyRequest, context: ApiContext, caller: Caller) -> BatchResult:
    batch = _Batch(context, caller)
    try:
        await _read(request, batch)
        return await batch.finish()
    finally:
        batch.release()


async def _read(request: AnyRequest, batch: _Batch) -> None:
    """Reads all lines. Raises Overloaded if there is no room for the first one."""
    try:
        async for block in read_blocks(request, batch.hold_rest):
            if block is None:
                batch.refuse_line(PayloadTooLarge(f"the job has more than {MAX_BODY_BYTES} bytes, which is the most"))
            else:
                await batch.add(block)
    except TooMany as bound:
        batch.refuse_rest(PayloadTooLarge(f"{bound}; {_NOT_READ}"))
    except Overloaded as error:
        if batch.is_empty:
            raise
        batch.refuse_rest(Overloaded(f"{error.message}; {_NOT_READ}", error.retry_after))


class _Batch:
    def __init__(self, context: ApiContext, caller: Caller) -> None:
        self._context = context
        self._caller = caller
        self._index = 0
        self._page: list[Numbered] = []
        self._now = 0  # of the page: all its jobs are created in one instant
        self._writing: list[asyncio.Task[None]] = []
        self._created: dict[int, str] = {}
        self._refused: list[Refused] = []
        self._also_refused: dict[str, list[int]] = {}  # by error
        self._connections: Known = {}
        self._slices = Slices(lambda: context.turns.wait(caller.tenant))
        self._rest_bytes = 0  # held: of the incomplete line ...
        self._page_bytes = 0  # ... and of the lines of the page

    @property
    def is_empty(self) -> bool:
        """Whether no line was read."""
        return not self._index

    async def hold_rest(self, size: int) -> None:
        """Counts the bytes of the incomplete line. Raises Overloaded if there is no room."""
        if size > self._rest_bytes:
            await self._hold(size - self._rest_bytes)
        elif size < self._rest_bytes:
            self._give_back(self._rest_bytes - size)
        self._rest_bytes = size

    async def _hold(self, size: int) -> None:
        bodies, tenant = self._context.bodies, self._caller.tenant
        try:
            bodies.add(tenant, size)
        except Overloaded:
            await self._drain()  # first writes the jobs that this batch has read
            await bodies.add_patiently(tenant, size, ROOM_SECONDS)

    def _give_back(self, size: int) -> None:
        if size:
            self._context.bodies.remove(self._caller.tenant, size)

    def release(self) -> None:
        """Gives back what is held, after the last read. Pages that are being written give back their own bytes."""
        self._give_back(self._rest_bytes + self._page_bytes)
        self._rest_bytes = self._page_bytes = 0

    async def add(self, block: bytes) -> None:
        """Adds lines of jobs, in turns with other requests, even if every line is refused. Raises Overloaded."""
        if self._slices.is_over():
            await self._slices.give_way()
        weight = weigh(block)
        size = memory_of(block, weight)
        await self._hold(size)
        self._page_bytes += size
        is_light = len(block) <= MAX_BODY_BYTES and weight <= MOST_WEIGHT
        specs = decode_specs(block) if is_light else None
        found: Sequence[JobSpec | bytes] = block.split(b"\n") if specs is None else specs
        for item in found:
            if isinstance(item, bytes) and (not item or item.isspace()):
                continue
            index = self._next_index()
            if isinstance(item, bytes) or item.type is _SQL or item.after:
                await self._plan_line(index, item)
            else:
                self._plan(index, item)
            if len(self._page) >= PAGE:
                await self._flush()
            if self._slices.is_over():
                await self._slices.give_way()
        if not self._page:
            self._give_back(self._page_bytes)
            self._page_bytes = 0
        # A page that fills slowly is written before it is full: its instant would be long past.
        elif self._page_bytes >= PAGE_BYTES or self._context.clock.now() - self._now >= SECOND:
            await self._flush()

    def _next_index(self) -> int:
        if self._index >= MOST_JOBS:
            raise TooMany(f"a batch may have {MOST_JOBS} jobs")
        self._index += 1
        return self._index - 1

    def refuse_line(self, error: DuetimeError) -> None:
        """Refuses the next line, which was not kept."""
        self._refuse(self._next_index(), error)

    def refuse_rest(self, error: DuetimeError) -> None:
        """Refuses the next line and all after it. Always with a message, however many were refused before."""
        self._refused.append(_explained(self._index, error))

    async def _plan_line(self, index: int, item: JobSpec | bytes) -> None:
        """Plans a job by itself: its line has an error that must be found, or it names a connection or other jobs."""
        try:
            if isinstance(item, bytes) and len(item) > MAX_BODY_BYTES:
                raise PayloadTooLarge(f"the job has {len(item)} bytes; {MAX_BODY_BYTES} are allowed")
            spec = decode_spec(item) if isinstance(item, bytes) else item
            if spec.type is _SQL:
                spec = await bound(self._context, self._caller, spec, known=self._connections)
            await check_after(self._context, self._caller, spec)
        except DuetimeError as error:
            self._refuse(index, error)
        else:
            self._plan(index, spec)

    def _plan(self, index: int, spec: JobSpec) -> None:
        if not self._page:
            self._now = self._context.clock.now()
        try:
            if len(self._refused) >= MOST_EXPLAINED and not is_zone(spec.timezone):
                raise InvalidSchedule("")  # finding the zone that was meant is the costliest refusal
            job = new_job(self._context, self._caller, spec, self._now)
        except DuetimeError as error:
            self._refuse(index, error)
        else:
            self._page.append((index, job))

    async def _flush(self) -> None:
        while len(self._writing) >= PAGES_UNDER_WAY:
            await self._writing.pop(0)
        page, self._page = self._page, []
        size, self._page_bytes = self._page_bytes, 0
        self._writing.append(asyncio.create_task(self._write(page, self._now, size)))
        await self._slices.give_way()

    async def _write(self, page: list[Numbered], now: int, size: int) -> None:
        try:
            await self._write_page(page, now)
        finally:
            self._give_back(size)

    async def _write_page(self, page: list[Numbered], now: int) -> None:
        context, caller = self._context, self._caller
        answers: list[object] = [None] * len(page)
        try:
            (answer,) = await context.store.apply([self._together([job for _, job in page], now)])
            if isinstance(answer, DuetimeError):  # one of them can't be written: find out which
                answers = await context.store.apply([create_command(context, caller, job, now) for _, job in page])
        except DuetimeError as error:  # none was written (a full disk, say); other pages may have been
            answers = [error] * len(page)
        soonest = None
        for (index, job), refused in zip(page, answers, strict=True):
            if isinstance(refused, DuetimeError):
                context.note_refusal(refused)
                self._refuse(index, refused)
            else:
                self._created[index] = job.job_id
                soonest = job.due_at if soonest is None else min(soonest, job.due_at)
        if soonest is not None:
            context.engine.due_hint(soonest)
            created = sum(not isinstance(refused, DuetimeError) for refused in answers)
            context.events.publish("jobs.created", now, caller.tenant, {"count": created}, caller.user_id)

    def _together(self, jobs: Sequence[NewJob], now: int) -> CreateJobs:
        """Returns the command for a page, with one audit entry: each job's first state is in its later entries."""
        noted = entry(
            self._caller, now, "job.create", "", None, {"count": len(jobs), "jobs": [job.job_id for job in jobs]}
        )
        return CreateJobs(now, tuple(jobs), quota=self._context.quota_of(self._caller), audit=(noted,))

    def _refuse(self, index: int, error: DuetimeError) -> None:
        if len(self._refused) < MOST_EXPLAINED:
            self._refused.append(_explained(index, error))
        else:
            self._also_refused.setdefault(error.code, []).append(index)

    async def _drain(self) -> None:
        if self._page:
            await self._flush()
        while self._writing:
            await self._writing.pop(0)

    async def finish(self) -> BatchResult:
        await self.hold_rest(0)
        await self._drain()
        created = [job_id for _, job_id in sorted(self._created.items())]
        refused = sorted(self._refused, key=lambda item: item.index)
        also_refused = {code: sorted(indexes) for code, indexes in self._also_refused.items()}
        refused_count = len(refused) + sum(map(len, also_refused.values()))
        return BatchResult(len(created), refused_count, created, refused, also_refused)


def _explained(index: int, error: DuetimeError) -> Refused:
    fields = error.errors[:MOST_FIELDS] if isinstance(error, InvalidRequest) else ()
    errors = [{"pointer": _cut(field.pointer), "message": _cut(field.message)} for field in fields]
    return Refused(index, error.code, _cut(error.message), errors)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
