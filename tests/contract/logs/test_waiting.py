"""Waiting for lines: a wait ends when there are lines, or after its time."""

from __future__ import annotations

import asyncio

from duetime.ports.logs import LogStore
from logs.reading import follow, read_all, texts
from patience import PATIENCE_SECONDS
from samples import new_id

FIRST = 1 << 32


async def test_a_wait_ends_at_once_if_there_are_lines(logs: LogStore, other: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await logs.wait(execution, 0, 60)
        assert await other.wait(execution, 0, 60)
        assert await other.wait(execution, 0, 60)


async def test_a_wait_without_new_lines_ends_after_its_time(logs: LogStore):
    execution = new_id()
    assert not await logs.wait(execution, 0, 0)
    assert not await logs.wait(execution, 0, 0.05)
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    assert not await logs.wait(execution, FIRST + 1, 0.05)
    assert await logs.read(execution, FIRST + 1, 10) == []
    assert not await logs.wait(execution, FIRST + 1, 0.05)


async def test_a_line_of_the_same_node_ends_a_wait(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    waiting = asyncio.create_task(logs.wait(execution, 0, 60))
    await asyncio.sleep(0)
    writer.write("stdout", "one\n")
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await waiting
    assert texts(await follow(logs, execution, 1)) == ["one"]


async def test_a_wait_for_lines_of_one_execution_is_not_ended_by_another(logs: LogStore):
    execution, another = new_id(), new_id()
    waiting = asyncio.create_task(logs.wait(execution, 0, 0.3))
    writer = logs.open(another, 1)
    writer.write("stdout", "one\n")
    await follow(logs, another, 1)
    assert not await waiting


async def test_lines_of_another_node_end_a_wait(logs: LogStore, other: LogStore):
    execution = new_id()
    assert await read_all(logs, execution) == []
    waiting = asyncio.create_task(follow(logs, execution, 3))
    writer = other.open(execution, 1)
    writer.write("stdout", "one\ntwo\n")
    await writer.close()
    again = other.open(execution, 2)
    again.write("stdout", "three\n")  # it is readable without a close, too
    assert texts(await waiting) == ["one", "two", "three"]
    await again.close()


async def test_a_cancelled_wait_leaves_no_waiter(logs: LogStore):
    execution = new_id()
    waiting = asyncio.create_task(logs.wait(execution, 0, 60))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["one"]
