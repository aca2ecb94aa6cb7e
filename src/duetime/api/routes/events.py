"""/api/v1/events: state changes as server-sent events. `Last-Event-ID` resumes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from functools import lru_cache

import msgspec
from litestar import Controller, get
from litestar.response import Stream

from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.streams import FAREWELL, Place, StreamEnded
from duetime.domain.errors import InvalidRequest, Unauthorized
from duetime.domain.identity import Caller, Right
from duetime.domain.instants import format_instant
from duetime.events import PAGE, Event

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


class Follower:
    """The events of the tenant of a stream, with timeouts. Call `close` when the stream ends."""

    def __init__(self, context: ApiContext, place: Place, after: int | None) -> None:
        self._place = place
        self._following = context.events.follow(place.tenant, after, place.woken.set)

    async def wait(self, seconds: float) -> bool:
        """Waits up to `seconds`. Returns whether `take` has something to return or raise."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._place.woken.wait()
        return self._place.woken.is_set()

    def take(self) -> list[Event | None]:
        """Returns the events since the last call, at most a page, and None where some were lost."""
        if self._place.is_over or self._following.is_over:
            raise StreamEnded
        self._place.woken.clear()
        return self._following.take()

    def close(self) -> None:
        self._following.close()


async def _frames(context: ApiContext, caller: Caller, after: int | None, place: Place) -> Frames:
    follower = Follower(context, place, after)
    sight = _Sight(context, caller)
    try:
        yield b": following\n\n"
        while True:
            if await follower.wait(KEEP_ALIVE_SECONDS):
                if frames := [_frame(event) for event in follower.take() if await sight.covers(event)]:
                    yield b"".join(frames)
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                yield b": still here\n\n"
    except StreamEnded:
        return
    finally:
        follower.close()


class _Sight:
    """Decides which events of the tenant a caller sees: those of their own jobs, or all for an admin."""

    def __init__(self, context: ApiContext, caller: Caller) -> None:
        self._store = context.store
        self._caller = caller
        self._owners: dict[str, str | None] = {}  # by job

    async def covers(self, event: Event | None) -> bool:
        if self._caller.is_admin or event is None:
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


@lru_cache(maxsize=4 * PAGE)  # all streams of a tenant send the same events
def _frame(event: Event | None) -> bytes:
    if event is None:
        return b'event: reset\ndata: {"message": "events were lost; read the lists again"}\n\n'
    data = msgspec.json.encode({"at": format_instant(event.at), **event.data})
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, event.kind.encode(), data)
