"""/api/v1/workers: workers get executions of Python functions here, and report their results.

Workers connect to a node, so they may run behind a firewall. Any node will do. `domain.work` defines the messages; the
client and `duetime worker` send them.
"""

from __future__ import annotations

from litestar import Controller, get, post

from duetime.api import queries
from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right
from duetime.domain.work import MOST_BYTES, MOST_WEIGHT, Joined, Joining, Leaving, Polled, Polling, Reported, Reporting
from duetime.ports.store import WorkerRecord
from duetime.wire.cluster import WorkerList, WorkerView


class WorkerController(Controller):
    path = "/workers"
    tags = ("workers",)

    @get("/", summary="Workers that run Python functions now, latest first", right=Right.ADMIN)
    async def list_workers(
        self, context: ApiContext, caller: Caller, limit: int = queries.MAX_LIMIT, cursor: str | None = None
    ) -> WorkerList:
        queries.check_page(limit, 0)
        before = queries.read_cursor(cursor, int)[0] if cursor else None
        if cursor and not (isinstance(before, int) and 0 < before < 2**31):
            raise InvalidRequest.at("/cursor", "is not a cursor of this list; leave it out to start over")
        records = await context.store.list_workers(caller.tenant, limit, before)
        # A page may end early, for its size: only the store knows whether there is another worker.
        has_more = bool(records) and bool(await context.store.list_workers(caller.tenant, 1, records[-1].worker_id))
        cursor = queries.write_cursor(records[-1].worker_id, queries.NO_ROW) if has_more else None
        return WorkerList([_view(record) for record in records], limit, has_more, cursor)

    @post("/join", summary="Register a worker", status_code=201, right=Right.WORK)
    async def worker_join(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Joined:
        joining = decode(await request.body(), Joining)
        return await context.engine.worker_gateway().join(caller.tenant, caller.user_id, joining)

    @post("/poll", summary="Get executions for a worker; waits until there are some", status_code=200, right=Right.WORK)
    async def worker_poll(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Polled:
        return await context.engine.worker_gateway().poll(caller.tenant, decode(await request.body(), Polling))

    @post(
        "/report", summary="Report results of a worker, and that it is alive", status_code=200, right=Right.WORK,
        request_max_body_size=MOST_BYTES,
    )  # fmt: skip
    async def worker_report(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Reported:
        body = await request.body()
        await context.take_turn(caller.tenant, body)
        reporting = decode(body, Reporting, MOST_BYTES, MOST_WEIGHT)
        return await context.engine.worker_gateway().report(caller.tenant, reporting)

    @post("/leave", summary="Remove a worker that ends", status_code=204, right=Right.WORK)
    async def worker_leave(self, request: AnyRequest, context: ApiContext, caller: Caller) -> None:
        await context.engine.worker_gateway().leave(caller.tenant, decode(await request.body(), Leaving).worker_id)


def _view(record: WorkerRecord) -> WorkerView:
    return WorkerView(
        record.worker_id, record.name, record.functions, record.slots, record.user_id,
        instant(record.started_at), instant(record.seen_at),
    )  # fmt: skip
