"""The output of an execution and the results of its attempts: all of it so far, or server-sent events until it ends.

Lines have the numbers of `ports.logs`. The result of an attempt comes after all lines of that attempt.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator, Sequence

import msgspec

from duetime.api.context import ApiContext
from duetime.api.streams import Place, StreamEnded
from duetime.domain.identity import Caller
from duetime.domain.instants import format_instant
from duetime.domain.states import OPEN, ErrorType
from duetime.events import Event
from duetime.ports.logs import Line
from duetime.ports.store import AttemptRecord
from duetime.wire.executions import Logs

LOOK_SECONDS = 2.0  # the execution may run on another node
PAGE = 1000  # lines of a stream that are read at once
MOST_LINES = 10_000  # in one response
MOST_BYTES = 4 * 1024 * 1024
_LAST = 0xFFFF_FFFF  # the number of an attempt's result among its lines

_LINE_END = re.compile("\r\n|\n|\r")


async def read_logs(context: ApiContext, caller: Caller, execution_id: str, after: int, limit: int) -> Logs:
    lines, has_more = await _read_page(context, execution_id, after, limit)
    until = lines[-1].number if has_more else None
    attempts = await _list_attempts(context, caller, execution_id)
    entries = [entry for number, entry in _merged(lines, attempts) if number > after and (not until or number <= until)]
    logs = "".join(f"{entry}\n" for entry in entries)
    return Logs(execution_id, logs, len(logs.encode()), until)


async def _read_page(context: ApiContext, execution_id: str, after: int, limit: int) -> tuple[list[Line], bool]:
    """Returns at most `limit` lines, within the size of a response, and whether there are more."""
    lines: list[Line] = []
    size = 0
    while page := await context.logs.read(execution_id, lines[-1].number if lines else after, limit + 1 - len(lines)):
        for line in page:
            size += len(line.text)
            if len(lines) == limit or size > MOST_BYTES:
                return lines, True
            lines.append(line)
    return lines, False


async def _list_attempts(context: ApiContext, caller: Caller, execution_id: str) -> list[AttemptRecord]:
    """Returns the attempts, without the response of a script if the log has its output as lines."""
    attempts = await context.store.list_attempts(execution_id, caller.tenant)
    return [
        msgspec.structs.replace(one, response=None) if await _is_printed(context, execution_id, one) else one
        for one in attempts
    ]


async def _is_printed(context: ApiContext, execution_id: str, attempt: AttemptRecord) -> bool:
    if attempt.exit_code is None or not attempt.response:
        return False
    first = await context.logs.read(execution_id, attempt.attempt << 32, 1)
    return bool(first) and first[0].number < _number_of_end(attempt)


def _merged(lines: Sequence[Line], attempts: Sequence[AttemptRecord]) -> Iterator[tuple[int, str]]:
    """Yields lines and results in the order of their numbers."""
    ends = [(_number_of_end(attempt), _entry(attempt)) for attempt in attempts]
    yield from sorted([*((line.number, line.text) for line in lines), *ends], key=lambda numbered: numbered[0])


def _number_of_end(attempt: AttemptRecord) -> int:
    return (attempt.attempt << 32) + _LAST


async def follow_logs(
    context: ApiContext, caller: Caller, execution_id: str, after: int, place: Place
) -> AsyncGenerator[bytes, None]:
    """Yields an event for each line and each result of an attempt after `after`, then `end` when no more can follow."""
    follower = _Follower(context, place)  # before the first read: no event after it is missed
    try:
        while True:
            record = await context.store.get_execution(caller.tenant, execution_id)
            attempts = await _list_attempts(context, caller, execution_id)
            # The lines of these attempts were stored before their results; later lines belong to the next attempt.
            for attempt in [*attempts, None]:
                end = None if attempt is None else _number_of_end(attempt)
                while page := await context.logs.read(execution_id, after, PAGE):
                    lines = [line for line in page if end is None or line.number < end]
                    for line in lines:
                        yield _frame(line.number, line.stream, line.text)
                        after = line.number
                    if len(lines) < len(page):  # the rest belongs to a later attempt
                        break
                if attempt is not None and end is not None and end > after:
                    yield _frame(end, "log", _entry(attempt))
                    after = end
            if record is None or record.state not in OPEN:
                yield b"event: end\ndata: %b\n\n" % msgspec.json.encode({"state": record and record.state})
                return
            yield b": still here\n\n"
            await _wait(context, follower, execution_id, after)
    except StreamEnded:
        return
    finally:
        follower.close()


class _Follower:
    """The events of the stream's tenant on this node: they say when to look. Call `close` when the stream ends."""

    def __init__(self, context: ApiContext, place: Place) -> None:
        self._place = place
        self._following = context.events.follow(place.tenant, place.woken.set)

    async def wait(self, seconds: float) -> bool:
        return await self._place.wait(seconds)

    def take(self) -> list[Event | None]:
        """Returns the events since the last call, at most a page, and None where some were lost."""
        if self._place.is_over or self._following.is_over:
            raise StreamEnded
        self._place.woken.clear()
        return self._following.take()

    def close(self) -> None:
        self._following.close()


async def _wait(context: ApiContext, follower: _Follower, execution_id: str, after: int) -> None:
    """Waits until the log has new lines, the execution has an event, or some time has passed."""
    printed = asyncio.create_task(context.logs.wait(execution_id, after, LOOK_SECONDS))
    happened = asyncio.create_task(_happens(follower, execution_id))
    try:
        await asyncio.wait({printed, happened}, return_when=asyncio.FIRST_COMPLETED)
        if happened.done():
            happened.result()  # raises StreamEnded if the stream must end
    finally:
        for task in (printed, happened):
            task.cancel()
        await asyncio.gather(printed, happened, return_exceptions=True)


async def _happens(follower: _Follower, execution_id: str) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + LOOK_SECONDS  # however many events other executions have
    while (left := until - loop.time()) > 0 and await follower.wait(left):
        if any(event is None or event.data.get("execution_id") == execution_id for event in follower.take()):
            return


def _entry(attempt: AttemptRecord) -> str:
    outcome = attempt.error_message or _success(attempt)
    what = "not sent" if attempt.error_type is ErrorType.CIRCUIT_OPEN else f"attempt {attempt.attempt}"
    line = f"{format_instant(attempt.ended_at)} {what}: {outcome}"
    return f"{line}\n{attempt.response}" if attempt.response else line


def _success(attempt: AttemptRecord) -> str:
    if attempt.http_status is not None:
        return f"answered {attempt.http_status}"
    return "done" if attempt.exit_code is None else f"exited with {attempt.exit_code}"


def _frame(number: int, event: str, text: str) -> bytes:
    data = "".join(f"data: {line}\n" for line in _LINE_END.split(text))
    return f"id: {number}\nevent: {event}\n{data}\n".encode()
