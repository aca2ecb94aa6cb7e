"""The object store that holds the logs: chunks of logs, their days for pruning, and a bounded number of calls.

Address and credentials come from the environment, under the names that the store's own tools use (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, …). The name of a chunk holds its line numbers and its size, so that a listing replaces many reads:
`<day>/<execution id>/<attempt>-<first>-<last>-<bytes>.jsonl` has the lines `first` to `last` of that attempt, and
the bytes of their texts. Names sort as their lines do.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, from_url

from duetime.domain.errors import Overloaded
from duetime.logs.days import day_of, is_day
from duetime.logs.lines import size_of
from duetime.logs.outage_log import why
from duetime.places import Places
from duetime.ports.logs import Line, LogsUnusable

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

PROBE = ".duetime-probe"  # a listing can't distinguish a missing bucket from an unreachable one
CALL_SECONDS = 10.0
START_SECONDS = 5.0
CALLS_AT_ONCE = 16
MOST_CALLS = 64  # including tenants that would otherwise wait behind the calls of others
READING = ""  # one holder for all reads, listings and removals, next to the tenants that write
DELETES_A_CALL = 1000
SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file", "memory")
TROUBLE = (BaseError, OSError, TimeoutError)
REFUSED = (NotFoundError, FileNotFoundError, PermissionDeniedError, PermissionError, UnauthenticatedError)
GONE = (NotFoundError, FileNotFoundError)

T = TypeVar("T")
_NAME = re.compile(r"(\d{5,})-(\d{10})-(\d{10})-(\d+)\.jsonl")
_PLACE = 0xFFFF_FFFF

encode_lines = msgspec.json.Encoder().encode_lines
_decoder = msgspec.json.Decoder(Line)


class Chunk(NamedTuple):
    first: int  # line numbers, with the attempt in the upper 32 bits
    last: int
    bytes: int
    path: str

    @property
    def lines(self) -> int:
        return self.last - self.first + 1


def folder_of(execution_id: str) -> str:
    return f"{day_of(execution_id)}/{execution_id}"


def before_attempt(execution_id: str, attempt: int) -> str:
    """Returns a path that sorts before the chunks of this attempt, and after those of earlier attempts."""
    return f"{folder_of(execution_id)}/{attempt:05}-"


def chunk_of(execution_id: str, lines: Sequence[Line]) -> Chunk:
    first, last = lines[0].number, lines[-1].number
    count = sum(size_of(line.text) + 1 for line in lines)
    name = f"{first & _PLACE:010}-{last & _PLACE:010}-{count}.jsonl"
    return Chunk(first, last, count, before_attempt(execution_id, first >> 32) + name)


def parse_chunk(path: str) -> Chunk | None:
    """Returns None for an object that is not a chunk."""
    match = _NAME.fullmatch(path.rpartition("/")[2])
    if match is None:
        return None
    attempt, first, last, count = (int(part) for part in match.groups())
    return Chunk((attempt << 32) + first, (attempt << 32) + last, count, path)


def decode_lines(data: bytes) -> list[Line]:
    """Returns no lines if the data can't be decoded: the object was changed from outside."""
    try:
        return _decoder.decode_lines(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


class Bucket:
    """Implements `LogDays`. Calls other than `start` and `put_chunk` raise Overloaded if the store fails."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = options
        self._calls = Places(CALLS_AT_ONCE, MOST_CALLS)

    async def start(self) -> None:
        """Opens the store, and tries a write. Raises LogsUnusable if the store refuses it, and TROUBLE if it fails."""
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

    async def put_chunk(self, tenant: str, execution_id: str, lines: Sequence[Line]) -> int:
        """Stores lines as a chunk. Returns its size. Raises TROUBLE."""
        path, data = chunk_of(execution_id, lines).path, encode_lines(lines)
        async with self._calls.of(tenant), asyncio.timeout(CALL_SECONDS):
            await obstore.put_async(self._store, path, data, use_multipart=False)
        return len(data)

    async def list_chunks(
        self, execution_id: str, after: int, offset: str | None = None, tenant: str = READING
    ) -> list[Chunk]:
        """Returns the chunks that hold lines beyond `after`, in order. `offset`: a path that sorts before them."""
        found: list[Chunk] = []
        async for objects in self._list(folder_of(execution_id), offset, tenant):
            chunks = (parse_chunk(item["path"]) for item in objects)
            found += [chunk for chunk in chunks if chunk is not None and chunk.last > after]
        return sorted(found)

    async def get_lines(self, chunk: Chunk) -> list[Line]:
        """Returns the lines of a chunk; none if the chunk was removed."""
        try:
            found = await self._call(obstore.get_async(self._store, chunk.path))
            return decode_lines(bytes(await self._call(found.bytes_async())))
        except GONE:
            return []

    async def remove_log(self, execution_id: str) -> int:
        """Removes a log. Returns the bytes of its chunks."""
        return await self._delete_below(folder_of(execution_id))

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
