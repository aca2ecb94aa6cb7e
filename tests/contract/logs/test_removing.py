"""Logs that go: by name, by age, and by size; whole days first, and the oldest first."""

from __future__ import annotations

from duetime.domain.instants import DAY, HOUR
from duetime.ports.logs import LogStore
from logs.reading import read_all, texts
from samples import NOW, new_id

PLENTY = 1 << 40


async def write(logs: LogStore, at: int, text: str = "one\n") -> str:
    execution = new_id(at)
    writer = logs.open(execution, 1)
    writer.write("stdout", text)
    await writer.close()
    return execution


async def kept(logs: LogStore, *executions: str) -> list[bool]:
    return [bool(await logs.read(execution, 0, 1)) for execution in executions]


async def test_a_removed_log_is_gone_and_its_neighbours_stay(logs: LogStore, other: LogStore):
    one, two, three = [await write(logs, NOW) for _ in range(3)]
    assert await logs.size(two) == 4
    await logs.remove([one, two, new_id(NOW), new_id(NOW - DAY)])
    assert await kept(logs, one, two, three) == [False, False, True]
    assert await kept(other, one, two, three) == [False, False, True]
    assert await logs.size(two) == 0


async def test_a_removed_log_may_begin_again(logs: LogStore):
    execution = await write(logs, NOW, "one\ntwo\nthree\n")
    assert len(await read_all(logs, execution)) == 3
    await logs.remove([execution])
    writer = logs.open(execution, 1)
    writer.write("stdout", "new\n")
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["new"]


async def test_days_before_an_instants_day_are_pruned(logs: LogStore, other: LogStore):
    old = [await write(logs, NOW - 3 * DAY), await write(other, NOW - 2 * DAY + HOUR), await write(logs, NOW - DAY)]
    new = [await write(logs, NOW), await write(logs, NOW + HOUR)]
    assert await logs.prune(NOW + 2 * HOUR, PLENTY) == 3
    assert await kept(logs, *old, *new) == [False, False, False, True, True]
    assert await logs.prune(NOW + 2 * HOUR, PLENTY) == 0


async def test_the_oldest_are_pruned_while_all_take_too_much(logs: LogStore):
    text = "x" * 4999 + "\n"
    executions = [await write(logs, NOW + day * DAY + hour * HOUR, text) for day in (0, 1) for hour in (1, 2, 3)]
    assert await logs.prune(NOW, PLENTY) == 0
    assert await logs.prune(NOW, 22_000) == 2
    assert await kept(logs, *executions) == [False, False, True, True, True, True]
    assert await logs.prune(NOW, 22_000) == 0
    executions.append(await write(logs, NOW + DAY + 4 * HOUR, text))
    executions.append(await write(logs, NOW + DAY + 5 * HOUR, text))
    assert await logs.prune(NOW, 17_000) == 3
    assert await kept(logs, *executions) == [False, False, False, False, False, True, True, True]
    await logs.remove(executions[5:7])
    assert await logs.prune(NOW, 6000) == 0
    assert await logs.prune(NOW, 0) == 1


async def test_pruning_nothing_takes_nothing(logs: LogStore):
    assert await logs.prune(NOW, 0) == 0
    execution = await write(logs, NOW)
    assert await logs.prune(0, PLENTY) == 0
    assert await kept(logs, execution) == [True]
