"""/api/v1/dead-letters: executions that have used up their attempts, and redriving them, by id or filter, at a pace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.params import Parameter

from duetime.api import queries
from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest, read_filter
from duetime.api.routes.actions import list_page
from duetime.api.views import instant_or_none
from duetime.domain.audit import entry
from duetime.domain.commands import Redrive
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right, check_owner
from duetime.domain.ids import make_id
from duetime.domain.states import ErrorType
from duetime.ports.store import ExecutionQuery
from duetime.wire.executions import ExecutionList, Redriven, RedriveRequest

PAGE = 1000  # of one command: no commit is long
LONGEST_SECONDS = 86_400  # from the first run of a redrive to its last
FILTERS = ("job_id", "error_type", "http_status", "from", "to")
_STATUS = re.compile(r"([1-9])(\d\d|xx)", re.ASCII | re.IGNORECASE)


class DeadLetterController(Controller):
    path = "/dead-letters"
    tags = ("dead letters",)

    @get("/", summary="Executions that ran out of attempts", right=Right.READ)
    async def list_dead_letters(
        self, context: ApiContext, caller: Caller,
        job_id: str | None = None,
        error_type: Annotated[str | None, Parameter(description="of the last attempt")] = None,
        http_status: Annotated[str | None, Parameter(description="of the last attempt: 503, or 5xx")] = None,
        since: Annotated[str | None, Parameter(query="from", description="scheduled at or after this instant")] = None,
        until: Annotated[str | None, Parameter(query="to", description="scheduled before this instant")] = None,
        limit: int = queries.DEFAULT_LIMIT, offset: int = 0, cursor: str | None = None,
    ) -> ExecutionList:  # fmt: skip
        query = _query(caller, job_id, error_type, http_status, since, until)
        return await list_page(context, query, limit, offset, cursor)

    @post("/redrive", summary="Run dead letters again", status_code=202, right=Right.RUN)
    async def redrive_dead_letters(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Redriven:
        wanted = decode(await request.body(), RedriveRequest)
        filters = (wanted.job_id, wanted.error_type, wanted.http_status, wanted.since, wanted.until)
        if wanted.ids and any(it is not None for it in filters):
            raise InvalidRequest.at("/ids", f"can't be combined with a filter ({', '.join(FILTERS)}); send either")
        ids = await _named(context, caller, wanted.ids) if wanted.ids else await _found(context, caller, wanted)
        if wanted.per_second is not None and len(ids) / wanted.per_second > LONGEST_SECONDS:
            raise InvalidRequest.at(
                "/per_second", f"{len(ids)} would take more than a day; choose a higher one, or a lower limit"
            )
        return await _redrive(context, caller, ids, wanted.per_second)


async def _named(context: ApiContext, caller: Caller, ids: Sequence[str]) -> list[str]:
    for execution_id in ids:
        queries.check_id(execution_id, "execution")
    unique = list(dict.fromkeys(ids))  # named twice is still one dead letter
    await _check_owners(context, caller, unique)
    return unique


async def _found(context: ApiContext, caller: Caller, wanted: RedriveRequest) -> list[str]:
    """Returns the latest dead letters that match the filter, oldest first: in the order in which they were due."""
    query = _query(caller, wanted.job_id, wanted.error_type, wanted.http_status, wanted.since, wanted.until)
    query = msgspec.structs.replace(query, runnable=True)
    found: list[str] = []
    while len(found) < wanted.limit:
        size = min(PAGE, wanted.limit - len(found))
        query = msgspec.structs.replace(query, limit=size, after=found[-1] if found else None)
        page = await context.store.list_executions(query)
        found += [record.execution_id for record in page]
        if len(page) < size and not page.is_cut:
            break
    found.reverse()
    return found


async def _redrive(context: ApiContext, caller: Caller, ids: Sequence[str], per_second: float | None) -> Redriven:
    """Redrives page after page, all with the same `now`: the pace is counted from it."""
    now = context.clock.now()
    driven: list[str] = []
    last_at = None
    for start in range(0, len(ids), PAGE):
        pairs = tuple((dead_id, make_id(now, context.random_bytes(10))) for dead_id in ids[start : start + PAGE])
        noted = entry(caller, now, "dead_letters.redrive", "")
        command = Redrive(now, caller.tenant, pairs, noted, per_second, len(driven))
        done = await context.apply(command)
        context.engine.waiting_hint(now)
        if done:
            driven += [new_id for _, new_id in done]
            last_at = command.due_at(len(done) - 1)
    return Redriven(len(driven), driven, instant_or_none(last_at))


def _query(
    caller: Caller, job_id: str | None, error_type: str | None, http_status: int | str | None, since: str | None,
    until: str | None,
) -> ExecutionQuery:  # fmt: skip
    if job_id is not None:
        queries.check_id(job_id, "job")
    return ExecutionQuery(
        caller.tenant, job_id, dead=True, owner=caller.sees, since=queries.read_instant(since, "from"),
        until=queries.read_instant(until, "to"), error_type=read_filter(error_type, ErrorType, "error_type"),
        http_status=_read_status(http_status),
    )  # fmt: skip


def _read_status(status: int | str | None) -> tuple[int, int] | None:
    """Returns a status, or a class of statuses, as a range."""
    if status is None:
        return None
    match = _STATUS.fullmatch(str(status))
    if match is None:
        raise InvalidRequest.at("/http_status", "must be a status like 503, or a class of them like 5xx")
    first = int(match[1]) * 100
    return (first, first + 100) if match[2].lower() == "xx" else (first + int(match[2]), first + int(match[2]) + 1)


async def _check_owners(context: ApiContext, caller: Caller, execution_ids: Sequence[str]) -> None:
    """Raises Forbidden for another user's execution. Ids that do not exist are ignored; the store ignores them too."""
    if caller.is_admin:
        return
    jobs: dict[str, str] = {}
    for execution_id in execution_ids:
        record = await context.store.get_execution(caller.tenant, execution_id)
        if record is not None:
            jobs.setdefault(record.job_id, execution_id)
    for job_id, execution_id in jobs.items():
        job = await context.store.get_job(caller.tenant, job_id)
        check_owner(caller, "" if job is None else job.owner, f"execution {execution_id}")
