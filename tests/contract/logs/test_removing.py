"""Removal of logs: by name, by age, and by size; whole days first, then the oldest logs of the largest tenant."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.instants import DAY, HOUR
from duetime.ports.logs import LogStore
from logs.reading import read_all, texts
from samples import NOW, new_id

PLENTY = 1 << 40


async def write(logs: LogStore, at: int, text: str = "one\n", tenant: str = "") -> str:
    execution = new_id(at)
    writer = logs.open(execution, 1, tenant)
    writer.write("stdout", text)
    await writer.close()
    return execution


async def kept(logs: LogStore, *executions: str) -> list[bool]:
    return [bool(await logs.read(execution, 0, 1)) for execution in executions]


async def test_removing_a_log_leaves_the_other_logs(logs: LogStore, other: LogStore):
    one, two, three = [await write(logs, NOW) for _ in range(3)]
    assert await logs.size(two) == 4
    await logs.remove([one, two, new_id(NOW), new_id(NOW - DAY)])
    assert await kept(logs, one, two, three) == [False, False, True]
    assert await kept(other, one, two, three) == [False, False, True]
    assert await logs.size(two) == 0


async def test_a_removed_log_can_be_written_again(logs: LogStore):
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


async def test_the_oldest_logs_are_pruned_until_all_fit_the_limit(logs: LogStore):
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


class Ledger:
    """Returns the tenants of executions, and counts the requested ones."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.asked = 0

    async def tenants_of(self, execution_ids: Sequence[str]) -> dict[str, str]:
        self.asked += len(execution_ids)
        return {one: self.owners[one] for one in execution_ids if one in self.owners}


async def test_the_largest_tenant_loses_its_oldest_logs_and_others_lose_none(logs: LogStore):
    ledger, text = Ledger(), "x" * 999 + "\n"
    quiet = [await write(logs, NOW + HOUR, text, "quiet"), await write(logs, NOW + DAY, text, "quiet")]
    loud = [await write(logs, NOW + 2 * HOUR + n * DAY, text, "loud") for n in (0, 0, 0, 1, 1, 1)]
    ledger.owners = {**dict.fromkeys(quiet, "quiet"), **dict.fromkeys(loud, "loud")}
    room = await logs.size(quiet[0]) * 6 + 600  # a log takes some more bytes than its text
    assert await logs.prune(NOW, room, ledger.tenants_of) in (2, 3)
    assert await kept(logs, *quiet) == [True, True]
    left = await kept(logs, *loud)
    assert left in ([False] * 2 + [True] * 4, [False] * 3 + [True] * 3)
    assert await logs.prune(NOW, room, ledger.tenants_of) == 0


async def test_later_lines_of_two_tenants_are_counted_for_each_tenant(logs: LogStore):
    ledger, text = Ledger(), "x" * 4999 + "\n"

    async def more(tenant: str, at: int) -> str:
        execution = await write(logs, at, text, tenant)
        ledger.owners[execution] = tenant
        return execution

    first = [await more("a", NOW + HOUR), await more("b", NOW + HOUR)]
    assert await logs.prune(NOW, 7000, ledger.tenants_of) == 2, "both have more than half of it"
    assert await kept(logs, *first) == [False, False]
    quiet = await more("a", NOW + 2 * HOUR)
    loud = [await more("b", NOW + (3 + n) * HOUR) for n in range(4)]
    assert await logs.prune(NOW, 12_000, ledger.tenants_of) == 3
    assert await kept(logs, quiet, *loud) == [True, False, False, False, True]


async def test_logs_of_executions_that_are_not_in_the_ledger_are_pruned_first(logs: LogStore):
    ledger, text = Ledger(), "x" * 4999 + "\n"
    known = [await write(logs, NOW + HOUR, text, "a") for _ in range(3)]
    gone = [await write(logs, NOW + DAY, text, "a") for _ in range(2)]
    ledger.owners = dict.fromkeys(known, "a")
    assert await logs.prune(NOW, 16_500, ledger.tenants_of) == 2
    assert await kept(logs, *known, *gone) == [True, True, True, False, False]


async def test_the_ledger_is_not_read_while_logs_fit_the_limit(logs: LogStore):
    ledger = Ledger()
    await write(logs, NOW + HOUR, tenant="a")
    assert await logs.prune(NOW, PLENTY, ledger.tenants_of) == 0
    assert ledger.asked == 0


async def test_pruning_without_logs_removes_nothing(logs: LogStore):
    assert await logs.prune(NOW, 0) == 0
    execution = await write(logs, NOW)
    assert await logs.prune(0, PLENTY) == 0
    assert await kept(logs, execution) == [True]
