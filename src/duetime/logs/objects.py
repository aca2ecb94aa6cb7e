"""Logs in an object store: S3, Google Cloud Storage, Azure, or a folder that looks like one.

Objects can't be appended to, so a log is a folder of chunks. Lines of this process are read from its memory; lines of
other nodes are visible once they are uploaded. Address and credentials come from the environment, under the names that
the store's own tools use (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from duetime.domain.errors import Overloaded
from duetime.logs.chunks import Chunk, before_attempt, chunk_of, decode_lines, encode_lines, folder_of, parse_chunk
from duetime.logs.days import Totals, day_of, is_day, prune_days
from duetime.logs.lines import size_of
from duetime.logs.memory import PAGE_BYTES, Memory, Writer, first_page, follows_on, joined
from duetime.logs.outage_log import OutageLog, why
from duetime.logs.upload import Upload
from duetime.places import Places
from duetime.ports.clock import Clock
from duetime.ports.logs import Line, LogsUnusable, LogWriter, TenantsOf
from duetime.recent import Recent

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

PROBE = ".duetime-probe"  # a listing can't distinguish a missing bucket from an unreachable one
CALL_SECONDS = 10.0
START_SECONDS = 5.0
CLOSE_SECONDS = 3.0  # the most that an attempt waits for its log
LET_GO_SECONDS = 0.25
LOOK_SECONDS = 1.0  # between listings for chunks of other nodes
CALLS_AT_ONCE = 16
MOST_CALLS = 64  # including tenants that would otherwise wait behind the calls of others
READING = ""  # one holder for all reads, listings and removals, next to the tenants that write
CHUNKS_A_PAGE = 64
DELETES_A_CALL = 1000
MOST_REMEMBERED = 1024
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file", "memory")
TROUBLE = (BaseError, OSError, TimeoutError)
REFUSED = (NotFoundError, FileNotFoundError, PermissionDeniedError, PermissionError, UnauthenticatedError)
GONE = (NotFoundError, FileNotFoundError)

T = TypeVar("T")


class ObjectLogs:
    def __init__(self, url: str, limit_bytes: int, clock: Clock, options: Mapping[str, Any] | None = None) -> None:
        """`options`: further options of obstore for this kind of store, in addition to the environment."""
        self._url = url
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._options = options or {}
        self._memory = Memory()
        self._totals = Totals(clock)
        self._outage = OutageLog(url)
        self._calls = Places(CALLS_AT_ONCE, MOST_CALLS)
        self._uploads: dict[Writer, tuple[Upload, asyncio.Task[None]]] = {}
        self._ends = Recent[str, Chunk](MOST_REMEMBERED)  # the last chunk that readers have finished
        self._looked = Recent[tuple[str, int], float](MOST_REMEMBERED)
        self._started = False

    async def start(self) -> None:
        self._store = await asyncio.to_thread(_open_store, self._url, self._options)
        try:
            async with asyncio.timeout(START_SECONDS):
                await obstore.put_async(self._store, PROBE, b"", use_multipart=False)
                await obstore.delete_async(self._store, PROBE)
        except REFUSED as error:
            raise LogsUnusable(
                f"the logs of executions can't be kept in {self._url}: {why(error)}; see that the bucket is there, and "
                "that the credentials in the environment may list, read, write and delete in it"
            ) from error
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

    async def read(self, execution_id: str, after: int, limit: int) -> list[Line]:
        held = self._memory.list_lines(execution_id, after)
        if held and follows_on(held[0], after):
            return first_page(held, limit)
        chunks = await self._list_chunks(execution_id, after)
        page = _chunks_of_page(chunks, after, limit)
        lines: list[Line] = []
        for found in await asyncio.gather(*(self._get(chunk) for chunk in page)):
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

    async def prune(self, before: int, most_bytes: int, tenants_of: TenantsOf | None = None) -> int:
        return await prune_days(self, self._totals, before, most_bytes, tenants_of)

    # For prune_days

    async def list_days(self) -> list[str]:
        found = await self._call(obstore.list_with_delimiter_async(self._store))
        names = [prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"]]
        return [name for name in names if is_day(name)]

    async def measure(self, day: str) -> int:
        count = 0
        async for objects in self._list(day):
            count += sum(found["size"] for found in objects)
        return count

    async def list_logs(self, day: str) -> list[tuple[str, int]]:
        sizes: dict[str, int] = {}  # by execution: the names of all chunks would take too much memory
        async for objects in self._list(day):
            for found in objects:
                execution_id = found["path"].split("/")[1]
                sizes[execution_id] = sizes.get(execution_id, 0) + found["size"]
        return sorted(sizes.items())

    async def remove_logs(self, day: str, execution_ids: Sequence[str]) -> None:
        for execution_id in execution_ids:
            await self._delete_below(f"{day}/{execution_id}")

    async def remove_day(self, day: str) -> int:
        logs = [execution_id for execution_id, _ in await self.list_logs(day)]
        await self.remove_logs(day, logs)
        return len(logs)

    # For uploads

    async def count_numbered(self, tenant: str, execution_id: str, attempt: int) -> int | None:
        try:
            chunks = await self._list_chunks(execution_id, 0, before_attempt(execution_id, attempt), tenant)
        except Overloaded as error:
            self._outage.begin(error)
            return None
        return max((chunk.last for chunk in chunks if chunk.last >> 32 == attempt), default=0) & 0xFFFF_FFFF

    async def put_chunk(self, tenant: str, execution_id: str, lines: Sequence[Line]) -> bool:
        path, data = chunk_of(execution_id, lines).path, encode_lines(lines)
        try:
            async with self._calls.of(tenant), asyncio.timeout(CALL_SECONDS):
                await obstore.put_async(self._store, path, data, use_multipart=False)
        except TROUBLE as error:
            self._outage.begin(error)
            return False
        self._outage.end()
        self._totals.add(day_of(execution_id), len(data), tenant)
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

    # The store

    async def _list_chunks(
        self, execution_id: str, after: int, offset: str | None = None, tenant: str = READING
    ) -> list[Chunk]:
        """Returns the chunks that hold lines beyond `after`, in order."""
        end = self._ends.get(execution_id)
        if offset is None and end is not None and end.last <= after:
            offset = end.path
        found: list[Chunk] = []
        async for objects in self._list(folder_of(execution_id), offset, tenant):
            chunks = (parse_chunk(item["path"]) for item in objects)
            found += [chunk for chunk in chunks if chunk is not None and chunk.last > after]
        return sorted(found)

    async def _has_chunks(self, execution_id: str, after: int) -> bool:
        try:
            found = bool(await self._list_chunks(execution_id, after))
        except Overloaded:  # the next read raises it
            found = False
        if not found:
            self._looked.put((execution_id, after), asyncio.get_running_loop().time())
        return found

    async def _get(self, chunk: Chunk) -> list[Line]:
        try:
            found = await self._call(obstore.get_async(self._store, chunk.path))
            return decode_lines(bytes(await self._call(found.bytes_async())))
        except GONE:
            return []

    async def _remove(self, execution_id: str) -> None:
        self._ends.pop(execution_id)
        self._totals.add(day_of(execution_id), -await self._delete_below(folder_of(execution_id)))

    async def _delete_below(self, folder: str) -> int:
        """Deletes all objects in a folder. Returns their bytes."""
        count = 0
        async for objects in self._list(folder):
            await self._delete([found["path"] for found in objects])
            count += sum(found["size"] for found in objects)
        return count

    async def _delete(self, paths: list[str]) -> None:
        try:
            await self._call(obstore.delete_async(self._store, paths))
        except GONE:  # another node has deleted one of them; a `file:` store stops there
            for path in paths:
                with suppress(*GONE):
                    await self._call(obstore.delete_async(self._store, path))

    async def _list(
        self, folder: str, offset: str | None = None, tenant: str = READING
    ) -> AsyncIterator[Sequence[ObjectMeta]]:
        stream = obstore.list(self._store, folder, offset=offset, chunk_size=DELETES_A_CALL)
        while True:
            try:
                objects = await self._call(anext(stream), tenant)
            except (StopAsyncIteration, *GONE):
                return
            yield objects

    async def _call(self, call: Awaitable[T], tenant: str = READING) -> T:
        try:
            async with self._calls.of(tenant), asyncio.timeout(CALL_SECONDS):
                return await call
        except GONE:
            raise
        except TROUBLE as error:
            raise Overloaded(
                f"the store of the logs, {self._url}, does not respond correctly ({why(error)}); try again in a moment",
                retry_after=5,
            ) from error

    def _remember_end(self, execution_id: str, page: list[Chunk], lines: list[Line]) -> None:
        behind = [chunk for chunk in page if lines and chunk.last <= lines[-1].number]
        if behind:
            self._ends.put(execution_id, behind[-1])


def _open_store(url: str, options: Mapping[str, Any]) -> ObjectStore:
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise LogsUnusable(
            f"'{url}' can't hold logs; write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or "
            "file:///folder"
        )
    try:
        if scheme == "file":
            return LocalStore.from_url(url, mkdir=True, automatic_cleanup=True)
        if scheme == "memory":
            return from_url(url)
        # No client_options here: with any, obstore ignores those in the environment.
        retries = {"max_retries": 2, "retry_timeout": timedelta(seconds=5)}
        return from_url(url, **{"retry_config": retries, **options})
    except (BaseError, OSError, ValueError) as error:
        raise LogsUnusable(
            f"the logs of executions can't be kept in {url}: {why(error)}; correct the address, or the "
            "environment variables for it"
        ) from error


def _chunks_of_page(chunks: list[Chunk], after: int, limit: int) -> list[Chunk]:
    """Returns the first chunks, as many as a page needs. Their names say how many lines and bytes they hold."""
    lines, size = 0, 0
    for count, chunk in enumerate(chunks[:CHUNKS_A_PAGE], 1):
        lines += chunk.last - max(chunk.first - 1, after)
        size += chunk.bytes
        if lines >= limit or size >= PAGE_BYTES:
            return chunks[:count]
    return chunks[:CHUNKS_A_PAGE]
