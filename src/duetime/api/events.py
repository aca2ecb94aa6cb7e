"""/api/v1/events: state changes as server-sent events. `Last-Event-ID` resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from litestar import Controller, Request, get
from litestar.response import Stream

from duetime.api.context import TENANT, ApiContext
from duetime.domain.errors import InvalidRequest
from duetime.domain.instants import format_instant
from duetime.telemetry.events import Event

KEEP_ALIVE_SECONDS = 15.0


class EventController(Controller):
    path = "/events"
    tags = ("events",)

    @get("/", summary="Follow what happens (server-sent events)", media_type="text/event-stream")
    async def follow_events(self, request: Request[Any, Any, Any], context: ApiContext) -> Stream:
        last = request.headers.get("last-event-id")
        if last is not None and not (last.isascii() and last.isdigit() and len(last) < 19):
            raise InvalidRequest.at("/Last-Event-ID", "is not the id of an event; leave it out to start from now")
        after = None if last is None else int(last)
        return Stream(_frames(context, after), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _frames(context: ApiContext, after: int | None) -> AsyncIterator[bytes]:
    events = context.events.follow(TENANT, after)
    pending: asyncio.Task[Event | None] | None = None
    yield b": following\n\n"
    try:
        while True:
            if pending is None:
                pending = asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({pending}, timeout=KEEP_ALIVE_SECONDS)
            if not done:
                yield b": still here\n\n"
                continue
            event, pending = pending.result(), None
            yield _frame(event)
    finally:
        if pending is not None:
            pending.cancel()
            await asyncio.gather(pending, return_exceptions=True)
        await events.aclose()  # type: ignore[attr-defined]


def _frame(event: Event | None) -> bytes:
    if event is None:
        return b'event: reset\ndata: {"message": "events were lost; read the lists again"}\n\n'
    data = msgspec.json.encode({"at": format_instant(event.at), **event.data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), data)
