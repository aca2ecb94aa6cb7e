"""/api/v1/executions: list, read, cancel and retry executions."""

from __future__ import annotations

from typing import Annotated, cast

import msgspec
from litestar import Controller, Response, get, post
from litestar.params import Parameter

from duetime.api import queries
from duetime.api.auth.access import find_execution, find_job
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest, read_filter
from duetime.api.routes.actions import add_execution, check_runnable, list_page, redrive
from duetime.api.routes.events import EVENT_STREAM, last_event_id, stream
from duetime.api.routes.logs import MOST_LINES, follow_logs, read_logs
from duetime.api.views import view_attempt, view_execution
from duetime.domain.audit import entry
from duetime.domain.commands import CancelExecution
from duetime.domain.errors import Conflict
from duetime.domain.execution import attempts_made
from duetime.domain.identity import Caller, Right
from duetime.domain.states import OPEN, State, Trigger
from duetime.ports.store import ExecutionQuery
from duetime.wire.executions import ExecutionDetail, ExecutionList, ExecutionView, Logs, QueuedRun

MOST_NUMBER = 2**53  # of a line


class ExecutionController(Controller):
    path = "/executions"
    tags = ("executions",)

    @get("/", summary="List executions across jobs, latest first", right=Right.READ)
    async def list_executions(
        self, context: ApiContext, caller: Caller,
        wanted: Annotated[str | None, Parameter(query="state")] = None,
        job_id: str | None = None,
        since: Annotated[str | None, Parameter(query="from", description="scheduled at or after this instant")] = None,
        until: Annotated[str | None, Parameter(query="to", description="scheduled before this instant")] = None,
        limit: int = queries.DEFAULT_LIMIT, offset: int = 0, cursor: str | None = None,
    ) -> ExecutionList:  # fmt: skip
        if job_id is not None:
            queries.check_id(job_id, "job")
        query = ExecutionQuery(
            caller.tenant, job_id, read_filter(wanted, State, "state"), owner=caller.sees,
            since=queries.read_instant(since, "from"), until=queries.read_instant(until, "to"),
        )  # fmt: skip
        return await list_page(context, query, limit, offset, cursor)

    @get("/{execution_id:str}", summary="One execution with its attempts", right=Right.READ)
    async def get_execution(self, context: ApiContext, caller: Caller, execution_id: str) -> ExecutionDetail:
        record = await find_execution(context, caller, execution_id)
        attempts = await context.store.list_attempts(execution_id, caller.tenant)
        attempts = attempts[: attempts_made(record.state, len(attempts))]
        saved = (await context.store.get_progress([execution_id], caller.tenant)).get(execution_id)
        progress = None if saved is None else msgspec.json.decode(saved)
        return ExecutionDetail(view_execution(record), [view_attempt(attempt) for attempt in attempts], progress)

    @get(
        "/{execution_id:str}/logs", summary="Read the log of an execution, or follow it (server-sent events)",
        right=Right.READ,
    )  # fmt: skip
    async def get_execution_logs(
        self, request: AnyRequest, context: ApiContext, caller: Caller, execution_id: str,
        after: Annotated[int, Parameter(description="only lines beyond this one", ge=0, le=MOST_NUMBER)] = 0,
        lines: Annotated[int, Parameter(description="so many at most", ge=1, le=MOST_LINES)] = MOST_LINES,
    ) -> Response[Logs]:  # fmt: skip
        await find_execution(context, caller, execution_id)
        if EVENT_STREAM in request.headers.get("accept", ""):
            last = last_event_id(request) or after
            followed = stream(
                context, request, caller, lambda place: follow_logs(context, caller, execution_id, last, place)
            )
            return cast(Response[Logs], followed)
        return Response(await read_logs(context, caller, execution_id, after, lines))

    @post(
        "/{execution_id:str}/cancel", summary="Cancel an execution, also one that is running", status_code=202,
        right=Right.RUN,
    )  # fmt: skip
    async def cancel_execution(self, context: ApiContext, caller: Caller, execution_id: str) -> ExecutionView:
        found = await find_execution(context, caller, execution_id)
        now = context.clock.now()
        noted = entry(caller, now, "execution.cancel", execution_id)
        if await context.apply(CancelExecution(now, caller.tenant, execution_id, noted)) is State.RUNNING:
            context.engine.cancel(execution_id)
        else:
            context.engine.waiting_hint(0)
            data: dict[str, object] = {"execution_id": execution_id, "job_id": found.job_id, "state": State.CANCELLED}
            context.events.publish("execution.cancelled", now, caller.tenant, data)
        return view_execution(await find_execution(context, caller, execution_id))

    @post("/{execution_id:str}/retry", summary="Run an execution's job again, now", status_code=202, right=Right.RUN)
    async def retry_execution(self, context: ApiContext, caller: Caller, execution_id: str) -> QueuedRun:
        record = await find_execution(context, caller, execution_id)
        if record.state in OPEN:
            raise Conflict(f"execution {execution_id} is {record.state}; wait for it to end or cancel it first")
        check_runnable(await find_job(context, caller, record.job_id))
        if not record.dead:
            return await add_execution(context, caller, record.job_id, Trigger.RETRY, "Queued for retry")
        queued = await redrive(context, caller, record)
        if queued is None:
            raise Conflict(f"execution {execution_id} was retried by another request a moment ago; see its result")
        return queued
