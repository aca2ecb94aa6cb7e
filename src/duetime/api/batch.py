"""POST /api/v1/jobs:batch: many jobs at once, as a JSON array or as NDJSON, which is read as it comes.

A page of lines is checked while the pages before it are being written. One bad line spoils no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from litestar import Request, post

from duetime.api.bodies import MAX_BODY_BYTES, decode_spec, decode_specs
from duetime.api.context import OWNER, TENANT, ApiContext
from duetime.api.views import BatchResult, Refused
from duetime.domain import authoring
from duetime.domain.commands import CreateJobs, NewJob
from duetime.domain.errors import DuetimeError, InvalidRequest, PayloadTooLarge
from duetime.domain.instants import SECOND
from duetime.domain.job import JobSpec

MOST_JOBS = 100_000
MOST_BYTES = 256 * 1024 * 1024
PAGE = 1000
PAGES_UNDER_WAY = 4

Numbered = tuple[int, NewJob]


@post(
    "/jobs:batch", tags=["jobs"], summary="Create many jobs at once (JSON array or NDJSON)", status_code=200,
    request_max_body_size=MOST_BYTES,
)  # fmt: skip
async def create_jobs(request: Request[Any, Any, Any], context: ApiContext) -> BatchResult:
    batch = _Batch(context)
    async for block in _blocks(request):
        await batch.add(block)
    return await batch.finish()


async def _blocks(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    """Whole lines, many at a time, whichever way the jobs came."""
    if "ndjson" in request.headers.get("content-type", ""):
        async for block in _split(request):
            yield block
        return
    try:
        items = msgspec.json.decode(await request.body(), type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is not a JSON array of jobs: {error}; for one job a line, send application/x-ndjson"
        raise InvalidRequest.at("", message) from None
    if len(items) > MOST_JOBS:
        raise PayloadTooLarge(f"a batch may have {MOST_JOBS} jobs, this one has {len(items)}; none was created")
    for item in items:  # a line break inside an item is white space
        yield bytes(item).replace(b"\n", b" ")


async def _split(request: Request[Any, Any, Any]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in request.stream():
        block, line_break, tail = chunk.rpartition(b"\n")
        if line_break:
            yield rest + block
            rest = tail
        else:
            rest += tail
        if len(rest) > MAX_BODY_BYTES:
            raise PayloadTooLarge(f"a line is longer than {MAX_BODY_BYTES} bytes; is there a line break between jobs?")
    yield rest


class _Batch:
    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._index = 0
        self._page: list[Numbered] = []
        self._now = 0  # of the page: all its jobs are created in one instant
        self._writing: list[asyncio.Task[None]] = []
        self._created: dict[int, str] = {}
        self._refused: list[Refused] = []

    async def add(self, block: bytes) -> None:
        """Lines of jobs. In pieces, so that other requests get their turn."""
        specs = decode_specs(block) if len(block) <= MAX_BODY_BYTES else None
        found: Sequence[JobSpec | bytes] = block.split(b"\n") if specs is None else specs
        for item in found:
            if isinstance(item, bytes) and (not item or item.isspace()):
                continue
            index, self._index = self._index, self._index + 1
            if index >= MOST_JOBS:
                await self._drain()
                raise PayloadTooLarge(
                    f"a batch may have {MOST_JOBS} jobs; {len(self._created)} were created, send the rest anew"
                )
            self._plan(index, item)
            if len(self._page) >= PAGE:
                await self._flush()
        # A page that comes slowly is not held back until it is full: its instant would lie in the past.
        if self._page and self._context.clock.now() - self._now >= SECOND:
            await self._flush()

    def _plan(self, index: int, item: JobSpec | bytes) -> None:
        if not self._page:
            self._now = self._context.clock.now()
        try:
            if isinstance(item, bytes) and len(item) > MAX_BODY_BYTES:
                raise PayloadTooLarge(f"the job has {len(item)} bytes; {MAX_BODY_BYTES} are allowed")
            spec = decode_spec(item) if isinstance(item, bytes) else item
            job = authoring.new_job(spec, TENANT, OWNER, self._now, self._context.entropy(10))
        except DuetimeError as error:
            self._refuse(index, error)
        else:
            self._page.append((index, job))

    async def _flush(self) -> None:
        page, self._page = self._page, []
        while len(self._writing) >= PAGES_UNDER_WAY:
            await self._writing.pop(0)
        self._writing.append(asyncio.create_task(self._write(page, self._now)))
        await asyncio.sleep(0)

    async def _write(self, page: list[Numbered], now: int) -> None:
        context = self._context
        answers: list[DuetimeError | None] = [None] * len(page)
        try:
            (answer,) = await context.store.apply([CreateJobs(now, tuple(job for _, job in page))])
            if isinstance(answer, DuetimeError):  # one of them can't be written: find out which
                answers = await context.store.apply([CreateJobs(now, (job,)) for _, job in page])
        except DuetimeError as error:  # none was written (a full disk, say); other pages may have been
            answers = [error] * len(page)
        soonest = None
        for (index, job), refused in zip(page, answers, strict=True):
            if isinstance(refused, DuetimeError):
                self._refuse(index, refused)
            else:
                self._created[index] = job.job_id
                soonest = job.due_at if soonest is None else min(soonest, job.due_at)
        if soonest is not None:
            context.due_hint(soonest)
            created = sum(not isinstance(refused, DuetimeError) for refused in answers)
            context.events.publish("jobs.created", now, TENANT, {"count": created})

    def _refuse(self, index: int, error: DuetimeError) -> None:
        fields = error.errors if isinstance(error, InvalidRequest) else ()
        errors = [{"pointer": field.pointer, "message": field.message} for field in fields]
        self._refused.append(Refused(index, error.code, error.message, errors))

    async def _drain(self) -> None:
        if self._page:
            await self._flush()
        for task in self._writing:
            await task

    async def finish(self) -> BatchResult:
        await self._drain()
        created = [job_id for _, job_id in sorted(self._created.items())]
        refused = sorted(self._refused, key=lambda item: item.index)
        return BatchResult(len(created), len(refused), created, refused)
