"""A folder of logs: readable files, disks that fail and recover, torn lines."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain.errors import Overloaded
from duetime.domain.instants import DAY, HOUR
from duetime.logs import file, memory, open_logs
from duetime.logs.folder import FolderLogs
from duetime.ports.logs import Line, LogsUnusable
from duetime.testing import HandClock
from logs.reading import follow, read_all, texts, until
from patience import PATIENCE_SECONDS
from samples import NOW, new_id

FIRST = 1 << 32
TODAY = "2026-01-01"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "logs"


@pytest.fixture
def clock() -> HandClock:
    return HandClock(NOW)


@pytest.fixture
async def logs(folder: Path, clock: HandClock) -> AsyncIterator[FolderLogs]:
    made = FolderLogs(folder, 1024 * 1024, clock)
    await made.start()
    yield made
    await made.stop()


async def written(logs: FolderLogs, execution: str, text: str, attempt: int = 1) -> None:
    writer = logs.open(execution, attempt)
    writer.write("stdout", text)
    await writer.close()


async def until_kept(path: Path, text: str) -> None:
    await until(lambda: text in path.read_text() if path.is_file() else False)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def tear(path: Path, torn: str) -> None:
    with open(path, "ab") as file:
        file.write(torn.encode("latin-1"))


def warnings(entries: list[Any]) -> list[str]:
    return [entry["event"] for entry in entries if entry["log_level"] == "warning"]


async def test_a_log_is_a_file_of_its_day_with_an_array_a_line(logs: FolderLogs, folder: Path):
    execution = new_id(NOW + HOUR)
    await written(logs, execution, 'say "hello"\nbye\n')
    path = folder / TODAY / f"{execution}.log"
    assert path.read_text() == (f'[4294967297,{NOW},"stdout","say \\"hello\\""]\n[4294967298,{NOW},"stdout","bye"]\n')
    assert path.stat().st_mode & 0o777 == 0o600


async def test_without_an_address_logs_are_in_the_folder(tmp_path: Path, clock: HandClock):
    assert isinstance(open_logs("", tmp_path, 1, clock), FolderLogs)
    assert not isinstance(open_logs("memory:///", tmp_path, 1, clock), FolderLogs)


async def test_an_attempt_that_prints_nothing_leaves_no_file(logs: FolderLogs, folder: Path):
    await written(logs, new_id(), "")
    assert names(folder) == []


async def test_no_file_is_held_open(logs: FolderLogs):
    await written(logs, new_id(), "warm\n")
    before = len(os.listdir("/dev/fd"))
    executions = [new_id() for _ in range(50)]
    for execution in executions:
        logs.open(execution, 1).write("stdout", "one\n")
    for execution in executions:
        await follow(logs, execution, 1)
    assert len(os.listdir("/dev/fd")) <= before + 2  # one for the append, and one for the read


@pytest.mark.parametrize("torn", ["[4294967299,17672", '[4294967299,1767225600000,"stdout","half a \xc3', "\x00\x00"])
async def test_a_torn_line_is_ignored_and_affects_no_other(logs: FolderLogs, folder: Path, torn: str):
    execution = new_id()
    await written(logs, execution, "one\ntwo\n")
    tear(folder / TODAY / f"{execution}.log", torn)
    assert not await logs.wait(execution, FIRST + 2, 0.3)
    assert texts(await read_all(logs, execution)) == ["one", "two"]
    await written(logs, execution, "three\n")
    await written(logs, execution, "four\n", attempt=2)
    lines = await read_all(logs, execution)
    assert [(line.number, line.text) for line in lines] == [
        (FIRST + 1, "one"),
        (FIRST + 2, "two"),
        (FIRST + 3, "three"),
        (2 * FIRST + 1, "four"),
    ]
    assert await logs.size(execution) == len("one two three four ")


async def test_late_lines_of_a_replaced_attempt_are_not_read(logs: FolderLogs):
    execution = new_id()
    await written(logs, execution, "one\n")
    await written(logs, execution, "two\n", attempt=2)
    await written(logs, execution, "late\n", attempt=1)
    await written(logs, execution, "three\n", attempt=2)
    assert texts(await read_all(logs, execution)) == ["one", "two", "three"]
    assert texts(await read_all(logs, execution, limit=1)) == ["one", "two", "three"]


async def test_a_disk_that_refuses_writes_fails_no_execution_and_logs_one_warning(logs: FolderLogs, folder: Path):
    (folder / TODAY).write_text("in the way")
    execution, later = new_id(), new_id()
    with capture_logs() as entries:
        writer = logs.open(execution, 1)
        writer.write("stdout", "lost\n")
        assert texts(await follow(logs, execution, 1)) == ["lost"]  # a follower gets it nevertheless
        await writer.close()
        await written(logs, new_id(), "lost, too\n")
        assert warnings(entries) == ["logs of executions can't be kept: some lines may be lost"]
        (folder / TODAY).unlink()
        await written(logs, later, "kept\n")
    assert texts(await read_all(logs, later)) == ["kept"]
    assert await read_all(logs, execution) == []
    assert warnings(entries)[1:] == ["logs of executions are kept again"]
    assert entries[-1]["lost_lines"] == 2


async def test_lines_written_while_the_disk_fails_are_stored_when_it_works_again(logs: FolderLogs, folder: Path):
    execution = new_id()
    path = folder / TODAY / f"{execution}.log"
    writer = logs.open(execution, 1)
    writer.write("stdout", "before\n")
    await until_kept(path, "before")
    (folder / TODAY).rename(folder / "away")
    (folder / TODAY).write_text("in the way")
    with capture_logs() as entries:
        writer.write("stdout", "meanwhile\n")
        await until(lambda: bool(entries))
    (folder / TODAY).unlink()
    (folder / "away").rename(folder / TODAY)
    await until_kept(path, "meanwhile")
    writer.write("stdout", "after\n")
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["before", "meanwhile", "after"]


async def test_the_log_ends_with_the_number_of_lines_that_did_not_fit_into_memory(
    logs: FolderLogs, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "SHARED_BYTES", 0)
    (folder / TODAY).write_text("in the way")
    execution = new_id()
    writer = logs.open(execution, 1)
    for number in range(400):
        writer.write("stdout", f"{number:03}" + "x" * 997 + "\n")
    (folder / TODAY).unlink()
    await writer.close()
    *lines, last = await read_all(logs, execution)
    assert [int(line.text[:3]) for line in lines] == list(range(len(lines)))
    assert memory.WAITING_BYTES - 2000 < sum(len(line.text) + 128 for line in lines) < memory.WAITING_BYTES + 2000
    lost = 400 - len(lines)
    assert (last.stream, last.text) == (
        "log", f"{lost} lines ({lost * 1001:,} bytes) were left out: they could not be kept in time"
    )  # fmt: skip


def test_a_partial_write_is_completed_by_the_next_one(tmp_path: Path):
    path = str(tmp_path / "one.log")
    lines = [Line(FIRST + number, NOW, "stdout", "x" * 100) for number in range(1, 11)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, hard))
    try:
        cut = file.append(path, 1, lines, settled=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert isinstance(cut.error, OSError)
    assert (cut.lines, cut.bytes) == (5, 700)
    rest = file.append(path, 1, lines[cut.lines :], settled=True)
    assert (rest.lines, rest.error) == (5, None)
    assert file.scan(path, (0, 0), 0, 100).lines == lines


async def test_a_follower_does_not_read_from_the_beginning(folder: Path, monkeypatch: pytest.MonkeyPatch):
    writing, reading = (FolderLogs(folder, 4 << 20, HandClock(NOW)) for _ in range(2))
    await writing.start()
    await reading.start()
    execution = new_id()
    await written(writing, execution, ("x" * 99 + "\n") * 20_000)
    assert len(await read_all(reading, execution)) == 20_000
    assert await reading.size(execution) == 2_000_000
    counted = 0
    pread = os.pread

    def counting(*arguments: int) -> bytes:
        nonlocal counted
        data = pread(*arguments)
        counted += len(data)
        return data

    monkeypatch.setattr(os, "pread", counting)
    await written(writing, execution, "news\n", attempt=2)
    counted = 0
    assert texts(await follow(reading, execution, 1, after=FIRST + 20_000)) == ["news"]
    assert await reading.size(execution) == 2_000_005
    assert 0 < counted < 1000
    await writing.stop()
    await reading.stop()


async def test_readers_at_several_places_do_not_affect_each_other(logs: FolderLogs):
    execution = new_id()
    await written(logs, execution, "".join(f"{number}\n" for number in range(1, 201)))
    behind, ahead = 0, 100
    for _ in range(20):
        for after in (behind, ahead):
            page = await logs.read(execution, FIRST + after, 5)
            assert texts(page) == [str(number) for number in range(after + 1, after + 6)]
        behind, ahead = behind + 5, ahead + 5


async def test_an_unusable_folder_is_refused_at_the_start(tmp_path: Path, clock: HandClock):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogsUnusable, match=r"can't be kept in .*file/logs: Not a directory; give a folder that"):
        await FolderLogs(tmp_path / "file" / "logs", 1, clock).start()


async def test_an_unreadable_log_raises_an_error(logs: FolderLogs, folder: Path):
    execution = new_id()
    (folder / TODAY / f"{execution}.log").mkdir(parents=True)
    assert not await logs.wait(execution, 0, 0.05)
    for call in (logs.read(execution, 0, 1), logs.size(execution)):
        with pytest.raises(Overloaded, match=f"the log of execution {execution} can't be reached"):
            await call


async def test_pruning_keeps_files_of_others(logs: FolderLogs, folder: Path):
    await written(logs, new_id(NOW - 5 * DAY), "old\n")
    (folder / "2020-notes").mkdir()
    (folder / "readme").write_text("mine")
    assert await logs.prune(NOW, 0) == 1
    assert names(folder) == ["2020-notes", "readme"]


async def test_a_prune_does_not_read_every_day(logs: FolderLogs, folder: Path, clock: HandClock):
    execution = new_id()
    await written(logs, execution, "one\n")
    assert await logs.prune(0, 1000) == 0
    shutil.copy(folder / TODAY / f"{execution}.log", folder / TODAY / f"{new_id()}.log")  # by another node
    assert await logs.prune(0, 50) == 0
    clock.advance(601)
    assert await logs.prune(0, 50) == 1


async def test_a_second_stop_and_a_stop_before_the_start_do_nothing(folder: Path, clock: HandClock):
    logs = FolderLogs(folder, 1000, clock)
    await logs.stop()
    await logs.start()
    await logs.stop()
    await logs.stop()
    writer = logs.open(new_id(), 1)
    writer.write("stdout", "too late\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        await writer.close()


async def test_a_disk_that_hangs_delays_no_execution(folder: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetime.logs.folder.CLOSE_SECONDS", 0.05)
    logs = FolderLogs(folder, 1000, clock)
    await logs.start()
    # Any calls below on a disk that hangs: the thread that appends does not return.
    released = threading.Event()
    busy = asyncio.get_running_loop().run_in_executor(logs._appender, released.wait)
    with capture_logs() as entries:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await written(logs, new_id(), "lost\n")
        released.set()
        await busy
    assert warnings(entries) == ["logs of executions can't be kept: some lines may be lost"]
    await logs.stop()


async def test_a_close_waits_for_lines_that_are_being_appended(logs: FolderLogs):
    execution, released = new_id(), threading.Event()
    busy = asyncio.get_running_loop().run_in_executor(logs._appender, released.wait)
    with capture_logs() as entries:
        writer = logs.open(execution, 1)
        writer.write("stdout", "one\n")
        await until(lambda: not logs._dirty)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(0)
        released.set()
        await busy
        await closing
    assert warnings(entries) == []
    assert texts(await read_all(logs, execution)) == ["one"]
