"""/api/v1/events: state changes on all nodes, as server-sent events. `Last-Event-ID` resumes, on any node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import lru_cache

import msgspec
from litestar import Controller, get
from litestar.response import Stream

from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.streams import FAREWELL, Place
from duetime.domain.errors import InvalidRequest, Unauthorized
from duetime.domain.event_log import OMITTED
from duetime.domain.identity import Caller, Right
from duetime.domain.instants import format_instant
from duetime.events import ENOUGH, Event

EVENT_STREAM = "text/event-stream"
KEEP_ALIVE_SECONDS = 5.0
# After events were sent. A stream wakes up a few times a second, not once for each event: a hundred streams of a tenant
# with many events took more of the event loop than all attempts, and made the executions of other tenants late.
PAUSE_SECONDS = 0.1
KNOWN_SECONDS = 5.0  # between two checks of a stream's credential
MOST_OWNERS = 10_000  # of jobs, that a follower remembers


class EventController(Controller):
    path = "/events"
    tags = ("events",)

    @get("/", summary="Follow events (server-sent events)", media_type=EVENT_STREAM, right=Right.READ)
    async def follow_events(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Stream:
        last = last_event_id(request)
        return stream(context, request, caller, lambda place: _frames(context, caller, last, place))


def last_event_id(request: AnyRequest) -> int | None:
    last = request.headers.get("last-event-id")
    if last is None:
        return None
    if not (last.isascii() and last.isdigit() and len(last) < 19):
        raise InvalidRequest.at("/Last-Event-ID", "is not the id of an event; leave it out to start from now")
    return int(last)


Frames = AsyncGenerator[bytes, None]


def stream(context: ApiContext, request: AnyRequest, caller: Caller, follow: Callable[[Place], Frames]) -> Stream:
    """Returns a stream of frames. Raises Overloaded if all places are taken and the caller has its share of them."""
    context.streams.check(caller)
    frames = while_known(_in_place(context, caller, follow), request.scope["auth"])
    return Stream(frames, media_type=EVENT_STREAM, headers={"Cache-Control": "no-store"})


async def _in_place(context: ApiContext, caller: Caller, follow: Callable[[Place], Frames]) -> Frames:
    """Yields the frames while the stream has a place. It takes the place when the response begins, not before."""
    place = context.streams.enter(caller)
    if place is None:  # many requests came at once
        yield FAREWELL
        return
    frames = follow(place)
    try:
        async for frame in frames:
            yield frame
            if place.is_over:
                break
        if place.is_over:
            yield FAREWELL
    finally:
        context.streams.leave(place)
        await frames.aclose()


async def while_known(frames: Frames, identify: Callable[[], Awaitable[Caller]]) -> Frames:
    """Yields the frames until the request's credential is revoked or expires. Frames come often enough to check it."""
    loop = asyncio.get_running_loop()
    known_until = loop.time() + KNOWN_SECONDS
    try:
        async for frame in frames:
            if loop.time() >= known_until:
                try:
                    await identify()
                except Unauthorized:
                    return
                known_until = loop.time() + KNOWN_SECONDS
            yield frame
    finally:
        await frames.aclose()


async def _frames(context: ApiContext, caller: Caller, after: int | None, place: Place) -> Frames:
    follower = await context.feed.follow(place.tenant, after, place.woken.set)
    sight = _Sight(context, caller)
    loop = asyncio.get_running_loop()
    try:
        yield b": following\n\n"
        if after is None:
            yield b"id: %d\n\n" % follower.position  # so that the client can resume even before the first event
        said_at = loop.time()
        while True:
            woken = await place.wait(KEEP_ALIVE_SECONDS)
            if place.is_over or follower.is_over:
                return
            place.woken.clear()
            events = await follower.take() if woken else []
            if frames := [_frame(event, caller.is_admin) for event in events if await sight.covers(event)]:
                yield b"".join(frames)
                said_at = loop.time()
            elif loop.time() - said_at >= KEEP_ALIVE_SECONDS:
                # With an id: when the client resumes, it has the events of others, and of none, behind it.
                yield b": still here\nid: %d\n\n" % follower.position
                said_at = loop.time()
            if woken:
                await asyncio.sleep(PAUSE_SECONDS)
    finally:
        follower.close()


class _Sight:
    """Decides which events of the tenant a caller sees: those of their own jobs, or all for an admin."""

    def __init__(self, context: ApiContext, caller: Caller) -> None:
        self._store = context.store
        self._caller = caller
        self._owners: dict[str, str | None] = {}  # by job

    async def covers(self, event: Event | None) -> bool:
        if self._caller.is_admin or event is None or event.kind == OMITTED:
            return True
        owner = event.owner
        if owner is None:
            owner = await self._owner_of(str(event.data.get("job_id", "")))
        return owner == self._caller.user_id

    async def _owner_of(self, job_id: str) -> str | None:
        if job_id not in self._owners:
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            job = await self._store.get_job(self._caller.tenant, job_id) if job_id else None
            self._owners[job_id] = None if job is None else job.owner
        return self._owners[job_id]


@lru_cache(maxsize=4 * ENOUGH)  # all streams of a tenant send the same events
def _frame(event: Event | None, is_admin: bool) -> bytes:
    if event is None:
        return b'event: reset\ndata: {"message": "events were lost; read the lists again"}\n\n'
    data = event.data
    if event.kind == OMITTED and not is_admin:
        data = {"message": "some events were omitted; they may be of your jobs"}  # the counts are of the whole tenant
    text = msgspec.json.encode({"at": format_instant(event.at), **data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.id, event.kind.encode(), text)
