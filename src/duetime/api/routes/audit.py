"""/api/v1/audit: the record of changes, for admins of the tenant."""

from __future__ import annotations

from typing import Annotated

from litestar import Controller, get
from litestar.params import Parameter

from duetime.api import queries
from duetime.api.context import ApiContext
from duetime.api.views import instant
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right
from duetime.ports.store import AuditQuery, AuditRecord
from duetime.wire.audit import AuditList, AuditView


class AuditController(Controller):
    path = "/audit"
    tags = ("audit",)

    @get("/", summary="List changes, latest first", right=Right.ADMIN)
    async def list_audit(
        self, context: ApiContext, caller: Caller,
        actor: str | None = None,
        action: Annotated[str | None, Parameter(description="such as job.create or api_key.revoke")] = None,
        resource: Annotated[str | None, Parameter(description="the id of a job, an execution or a key")] = None,
        since: Annotated[str | None, Parameter(query="from", description="at or after this instant")] = None,
        until: Annotated[str | None, Parameter(query="to", description="before this instant")] = None,
        limit: int = queries.DEFAULT_LIMIT, cursor: str | None = None,
    ) -> AuditList:  # fmt: skip
        queries.check_page(limit, 0)
        before = queries.read_cursor(cursor, int)[0] if cursor else None
        if cursor and before is None:
            raise InvalidRequest.at("/cursor", "is not a cursor of this list; leave it out to start over")
        query = AuditQuery(
            caller.tenant, actor=actor, action=action, resource=resource, since=queries.read_instant(since, "from"),
            until=queries.read_instant(until, "to"), limit=limit + 1, before=before,
        )  # fmt: skip
        records = await context.store.list_audit(query)
        has_more = records.is_cut or len(records) > limit
        shown = records[:limit]
        cursor = queries.write_cursor(shown[-1].number, queries.NO_ROW) if has_more else None
        return AuditList([_view(record) for record in shown], limit, has_more, cursor)


def _view(record: AuditRecord) -> AuditView:
    entry = record.entry
    return AuditView(
        at=instant(entry.at), actor=entry.actor, via=entry.via, request_id=entry.request_id, action=entry.action,
        resource=entry.resource, before=entry.before, after=entry.after,
    )  # fmt: skip
