"""/api/v1/alerts and /silences: what fires, why and since when; what fired; and notices that are held back."""

from __future__ import annotations

from litestar import Controller, Response, delete, get, post

from duetime.api import queries
from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant, instant_or_none
from duetime.domain.alerts import MOST_OF_RULE, Alert
from duetime.domain.audit import entry
from duetime.domain.commands import AddSilence, RemoveSilence
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Caller, Right
from duetime.domain.ids import make_id
from duetime.domain.instants import SECOND
from duetime.domain.silences import MOST_SILENCES, Silence
from duetime.wire.alerts import (
    AlertHistory,
    AlertList,
    AlertView,
    SilenceList,
    SilenceMessage,
    SilenceRequest,
    SilenceView,
)

MOST_LISTED = 10 * MOST_OF_RULE


class AlertController(Controller):
    path = "/alerts"
    tags = ("alerts",)

    @get("/", summary="Alerts that are pending or firing, oldest first", right=Right.ADMIN)
    async def list_alerts(self, context: ApiContext, caller: Caller) -> AlertList:
        found = await context.store.list_alerts(caller.tenant, MOST_LISTED)
        return AlertList([_view(alert) for alert in found])

    @get("/history", summary="Alerts that have resolved, latest first", right=Right.ADMIN)
    async def list_alert_history(
        self, context: ApiContext, caller: Caller, rule: str | None = None, limit: int = queries.DEFAULT_LIMIT,
        cursor: str | None = None,
    ) -> AlertHistory:  # fmt: skip
        queries.check_page(limit, 0)
        before = queries.read_cursor(cursor, int) if cursor else None
        if before is not None and before[0] is None:
            raise InvalidRequest.at("/cursor", "is not a cursor of this list; leave it out to start over")
        found = await context.store.list_alert_history(caller.tenant, limit + 1, rule, before)
        shown, has_more = found[:limit], len(found) > limit
        cursor = queries.write_cursor(shown[-1].resolved_at, shown[-1].alert_id) if has_more else None
        return AlertHistory([_view(alert) for alert in shown], limit, has_more, cursor)


class SilenceController(Controller):
    path = "/silences"
    tags = ("alerts",)

    @get("/", summary="Silences that have not ended", right=Right.ADMIN)
    async def list_silences(self, context: ApiContext, caller: Caller) -> SilenceList:
        found = await context.store.list_silences(caller.tenant, context.clock.now(), MOST_SILENCES)
        return SilenceList([_view_silence(silence) for silence in found])

    @post("/", summary="Hold back notices of alerts for a time", status_code=201, right=Right.ADMIN)
    async def add_silence(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Response[SilenceView]:
        wanted = decode(await request.body(), SilenceRequest)
        now = context.clock.now()
        silence = Silence(
            make_id(now, context.random_bytes(10)), caller.tenant, wanted.rule, wanted.subject, now,
            now + max(1, round(wanted.seconds * SECOND)), wanted.reason, now, caller.user_id,
        )  # fmt: skip
        shown = {"rule": silence.rule, "subject": silence.subject, "ends_at": instant(silence.ends_at)}
        noted = entry(caller, now, "silence.add", silence.silence_id, None, shown | {"reason": silence.reason})
        await context.apply(AddSilence(now, silence, noted))
        return Response(_view_silence(silence), status_code=201)

    @delete("/{silence_id:str}", summary="End a silence", status_code=200, right=Right.ADMIN)
    async def remove_silence(self, context: ApiContext, caller: Caller, silence_id: str) -> SilenceMessage:
        queries.check_id(silence_id, "silence")
        noted = entry(caller, context.clock.now(), "silence.remove", silence_id)
        await context.apply(RemoveSilence(caller.tenant, silence_id, noted))
        return SilenceMessage(silence_id, "Silence ended. Alerts that still fire are told now.")


def _view(alert: Alert) -> AlertView:
    return AlertView(
        alert_id=alert.alert_id, rule=alert.rule, kind=alert.kind, subject=alert.subject, severity=alert.severity,
        state=alert.state, summary=alert.summary, value=round(alert.value, 3), since=instant(alert.since),
        fired_at=instant_or_none(alert.fired_at), resolved_at=instant_or_none(alert.resolved_at), told=alert.told,
        told_at=instant_or_none(alert.told_at),
    )  # fmt: skip


def _view_silence(silence: Silence) -> SilenceView:
    return SilenceView(
        silence_id=silence.silence_id, rule=silence.rule, subject=silence.subject, begins_at=instant(silence.begins_at),
        ends_at=instant(silence.ends_at), reason=silence.reason, created_at=instant(silence.created_at),
        created_by=silence.created_by,
    )  # fmt: skip
