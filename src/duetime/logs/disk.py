"""The files of a log folder: one folder per day, one file per execution. All calls run on threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from duetime.domain.errors import Overloaded
from duetime.logs.days import day_of, is_day
from duetime.private_files import make_folder

READERS = 4
SUFFIX = ".log"

T = TypeVar("T")


class LogDisk:
    """Implements `LogDays`. Calls other than `start` raise Overloaded if the disk fails."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def start(self) -> None:
        """Checks that files can be written. Raises OSError."""
        await asyncio.to_thread(_check, self._path)
        self._readers = ThreadPoolExecutor(READERS, "duetime-logs-read")

    def stop(self) -> None:
        self._readers.shutdown(wait=False)

    def path_of(self, execution_id: str) -> str:
        return os.path.join(self._path, day_of(execution_id), execution_id + SUFFIX)

    async def call(self, execution_id: str, deed: Callable[[], T]) -> T:
        """Calls `deed` on a thread. `execution_id`: for the message of an error; empty for the folder."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, deed)
        except OSError as error:
            what = f"the log of execution {execution_id}" if execution_id else "the folder of the logs"
            raise Overloaded(
                f"{what} can't be reached ({error.strerror or error}: {error.filename or self._path}); "
                "check its disk, or try again in a moment",
                retry_after=5,
            ) from error

    async def size(self, execution_id: str) -> int:
        path = self.path_of(execution_id)
        return await self.call(execution_id, lambda: _size(path))

    async def remove(self, execution_ids: Sequence[str]) -> list[int]:
        """Removes logs. Returns their sizes."""
        paths = [self.path_of(execution_id) for execution_id in execution_ids]
        return await self.call("", lambda: [_unlink(path) for path in paths])

    async def list_days(self) -> list[str]:
        return await self.call("", lambda: [name for name in os.listdir(self._path) if is_day(name)])

    async def measure(self, day: str) -> int:
        return await self.call("", lambda: sum(size for _, size in _list_files(self._folder(day))))

    async def list_logs(self, day: str) -> list[tuple[str, int]]:
        files = await self.call("", lambda: _list_files(self._folder(day)))
        return [(name.removesuffix(SUFFIX), size) for name, size in files]

    async def remove_logs(self, day: str, execution_ids: Sequence[str]) -> None:
        names = [execution_id + SUFFIX for execution_id in execution_ids]
        await self.call("", lambda: _remove_files(self._folder(day), names))

    async def remove_day(self, day: str) -> int:
        folder = self._folder(day)
        return await self.call("", lambda: _remove_files(folder, [name for name, _ in _list_files(folder)]))

    def _folder(self, day: str) -> str:
        return os.path.join(self._path, day)


def _check(path: str) -> None:
    make_folder(path)
    probe = os.path.join(path, f".probe-{os.getpid()}")
    os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.unlink(probe)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _unlink(path: str) -> int:
    """Removes a file. Returns its size."""
    size = _size(path)
    with suppress(FileNotFoundError):
        os.unlink(path)
    return size


def _list_files(folder: str) -> list[tuple[str, int]]:
    """Returns the files, oldest first, because ids begin with their instant."""
    found: list[tuple[str, int]] = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    return sorted(found)


def _remove_files(folder: str, names: Sequence[str]) -> int:
    """Removes files, and the folder with its last file. Returns how many."""
    for name in names:
        _unlink(os.path.join(folder, name))
    with suppress(OSError):  # the folder is not empty
        os.rmdir(folder)
    return len(names)
