"""/api/v1/jobs: create, list, read, change, end."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, Request, Response, delete, get, patch, post, put
from litestar.params import Parameter

from duetime.api import paging
from duetime.api.bodies import MAX_BODY_BYTES, convert, decode, decode_spec, merge
from duetime.api.context import OWNER, TENANT, ApiContext
from duetime.api.views import CreatedJob, JobList, JobMessage, JobView, encode, view_job
from duetime.domain import authoring
from duetime.domain.commands import CancelJob, ChangeJob, CreateJobs, IdempotencyRecord, NewJob, PurgeJob
from duetime.domain.errors import Conflict, DuetimeError, InvalidRequest, NotFound, PayloadTooLarge, PreconditionFailed
from duetime.domain.instants import format_instant
from duetime.domain.job import JobSpec, JobStatus, JobType
from duetime.domain.states import State
from duetime.ports.store import JobQuery, JobRecord

JSON = "application/json"
LATENESS_SAMPLE = 1000
STATUSES = sorted({*JobStatus, *State})
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}")

_under_way: set[str] = set()  # keys of idempotent creates that this process is busy with

Sort = Literal["created_at", "next_run_time", "name"]


def result_of(answer: Any) -> Any:
    """A command's answer; its refusal is raised."""
    if isinstance(answer, DuetimeError):
        raise answer
    return answer


async def find_job(context: ApiContext, job_id: str) -> JobRecord:
    record = await context.store.get_job(TENANT, paging.check_id(job_id, "job"))
    if record is None:
        raise NotFound(f"there is no job {job_id}")
    return record


def created_view(job: NewJob, now: int) -> bytes:
    return encode(
        CreatedJob(job.job_id, job.name, JobStatus.PENDING, format_instant(job.due_at), format_instant(now), job.owner)
    )


def announce(context: ApiContext, job: NewJob, now: int) -> None:
    context.due_hint(job.due_at)
    context.events.publish("job.created", now, job.tenant, {"job_id": job.job_id, "name": job.name})


class JobController(Controller):
    path = "/jobs"
    tags = ("jobs",)

    @post("/", summary="Create a job", status_code=201)
    async def create_job(self, request: Request[Any, Any, Any], context: ApiContext) -> Response[Any]:
        body = await request.body()
        if len(body) > MAX_BODY_BYTES:
            raise PayloadTooLarge(f"the body has {len(body)} bytes; a job may have {MAX_BODY_BYTES}")
        now = context.clock.now()
        job = authoring.new_job(decode_spec(body), TENANT, OWNER, now, context.entropy(10))
        answer = created_view(job, now)
        key = request.headers.get("idempotency-key")
        if key is None:
            (refused,) = await context.store.apply([CreateJobs(now, (job,))])
            result_of(refused)
            announce(context, job, now)
        else:
            answer, created = await self._create_once(context, job, now, key, body, answer)
            if created:
                announce(context, job, now)
        asynchronous = "respond-async" in request.headers.get("prefer", "")
        headers = {"Preference-Applied": "respond-async"} if asynchronous else {}
        return Response(answer, status_code=202 if asynchronous else 201, media_type=JSON, headers=headers)

    async def _create_once(
        self, context: ApiContext, job: NewJob, now: int, key: str, body: bytes, answer: bytes
    ) -> tuple[bytes, bool]:
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            raise InvalidRequest.at("/Idempotency-Key", "must be 1 to 255 visible ASCII characters")
        if key in _under_way:
            raise Conflict(f"a request with Idempotency-Key '{key}' is under way; repeat this one in a moment")
        _under_way.add(key)
        try:
            record = IdempotencyRecord(TENANT, key, blake2b(body, digest_size=16).hexdigest(), answer.decode())
            (stored,) = await context.store.apply([CreateJobs(now, (job,), record)])
        finally:
            _under_way.discard(key)
        first = result_of(stored)
        return (answer, True) if first is None else (first.encode(), False)

    @get("/", summary="List jobs")
    async def list_jobs(
        self,
        context: ApiContext,
        status: str | None = None,
        type: JobType | None = None,
        name: str | None = None,
        tag: Annotated[str | None, Parameter(description="`key` or `key=value`")] = None,
        owner: str | None = None,
        sort: Sort = "created_at",
        order: Literal["asc", "desc"] = "desc",
        limit: int = paging.DEFAULT_LIMIT,
        offset: int = 0,
        cursor: str | None = None,
    ) -> JobList:
        paging.check_page(limit, offset)
        if status is not None and status not in STATUSES:
            raise InvalidRequest.at("/status", f"must be one of {', '.join(STATUSES)}")
        key, equals, value = (tag or "").partition("=")
        query = JobQuery(
            TENANT, status, type, name, (key, value if equals else None) if tag else None, owner, sort, order,
            limit + 1, offset,
            paging.read_cursor(cursor, int if sort == "next_run_time" else str) if cursor else None,
        )  # fmt: skip
        records = await context.store.list_jobs(query)
        has_more, records = len(records) > limit, records[:limit]
        return JobList(
            [view_job(record) for record in records],
            await context.store.count_jobs(query),
            limit,
            offset,
            has_more,
            _cursor(records[-1], sort) if has_more else None,
        )

    @get("/{job_id:str}", summary="Read a job")
    async def get_job(self, context: ApiContext, job_id: str) -> Response[Any]:
        record = await find_job(context, job_id)
        lateness = await context.store.list_lateness(job_id, LATENESS_SAMPLE)
        return _versioned(view_job(record, lateness), record.version)

    @put("/{job_id:str}", summary="Change the named fields of a job")
    async def put_job(self, request: Request[Any, Any, Any], context: ApiContext, job_id: str) -> Response[Any]:
        return await self._change(request, context, await find_job(context, job_id))

    @patch("/{job_id:str}", summary="Change the named fields of a job")
    async def patch_job(self, request: Request[Any, Any, Any], context: ApiContext, job_id: str) -> Response[Any]:
        return await self._change(request, context, await find_job(context, job_id))

    async def _change(self, request: Request[Any, Any, Any], context: ApiContext, record: JobRecord) -> Response[Any]:
        _check_match(request, record)
        changes = decode(await request.body(), dict[str, Any])
        spec = convert(merge(msgspec.to_builtins(record.spec), changes), JobSpec)
        return await self._store_change(context, record, spec)

    async def _store_change(self, context: ApiContext, record: JobRecord, spec: JobSpec) -> Response[Any]:
        now = context.clock.now()
        paused = record.status is JobStatus.PAUSED
        command: ChangeJob = authoring.change_job(
            record.job_id, TENANT, record.version, record.created_at, record.status, record.spec, spec,
            record.resume_at if paused else record.due_at, now,
        )  # fmt: skip
        (answer,) = await context.store.apply([command])
        result_of(answer)
        changed = await find_job(context, record.job_id)
        if changed.due_at is not None:
            context.due_hint(changed.due_at)
        context.events.publish("job.changed", now, TENANT, {"job_id": record.job_id, "version": changed.version})
        return _versioned(view_job(changed), changed.version)

    @put("/by-key/{key:str}", summary="Create the job with this key, or make it exactly this")
    async def put_job_by_key(self, request: Request[Any, Any, Any], context: ApiContext, key: str) -> Response[Any]:
        spec = decode_spec(await request.body())
        if spec.key not in (None, key):
            raise InvalidRequest.at("/key", f"is '{spec.key}', but the path says '{key}'; leave it out")
        spec = convert({**msgspec.to_builtins(spec), "key": key}, JobSpec)
        record = await context.store.get_job_by_key(TENANT, key)
        if record is not None and record.status is not JobStatus.CANCELLED:
            _check_match(request, record)
            return await self._store_change(context, record, spec)
        if record is not None:
            raise Conflict(f"job {record.job_id} with key '{key}' is CANCELLED; purge it to use the key again")
        now = context.clock.now()
        job = authoring.new_job(spec, TENANT, OWNER, now, context.entropy(10))
        (refused,) = await context.store.apply([CreateJobs(now, (job,))])
        result_of(refused)
        announce(context, job, now)
        return Response(created_view(job, now), status_code=201, media_type=JSON)

    @delete("/{job_id:str}", summary="Cancel a job, or remove it with its history (purge)", status_code=200)
    async def delete_job(self, context: ApiContext, job_id: str, purge: bool = False) -> JobMessage:
        record = await find_job(context, job_id)
        now = context.clock.now()
        if purge:
            (refused,) = await context.store.apply([PurgeJob(TENANT, job_id)])
            result_of(refused)
            context.events.publish("job.purged", now, TENANT, {"job_id": job_id})
            return JobMessage(job_id, record.status, "Job removed, with its history.")
        await cancel_job(context, job_id)
        return JobMessage(job_id, JobStatus.CANCELLED, "Job cancelled. It will not run again.")


async def cancel_job(context: ApiContext, job_id: str) -> None:
    now = context.clock.now()
    (running,) = await context.store.apply([CancelJob(now, TENANT, job_id)])
    for execution_id in result_of(running):
        context.cancel_running(execution_id)
    context.events.publish("job.cancelled", now, TENANT, {"job_id": job_id})


def _cursor(record: JobRecord, sort: Sort) -> str:
    value: int | str | None = None
    if sort == "next_run_time":
        value = record.due_at
    elif sort == "name":
        value = record.spec.name
    return paging.write_cursor(value, record.job_id)


def _versioned(view: JobView, version: int) -> Response[Any]:
    return Response(encode(view), media_type=JSON, headers={"ETag": f'"{version}"'})


def _check_match(request: Request[Any, Any, Any], record: JobRecord) -> None:
    wanted = request.headers.get("if-match")
    if wanted is None or wanted.strip() == "*":
        return
    if f'"{record.version}"' not in [tag.strip() for tag in wanted.split(",")]:
        raise PreconditionFailed(
            f'job {record.job_id} has version "{record.version}" and If-Match asks for {wanted[:64]}; read it again'
        )
