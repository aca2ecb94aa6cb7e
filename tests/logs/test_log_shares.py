"""One tenant prints without end: other tenants lose no line, no place in a flush, and no call to the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from duetime.logs import bucket, file, folder, memory, objects
from duetime.logs.folder import FolderLogs
from duetime.logs.objects import ObjectLogs
from duetime.ports.logs import Line
from duetime.testing import HandClock
from logs.reading import read_all, until
from samples import NOW, new_id

LIMIT = 4 << 20
MEGABYTE = ("x" * 1023 + "\n") * 1024


@pytest.fixture
async def logs(tmp_path: Path) -> AsyncIterator[FolderLogs]:
    made = FolderLogs(tmp_path / "logs", LIMIT, HandClock(NOW))
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Each append to a file: its execution, and the number of bytes of text."""
    seen: list[tuple[str, int]] = []

    def append(path: str, attempt: int, lines: Sequence[Line], settled: bool) -> file.Appended:
        seen.append((Path(path).stem, sum(len(line.text) for line in lines)))
        return file.append(path, attempt, lines, settled)

    monkeypatch.setattr(folder, "append", append)
    return seen


async def test_a_flood_that_waits_for_the_disk_does_not_delay_the_log_of_another(
    logs: FolderLogs, appended: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folder, "CLOSE_SECONDS", 60)
    flood = [logs.open(new_id(), 1, "hostile") for _ in range(8)]
    for writer in flood:
        for _ in range(3):
            writer.write("stdout", MEGABYTE)
    execution = new_id()
    mine = logs.open(execution, 1, "other")
    mine.write("stdout", "mine\n")
    await mine.close()
    before = appended[: [name for name, _ in appended].index(execution)]
    assert sum(size for _, size in before) <= 2 * folder.TURN_BYTES
    assert len({name for name, _ in before}) > 1, "the logs of one tenant take turns, too"
    await asyncio.gather(*(writer.close() for writer in flood))
    assert [len(await read_all(logs, writer.execution_id)) for writer in flood] == [3 * 1024] * 8  # type: ignore[attr-defined]


async def test_a_single_tenant_can_fill_the_memory_and_another_still_gets_its_share(
    logs: FolderLogs, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folder, "CLOSE_SECONDS", 60)
    monkeypatch.setattr(memory, "SHARED_BYTES", 4 << 20)
    released = threading.Event()
    busy = asyncio.get_running_loop().run_in_executor(logs._appender, released.wait)  # a disk that hangs
    flood, execution = [logs.open(new_id(), 1, "hostile") for _ in range(4)], new_id()
    for writer in flood:
        writer.write("stdout", MEGABYTE * 2)
    mine = logs.open(execution, 1, "other")
    mine.write("stdout", MEGABYTE)
    released.set()
    await busy
    await asyncio.gather(mine.close(), *(writer.close() for writer in flood))
    assert len(await read_all(logs, execution)) == 1024, "none of its lines was left out"
    kept = [len(await read_all(logs, writer.execution_id)) for writer in flood]  # type: ignore[attr-defined]
    assert 3 * 1024 <= sum(kept) < 6 * 1024, "the flood has what there was, and says what was left out"


class Store:
    """An object store whose puts hang until they are released."""

    def __init__(self) -> None:
        self.puts: list[str] = []
        self.go = asyncio.Event()

    async def put_async(self, store: Any, path: str, *arguments: Any, **options: Any) -> Any:
        self.puts.append(path)
        if "probe" not in path:
            await self.go.wait()
        return await self._real(store, path, *arguments, **options)

    _real = staticmethod(bucket.obstore.put_async)


async def test_slow_puts_of_one_tenant_do_not_block_those_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "LET_GO_SECONDS", 0)
    store = Store()
    monkeypatch.setattr(bucket.obstore, "put_async", store.put_async)
    logs = ObjectLogs(f"file://{tmp_path}", LIMIT, HandClock(NOW))
    await logs.start()
    hostile = [logs.open(new_id(), 1, "hostile") for _ in range(bucket.CALLS_AT_ONCE * 3)]
    for writer in hostile:
        writer.write("stdout", "x\n")
    closing = [asyncio.create_task(writer.close()) for writer in hostile]
    await until(lambda: len(store.puts) > bucket.CALLS_AT_ONCE)
    execution = new_id()
    mine = logs.open(execution, 1, "other")
    mine.write("stdout", "mine\n")
    closing.append(asyncio.create_task(mine.close()))
    await until(lambda: any(execution in path for path in store.puts))
    store.go.set()
    await asyncio.gather(*closing)
    await logs.stop()
