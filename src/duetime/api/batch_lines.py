"""Reads the lines of a batch of jobs, from a JSON array or from NDJSON.

An array is held in memory as a whole. Of NDJSON, only the incomplete line is held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from litestar.exceptions import HTTPException

from duetime.api.bodies import MAX_BODY_BYTES
from duetime.api.queries import AnyRequest
from duetime.domain.errors import InvalidRequest, PayloadTooLarge

MOST_JOBS = 100_000
MOST_BYTES = 256 * 1024 * 1024
MOST_ARRAY_BYTES = 8 * 1024 * 1024
JOINED = 64  # items of an array that are decoded together

Hold = Callable[[int], Awaitable[None]]


class TooMany(Exception):
    """The request exceeds a limit of a batch. The message says which."""


async def read_blocks(request: AnyRequest, hold_rest: Hold) -> AsyncIterator[bytes | None]:
    """Yields whole lines, many at a time, from either format. None stands for a line that is too long.

    Calls `hold_rest` with the size of the incomplete line.
    """
    if "ndjson" in request.headers.get("content-type", ""):
        async for block in _split(request, hold_rest):
            yield block
        return
    body = await _array(request)
    try:
        items = msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        message = f"the body is not a JSON array of jobs: {error}; for one job a line, send application/x-ndjson"
        raise InvalidRequest.at("", message) from None
    if len(items) > MOST_JOBS:
        raise PayloadTooLarge(f"a batch may have {MOST_JOBS} jobs, this one has {len(items)}; none was created")
    for start in range(0, len(items), JOINED):  # a line break inside an item is white space
        yield b"\n".join(bytes(item).replace(b"\n", b" ") for item in items[start : start + JOINED])


async def _array(request: AnyRequest) -> bytes:
    """Returns the whole body, and holds no more than an array may have. Raises PayloadTooLarge."""
    length = request.headers.get("content-length", "")
    body = bytearray()
    if not (length.isdecimal() and int(length) > MOST_ARRAY_BYTES):
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_ARRAY_BYTES:
                break
        else:
            return bytes(body)
    raise PayloadTooLarge(
        f"a JSON array of jobs may have {MOST_ARRAY_BYTES} bytes, and none of this one's jobs was created; "
        f"send one job a line as application/x-ndjson, which is read as it comes, up to {MOST_JOBS} jobs"
    )


async def _split(request: AnyRequest, hold_rest: Hold) -> AsyncIterator[bytes | None]:
    rest = bytearray()  # the incomplete line
    skipping = False  # that line is too long
    async for chunk in _chunks(request):
        if skipping:
            _, line_break, chunk = chunk.partition(b"\n")
            if not line_break:
                continue
            skipping = False
        block, line_break, tail = chunk.rpartition(b"\n")
        if line_break:
            yield bytes(rest) + block
            rest.clear()
        rest += tail
        if len(rest) > MAX_BODY_BYTES:
            yield None
            rest.clear()
            skipping = True
        await hold_rest(len(rest))
    yield bytes(rest)


async def _chunks(request: AnyRequest) -> AsyncIterator[bytes]:
    began = False
    try:
        async for chunk in request.stream():
            began = True
            yield chunk
    except HTTPException as error:
        if not began or error.status_code != 413:
            raise
        raise TooMany(f"a batch may have {MOST_BYTES} bytes") from None
