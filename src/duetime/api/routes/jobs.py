"""/api/v1/jobs: create, list, read, change, cancel and purge jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.params import Parameter

from duetime.api import queries
from duetime.api.advice import check_after
from duetime.api.auth.access import find_job
from duetime.api.bodies import change_spec, convert, decode, decode_spec
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest, read_filter
from duetime.api.routes.create import bound, check_runnable, create_job, store_job
from duetime.api.routes.subscriptions import apply_and_tell
from duetime.api.views import encode, view_job, view_objective
from duetime.domain import authoring
from duetime.domain.audit import entry
from duetime.domain.audited import changed_fields
from duetime.domain.budgets import rows_wanted, standings
from duetime.domain.commands import ChangeJob, PurgeJob
from duetime.domain.errors import Conflict, InvalidRequest, PreconditionFailed
from duetime.domain.held_specs import whole
from duetime.domain.identity import Caller, Right, check_owner
from duetime.domain.instants import LATEST
from duetime.domain.job import JobSpec, JobStatus, JobType
from duetime.domain.secrets import encrypt_change, hide_spec
from duetime.domain.states import State
from duetime.ports.store import JobQuery, JobRecord
from duetime.wire.jobs import JobList, JobMessage, JobView, ObjectiveView

JSON = "application/json"
LATENESS_SAMPLE = 1000
STATUSES = sorted({*JobStatus, *State})
Sort = Literal["created_at", "next_run_time", "name"]


class JobController(Controller):
    path = "/jobs"
    tags = ("jobs",)

    @post("/", summary="Create a job", status_code=201, right=Right.WRITE)
    async def create_job(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Response[Any]:
        answer = await create_job(context, caller, await request.body(), request.headers.get("idempotency-key"))
        return Response(answer, status_code=201, media_type=JSON)

    @get("/", summary="List jobs: one's own, or all for an admin", right=Right.READ)
    async def list_jobs(
        self, context: ApiContext, caller: Caller,
        status: str | None = None, type: str | None = None, name: str | None = None,
        tag: Annotated[str | None, Parameter(description="`key` or `key=value`")] = None,
        owner: Annotated[str | None, Parameter(description="for admins; others see their own")] = None,
        sort: Sort = "created_at", order: Literal["asc", "desc"] = "desc",
        limit: int = queries.DEFAULT_LIMIT, offset: int = 0, cursor: str | None = None,
    ) -> JobList:  # fmt: skip
        queries.check_page(limit, offset)
        if status is not None and status not in STATUSES:
            raise InvalidRequest.at("/status", f"must be one of {', '.join(STATUSES)}")
        if owner is not None:
            check_owner(caller, owner, f"what '{owner}' has")
        kind = read_filter(type, JobType, "type")
        key, equals, value = (tag or "").partition("=")
        query = JobQuery(
            caller.tenant, status=status, type=kind, name=name, tag=(key, value if equals else None) if tag else None,
            owner=owner or caller.sees, sort=sort, order=order, limit=limit + 1, offset=offset,
            after=queries.read_cursor(cursor, int if sort == "next_run_time" else str) if cursor else None,
        )  # fmt: skip
        total = await context.store.count_jobs(query)  # first, because the page may be large
        records = await context.store.list_jobs(query)
        has_more = records.is_cut or len(records) > limit
        shown = records[:limit]
        return JobList(
            [view_job(record) for record in shown], total, limit, offset, has_more,
            _cursor(shown[-1], sort) if has_more else None,
        )  # fmt: skip

    @get("/{job_id:str}", summary="Read a job", right=Right.READ)
    async def get_job(self, context: ApiContext, caller: Caller, job_id: str) -> Response[Any]:
        record = await find_job(context, caller, job_id)
        lateness = await context.store.list_lateness(job_id, LATENESS_SAMPLE, caller.tenant)
        objectives = await list_objectives(context, caller.tenant, record)
        return _versioned(view_job(record, lateness, objectives), record.version)

    @put("/{job_id:str}", summary="Change the named fields of a job", right=Right.WRITE)
    async def put_job(self, request: AnyRequest, context: ApiContext, caller: Caller, job_id: str) -> Response[Any]:
        return await self._change(request, context, caller, await find_job(context, caller, job_id))

    @patch("/{job_id:str}", summary="Change the named fields of a job", right=Right.WRITE)
    async def change_job(self, request: AnyRequest, context: ApiContext, caller: Caller, job_id: str) -> Response[Any]:
        return await self._change(request, context, caller, await find_job(context, caller, job_id))

    async def _change(
        self, request: AnyRequest, context: ApiContext, caller: Caller, record: JobRecord
    ) -> Response[Any]:
        _check_match(request, record)
        body = await request.body()
        await context.take_turn(caller.tenant, body)
        record = msgspec.structs.replace(record, spec=whole(record.spec))
        changes = decode(body, dict[str, Any])
        return await self._store_change(context, caller, record, change_spec(record.spec, changes), changes)

    async def _store_change(
        self, context: ApiContext, caller: Caller, record: JobRecord, spec: JobSpec,
        sent: dict[str, Any] | None = None,
    ) -> Response[Any]:  # fmt: skip
        check_runnable(context, caller, spec)
        spec = context.rules.defaults.fill(spec)
        if spec.type is JobType.SQL_QUERY:
            spec = await bound(context, caller, spec, record.spec)
        await check_after(context, caller, spec, record.spec.after)
        now = context.clock.now()
        paused = record.status is JobStatus.PAUSED
        command: ChangeJob = authoring.change_job(
            record.job_id, caller.tenant, version=record.version, created_at=record.created_at, status=record.status,
            old=record.spec, new=spec, due_at=record.resume_at if paused else record.due_at, fired=record.fired,
            now=now, sent=sent,
        )  # fmt: skip
        command = encrypt_change(command, record.spec, context.vault)
        before, after = changed_fields(hide_spec(record.spec), hide_spec(command.spec, record.spec))
        noted = entry(caller, now, "job.change", record.job_id, before, after)
        await context.apply(msgspec.structs.replace(command, audit=noted))
        changed = await find_job(context, caller, record.job_id)
        if changed.due_at is not None:
            context.engine.due_hint(changed.due_at)
        data = {"job_id": record.job_id, "version": changed.version}
        context.events.publish("job.changed", now, caller.tenant, data, record.owner)
        context.publish_skips(command.skipped, now, record.owner)
        objectives = await list_objectives(context, caller.tenant, changed)
        return _versioned(view_job(changed, None, objectives), changed.version)

    @put("/by-key/{key:str}", summary="Create the job with this key, or make it exactly this", right=Right.WRITE)
    async def put_job_by_key(self, request: AnyRequest, context: ApiContext, caller: Caller, key: str) -> Response[Any]:
        body = await request.body()
        await context.take_turn(caller.tenant, body)
        spec = decode_spec(body)
        if spec.key not in (None, key):
            raise InvalidRequest.at("/key", f"is '{spec.key}', but the path has '{key}'; leave it out")
        if "\0" in key:
            raise InvalidRequest.at("/key", "holds a NUL character; remove it")
        spec = convert({**msgspec.to_builtins(spec), "key": key}, type(spec))
        record = await context.store.get_job_by_key(caller.tenant, key)
        if record is not None:
            check_owner(caller, record.owner, f"the job with key '{key}'")
        if record is not None and record.status is not JobStatus.CANCELLED:
            _check_match(request, record)
            record = msgspec.structs.replace(record, spec=whole(record.spec))
            return await self._store_change(context, caller, record, spec)
        if record is not None:
            raise Conflict(f"job {record.job_id} with key '{key}' is CANCELLED; purge it to use the key again")
        if "if-match" in request.headers:
            raise PreconditionFailed(
                f"there is no job with key '{key}' for If-Match to fit; leave it out to create one"
            )
        return Response(await store_job(context, caller, spec), status_code=201, media_type=JSON)

    @delete(
        "/{job_id:str}", summary="Cancel a job, or remove it with its history (purge)", status_code=200,
        right=Right.WRITE,
    )  # fmt: skip
    async def delete_job(self, context: ApiContext, caller: Caller, job_id: str, purge: bool = False) -> JobMessage:
        record = await find_job(context, caller, job_id)
        now = context.clock.now()
        if purge:
            command = PurgeJob(
                caller.tenant, job_id, audit=entry(caller, now, "job.purge", job_id, hide_spec(whole(record.spec)))
            )
            while await context.apply(command):  # in pages: other commands run in between
                continue
            context.events.publish("job.purged", now, caller.tenant, {"job_id": job_id}, record.owner)
            return JobMessage(job_id, record.status, "Job removed, with its history.")
        await cancel_job(context, caller, job_id)
        return JobMessage(job_id, JobStatus.CANCELLED, "Job cancelled. It will not run again.")


async def list_objectives(context: ApiContext, tenant: str, record: JobRecord) -> list[ObjectiveView] | None:
    slo = record.spec.slo
    if slo is None:
        return None
    now = context.clock.now()
    rows = await context.store.list_statistics(rows_wanted(tenant, record.job_id, slo, now))
    return [view_objective(one.objective, one.budget) for one in standings(slo, rows, now)]


async def cancel_job(context: ApiContext, caller: Caller, job_id: str) -> None:
    record, now = await find_job(context, caller, job_id), context.clock.now()
    due_at = record.resume_at if record.status is JobStatus.PAUSED else record.due_at
    command = authoring.cancel_job(job_id, caller.tenant, record.created_at, record.status, record.spec, due_at, now)
    command = msgspec.structs.replace(command, audit=entry(caller, now, "job.cancel", job_id))
    if record.status is JobStatus.CANCELLED:
        running = await context.apply(command)
    else:
        running = await apply_and_tell(context, caller, command, "job.cancelled", record, now)
    for execution_id in running:
        context.engine.cancel(execution_id)
    context.events.publish("job.cancelled", now, caller.tenant, {"job_id": job_id}, record.owner)
    context.publish_skips(command.skipped, now, record.owner)


def _cursor(record: JobRecord, sort: Sort) -> str:
    value: int | str | None = None
    if sort == "next_run_time":
        value = None if record.due_at == LATEST else record.due_at
    elif sort == "name":
        value = record.spec.name
    return queries.write_cursor(value, record.job_id)


def _versioned(view: JobView, version: int) -> Response[Any]:
    return Response(encode(view), media_type=JSON, headers={"ETag": f'"{version}"'})


def _check_match(request: AnyRequest, record: JobRecord) -> None:
    wanted = request.headers.get("if-match")
    if wanted is None or wanted.strip() == "*":
        return
    if f'"{record.version}"' not in [tag.strip() for tag in wanted.split(",")]:
        raise PreconditionFailed(
            f'job {record.job_id} has version "{record.version}" and If-Match asks for {wanted[:64]}; read it again'
        )
