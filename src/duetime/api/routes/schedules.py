"""/api/v1/schedules/preview: explains a schedule before a job is created."""

from __future__ import annotations

from litestar import Controller, post

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.http.starts import collect
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.errors import InvalidRequest
from duetime.domain.identity import Right
from duetime.domain.instants import parse_instant
from duetime.domain.preview import preview
from duetime.wire.schedules import Preview, PreviewRequest


class ScheduleController(Controller):
    path = "/schedules"
    tags = ("schedules",)

    @post("/preview", summary="A schedule in words, its next instants, and warnings", status_code=200, right=Right.READ)
    async def preview_schedule(self, request: AnyRequest, context: ApiContext) -> Preview:
        wanted = decode(await request.body(), PreviewRequest)
        after = context.clock.now()
        if wanted.after is not None:
            try:
                after = parse_instant(wanted.after)
            except ValueError as error:
                raise InvalidRequest.at("/after", str(error)) from None
        seen = preview(wanted.schedule, wanted.timezone, wanted.dst, after, wanted.count)
        return Preview(seen.description, await collect(map(instant, seen.instants)), seen.warnings)
