"""What an execution's attempts said: all of it so far, or line by line as server-sent events until it has ended."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

import msgspec

from duetime.api.context import ApiContext
from duetime.api.events import Follower
from duetime.api.views import Logs
from duetime.domain.identity import Caller
from duetime.domain.instants import format_instant
from duetime.domain.states import OPEN
from duetime.ports.store import AttemptRecord

LOOK_SECONDS = 2.0  # not every end has an event: a waiting execution that is cancelled has none

_LINE_END = re.compile("\r\n|\n|\r")


async def read_logs(context: ApiContext, execution_id: str) -> Logs:
    logs = "".join(f"{_entry(attempt)}\n" for attempt in await context.store.list_attempts(execution_id))
    return Logs(execution_id, logs, len(logs.encode()))


async def follow_logs(
    context: ApiContext, caller: Caller, execution_id: str, after: int
) -> AsyncGenerator[bytes, None]:
    """An event for each attempt that has ended, numbered from 1, later than `after`; `end` when none can follow."""
    follower = Follower(context, caller.tenant, None)  # before the first look: what happens after it is not missed
    try:
        while True:
            record = await context.store.get_execution(caller.tenant, execution_id)
            attempts = await context.store.list_attempts(execution_id)
            for number, attempt in enumerate(attempts[after:], after + 1):
                yield _frame(number, attempt)
            after = max(after, len(attempts))
            if record is None or record.state not in OPEN:
                yield b"event: end\ndata: %b\n\n" % msgspec.json.encode({"state": record and record.state})
                return
            yield b": still here\n\n"
            await _wait(follower, execution_id)
    except StopAsyncIteration:  # the node stops
        return
    finally:
        await follower.close()


async def _wait(follower: Follower, execution_id: str) -> None:
    """Until something happened to the execution, or for a while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + LOOK_SECONDS  # however much happens to others
    while (left := until - loop.time()) > 0 and await follower.wait(left):
        event = follower.take()
        if event is None or event.data.get("execution_id") == execution_id:
            return


def _entry(attempt: AttemptRecord) -> str:
    outcome = attempt.error_message or f"answered {attempt.http_status}"
    line = f"{format_instant(attempt.ended_at)} attempt {attempt.attempt}: {outcome}"
    return f"{line}\n{attempt.response}" if attempt.response else line


def _frame(number: int, attempt: AttemptRecord) -> bytes:
    data = "".join(f"data: {line}\n" for line in _LINE_END.split(_entry(attempt)))
    return f"id: {number}\nevent: log\n{data}\n".encode()
