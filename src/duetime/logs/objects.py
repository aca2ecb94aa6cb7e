"""Logs in an object store: S3, Google Cloud Storage, Azure, or a folder that looks like one.

Objects can't be appended to, so a log is a folder of chunks. Lines of this process are read from its memory; lines of
other nodes are visible once they are uploaded. `bucket.py` calls the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from duetime.domain.errors import Overloaded
from duetime.logs.bucket import TROUBLE, Bucket, Chunk, before_attempt
from duetime.logs.days import Totals, day_of, prune_days
from duetime.logs.lines import size_of
from duetime.logs.memory import PAGE_BYTES, Memory, Writer, first_page, follows_on, joined
from duetime.logs.outage_log import OutageLog
from duetime.logs.upload import Upload
from duetime.ports.clock import Clock
from duetime.ports.logs import Line, LogWriter, TenantsOf
from duetime.ports.usage import LogUsage
from duetime.recent import Recent

CLOSE_SECONDS = 3.0  # the most that an attempt waits for its log
LET_GO_SECONDS = 0.25
LOOK_SECONDS = 1.0  # between listings for chunks of other nodes
CHUNKS_A_PAGE = 64
MOST_REMEMBERED = 1024


class ObjectLogs:
    def __init__(self, url: str, limit_bytes: int, clock: Clock, options: Mapping[str, Any] | None = None) -> None:
        """`options`: further options of obstore for this kind of store, in addition to the environment."""
        self._bucket = Bucket(url, options or {})
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._memory = Memory()
        self._totals = Totals(clock)
        self._outage = OutageLog(url)
        self._stored_bytes = 0  # since the start
        self._uploads: dict[Writer, tuple[Upload, asyncio.Task[None]]] = {}
        self._ends = Recent[str, Chunk](MOST_REMEMBERED)  # the last chunk that readers have finished
        self._looked = Recent[tuple[str, int], float](MOST_REMEMBERED)
        self._started = False

    async def start(self) -> None:
        try:
            await self._bucket.start()
        except TROUBLE as error:
            self._outage.begin(error)
        self._started = True

    async def stop(self) -> None:
        await asyncio.gather(*(writer.close() for writer in self._memory.writers()))
        self._started = False
        tasks = [task for _, task in self._uploads.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._outage.stop()
        # obstore's threads still release the last response when we have it. A process that exits in this moment is
        # aborted (PyO3/pyo3-async-runtimes#40): all logs are stored, but the exit code says otherwise.
        await asyncio.sleep(LET_GO_SECONDS)

    def open(self, execution_id: str, attempt: int, tenant: str = "") -> LogWriter:
        writer = Writer(self._memory, self, execution_id, attempt, self._limit_bytes, self._clock, tenant)
        self._memory.add(writer)
        return writer

    def note(self, writer: Writer) -> None:
        if writer not in self._uploads and self._started:
            upload = Upload(self, writer)
            self._uploads[writer] = (upload, asyncio.create_task(self._upload(upload, writer), name="upload of a log"))
        if writer in self._uploads:
            self._uploads[writer][0].note()

    async def finish(self, writer: Writer) -> None:
        """Waits for the upload for a bounded time. Then it is retried for a while, if there is memory for the lines."""
        if writer not in self._uploads:
            self._drop(writer)
            return
        upload, task = self._uploads[writer]
        upload.note()
        await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        if not task.done() and not self._memory.has_room(writer.tenant):
            task.cancel()

    def usage(self) -> LogUsage:
        return LogUsage(self._stored_bytes, self._memory.lost_lines, self._memory.waiting_bytes)

    async def read(self, execution_id: str, after: int, limit: int) -> list[Line]:
        held = self._memory.list_lines(execution_id, after)
        if held and follows_on(held[0], after):
            return first_page(held, limit)
        chunks = await self._list_chunks(execution_id, after)
        page = _chunks_of_page(chunks, after, limit)
        lines: list[Line] = []
        for found in await asyncio.gather(*(self._bucket.get_lines(chunk) for chunk in page)):
            last = lines[-1].number if lines else after
            lines += [line for line in found if line.number > last]
        if not lines and not held:
            self._looked.put((execution_id, after), asyncio.get_running_loop().time())
        lines = joined(lines, held if len(page) == len(chunks) else [], limit)
        self._remember_end(execution_id, page, lines)
        return lines

    async def wait(self, execution_id: str, after: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        with self._memory.watch(execution_id) as written:
            while True:
                if self._memory.list_lines(execution_id, after):
                    return True
                look_at = loop.time() + LOOK_SECONDS
                if not self._memory.follows(execution_id, after):
                    looked_at = self._looked.get((execution_id, after))
                    look_at = loop.time() if looked_at is None else looked_at + LOOK_SECONDS
                    if look_at <= loop.time():
                        if await self._has_chunks(execution_id, after):
                            return True
                        look_at = loop.time() + LOOK_SECONDS
                left = until - loop.time()
                if left <= 0:
                    return False
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, look_at - loop.time())):
                        return await written.wait()

    async def size(self, execution_id: str) -> int:
        held = self._memory.list_lines(execution_id, 0)
        chunks = await self._list_chunks(execution_id, 0)
        last = max((chunk.last for chunk in chunks), default=0)
        beyond = sum(size_of(line.text) + 1 for line in held if line.number > last)
        return sum(chunk.bytes for chunk in chunks) + beyond

    async def remove(self, execution_ids: Collection[str]) -> None:
        await asyncio.gather(*(self._remove(execution_id) for execution_id in execution_ids))

    async def _remove(self, execution_id: str) -> None:
        self._ends.pop(execution_id)
        self._totals.add(day_of(execution_id), -await self._bucket.remove_log(execution_id))

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf | None = None) -> int:
        return await prune_days(self._bucket, self._totals, before, most_bytes, tenants_of)

    # For uploads

    async def count_numbered(self, tenant: str, execution_id: str, attempt: int) -> int | None:
        try:
            chunks = await self._bucket.list_chunks(execution_id, 0, before_attempt(execution_id, attempt), tenant)
        except Overloaded as error:
            self._outage.begin(error)
            return None
        return max((chunk.last for chunk in chunks if chunk.last >> 32 == attempt), default=0) & 0xFFFF_FFFF

    async def put_chunk(self, tenant: str, execution_id: str, lines: Sequence[Line]) -> bool:
        try:
            size = await self._bucket.put_chunk(tenant, execution_id, lines)
        except TROUBLE as error:
            self._outage.begin(error)
            return False
        self._outage.end()
        self._totals.add(day_of(execution_id), size, tenant)
        self._stored_bytes += size
        return True

    async def _upload(self, upload: Upload, writer: Writer) -> None:
        try:
            await upload.run()
        finally:
            del self._uploads[writer]
            self._drop(writer)

    def _drop(self, writer: Writer) -> None:
        self._outage.lose(writer.give_up())
        self._memory.drop(writer)

    # Reading

    async def _list_chunks(self, execution_id: str, after: int) -> list[Chunk]:
        end = self._ends.get(execution_id)
        offset = end.path if end is not None and end.last <= after else None
        return await self._bucket.list_chunks(execution_id, after, offset)

    async def _has_chunks(self, execution_id: str, after: int) -> bool:
        try:
            found = bool(await self._list_chunks(execution_id, after))
        except Overloaded:  # the next read raises it
            found = False
        if not found:
            self._looked.put((execution_id, after), asyncio.get_running_loop().time())
        return found

    def _remember_end(self, execution_id: str, page: list[Chunk], lines: list[Line]) -> None:
        behind = [chunk for chunk in page if lines and chunk.last <= lines[-1].number]
        if behind:
            self._ends.put(execution_id, behind[-1])


def _chunks_of_page(chunks: list[Chunk], after: int, limit: int) -> list[Chunk]:
    """Returns the first chunks, as many as a page needs. Their names say how many lines and bytes they hold."""
    lines, size = 0, 0
    for count, chunk in enumerate(chunks[:CHUNKS_A_PAGE], 1):
        lines += chunk.last - max(chunk.first - 1, after)
        size += chunk.bytes
        if lines >= limit or size >= PAGE_BYTES:
            return chunks[:count]
    return chunks[:CHUNKS_A_PAGE]
