"""Logs in an object store: few objects, and no lost lines after an outage of the store."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain.errors import Overloaded
from duetime.logs import memory, objects, upload
from duetime.logs.bucket import chunk_of, parse_chunk
from duetime.logs.objects import ObjectLogs
from duetime.ports.logs import Line, LogsUnusable
from duetime.testing import HandClock
from logs.reading import follow, read_all, texts, until
from logs.s3_server import S3Server
from patience import PATIENCE_SECONDS
from samples import NOW, new_id

FIRST = 1 << 32
TODAY = "2026-01-01"

CHILD = """
import asyncio, sys
from duetime.logs.objects import ObjectLogs
from duetime.process.clock import SystemClock

async def main():
    logs = ObjectLogs(sys.argv[1], 1000, SystemClock())
    await logs.start()
    writer = logs.open(sys.argv[2], 1)
    writer.write("stdout", "one\\n")
    await writer.close()
    await logs.read(sys.argv[2], 0, 10)
    await logs.stop()

asyncio.run(main())
"""


def in_folder(path: Path, limit_bytes: int = 1 << 20) -> ObjectLogs:
    return ObjectLogs(f"file://{path}", limit_bytes, HandClock(NOW))


def in_s3(server: S3Server, bucket: str) -> ObjectLogs:
    return ObjectLogs(f"s3://{bucket}/logs", 4 << 20, HandClock(NOW), server.options)


def names(path: Path, execution: str) -> list[str]:
    return sorted(found.name for found in (path / TODAY / execution).iterdir())


async def until_said(entries: list[Any], event: str) -> None:
    await until(lambda: event in [entry["event"] for entry in entries])


AWAY = "logs of executions can't be kept: some lines may be lost"
BACK = "logs of executions are kept again"


async def test_lines_that_come_within_a_moment_are_one_object(tmp_path: Path):
    logs = in_folder(tmp_path)
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    for number in range(10):
        writer.write("stdout", f"{number}\n")
        await asyncio.sleep(0)
    await writer.close()
    assert names(tmp_path, execution) == ["00001-0000000001-0000000010-20.jsonl"]
    first = (tmp_path / TODAY / execution / "00001-0000000001-0000000010-20.jsonl").read_text().splitlines()[0]
    assert first == f'[{FIRST + 1},{NOW},"stdout","0"]'
    await logs.stop()


async def test_a_burst_is_put_in_pieces_before_the_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upload, "CHUNK_SECONDS", 600.0)
    logs, other = in_folder(tmp_path), in_folder(tmp_path)
    await logs.start()
    await other.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    for number in range(800):
        writer.write("stdout", f"{number:03}" + "x" * 997 + "\n")
    assert len(await follow(other, execution, 600)) >= 600
    await writer.close()
    assert [int(line.text[:3]) for line in await read_all(other, execution)] == list(range(800))
    assert len(names(tmp_path, execution)) == 4
    await logs.stop()
    await other.stop()


async def test_names_of_chunks_hold_their_lines_and_sort_like_them():
    execution = new_id()
    numbers = [FIRST + 1, FIRST + 2, FIRST + 99, FIRST + 100, 10 * FIRST + 5, 100 * FIRST + 1]
    chunks = [chunk_of(execution, [Line(number, NOW, "stdout", "üx")]) for number in numbers]
    assert [parse_chunk(chunk.path) for chunk in chunks] == chunks
    assert [chunk.path for chunk in chunks] == sorted(chunk.path for chunk in chunks)
    assert (chunks[0].first, chunks[0].last, chunks[0].bytes) == (FIRST + 1, FIRST + 1, 4)
    for foreign in ("", "readme", "1-2.jsonl", f"{chunks[0].path}.tmp"):
        assert parse_chunk(foreign) is None


async def test_other_objects_are_ignored_and_kept(tmp_path: Path):
    logs = in_folder(tmp_path)
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine").write_text("mine")
    (tmp_path / TODAY / execution / "readme").write_text("what is this")
    (tmp_path / TODAY / execution / "00001-0000000002-0000000002-4.jsonl").write_text("not a line")
    assert texts(await read_all(logs, execution)) == ["one"]
    assert await logs.prune(NOW, 0) == 1
    assert os.listdir(tmp_path) == ["notes"]
    assert (tmp_path / "notes" / "mine").read_text() == "mine"
    await logs.stop()


async def test_lines_written_during_an_outage_are_stored_after_it(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upload, "CHUNK_SECONDS", 0.01)
    bucket = await asyncio.to_thread(s3_server.make_bucket)
    logs, other = in_s3(s3_server, bucket), in_s3(s3_server, bucket)
    await logs.start()
    await other.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "before\n")
    assert texts(await follow(other, execution, 1)) == ["before"]
    with capture_logs() as entries:
        with s3_server.away():
            writer.write("stdout", "meanwhile\n")
            await until_said(entries, AWAY)
            assert texts(await follow(logs, execution, 1, after=FIRST + 1)) == ["meanwhile"]  # read from memory
            with pytest.raises(Overloaded, match=f"the store of the logs, s3://{bucket}/logs, does not respond"):
                await other.read(execution, FIRST + 1, 10)
            assert not await other.wait(execution, FIRST + 1, 0.05)
        await until_said(entries, BACK)
    assert [entry["event"] for entry in entries] == [AWAY, BACK]
    writer.write("stdout", "after\n")
    await writer.close()
    assert texts(await read_all(other, execution)) == ["before", "meanwhile", "after"]
    await logs.stop()
    await other.stop()


async def test_a_close_does_not_wait_for_an_outage_and_the_log_is_stored_later(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(objects, "CLOSE_SECONDS", 0.3)
    bucket = await asyncio.to_thread(s3_server.make_bucket)
    logs = in_s3(s3_server, bucket)
    await logs.start()
    execution = new_id()
    with capture_logs() as entries:
        with s3_server.away():
            writer = logs.open(execution, 1)
            writer.write("stdout", "one\nand a half")
            async with asyncio.timeout(PATIENCE_SECONDS):
                await writer.close()
        await until_said(entries, BACK)
    assert texts(await read_all(logs, execution)) == ["one", "and a half"]
    await logs.stop()


async def test_lines_that_a_stop_could_not_store_are_counted(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(objects, "CLOSE_SECONDS", 0.1)
    bucket = await asyncio.to_thread(s3_server.make_bucket)
    logs = in_s3(s3_server, bucket)
    await logs.start()
    with capture_logs() as entries, s3_server.away():
        logs.open(new_id(), 1).write("stdout", "one\ntwo\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            await logs.stop()
    assert {entry["event"] for entry in entries[:-1]} <= {AWAY}  # none if there was no time to try
    assert entries[-1] == {
        "event": "logs of executions were lost at the stop",
        "log_level": "warning",
        "place": f"s3://{bucket}/logs",
        "lost_lines": 2,
    }


async def test_the_log_ends_with_a_line_about_lines_that_did_not_fit_into_memory(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memory, "SHARED_BYTES", 0)
    bucket = await asyncio.to_thread(s3_server.make_bucket)
    logs = in_s3(s3_server, bucket)
    await logs.start()
    execution = new_id()
    with s3_server.away():
        writer = logs.open(execution, 1)
        for number in range(400):
            writer.write("stdout", f"{number:03}" + "x" * 997 + "\n")
    await writer.close()
    *lines, last = await read_all(logs, execution)
    assert [int(line.text[:3]) for line in lines] == list(range(len(lines)))
    lost = 400 - len(lines)
    assert 100 < lost < 300
    assert last.text == f"{lost} lines ({lost * 1001:,} bytes) were left out: they could not be kept in time"
    await logs.stop()


async def test_logs_start_during_an_outage_of_the_store(s3_server: S3Server):
    bucket = await asyncio.to_thread(s3_server.make_bucket)
    logs = in_s3(s3_server, bucket)
    with capture_logs() as entries, s3_server.away():
        await logs.start()
    assert [entry["event"] for entry in entries] == [AWAY]
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["one"]
    await logs.stop()


async def test_a_missing_bucket_is_refused_at_the_start(s3_server: S3Server):
    with pytest.raises(LogsUnusable, match=r"s3://no-such-bucket/logs: .*; see that the bucket is there"):
        await in_s3(s3_server, "no-such-bucket").start()


@pytest.mark.parametrize("url", ["ftp://host/logs", "https://host/logs", "logs", "s3:"])
async def test_an_invalid_address_is_refused_at_the_start(url: str):
    with pytest.raises(LogsUnusable, match=r"write s3://bucket/prefix|correct the address"):
        await ObjectLogs(url, 1, HandClock(NOW)).start()


def test_a_process_that_stops_its_logs_exits_with_0(tmp_path: Path):
    """obstore aborts a process that ends the moment after a call: three times, as it is a race."""
    for _ in range(3):
        execution = new_id()
        command = [sys.executable, "-c", CHILD, f"file://{tmp_path}", execution]
        assert subprocess.run(command, timeout=PATIENCE_SECONDS, check=False).returncode == 0
        assert names(tmp_path, execution) == ["00001-0000000001-0000000001-4.jsonl"]
