"""Written lines can be read: at once, later and on other nodes; complete, clean, in order and once."""

from __future__ import annotations

import asyncio

import pytest

from contract.logs.conftest import MakeLogs
from duetime.logs.lines import LONGEST_LINE_BYTES
from duetime.logs.memory import PAGE_BYTES
from duetime.ports.logs import Line, LogStore
from duetime.testing import HandClock
from logs.reading import follow, read_all, texts
from samples import NOW, new_id

FIRST = 1 << 32


async def test_lines_are_read_as_they_were_written(logs: LogStore, clock: HandClock):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\ntwo\n")
    clock.advance(1.5)
    writer.write("stderr", "three\n")
    writer.write("log", "fo")
    writer.write("log", "ur\n")
    await writer.close()
    assert await logs.read(execution, 0, 10) == [
        Line(FIRST + 1, NOW, "stdout", "one"),
        Line(FIRST + 2, NOW, "stdout", "two"),
        Line(FIRST + 3, NOW + 1500, "stderr", "three"),
        Line(FIRST + 4, NOW + 1500, "log", "four"),
    ]


async def test_lines_are_readable_while_the_attempt_runs(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    for number in range(1, 6):
        writer.write("stdout", f"{number}\n")
        assert texts(await follow(logs, execution, 1, after=FIRST + number - 1)) == [str(number)]
    assert len(await read_all(logs, execution)) == 5


async def test_another_node_reads_the_same_lines(logs: LogStore, other: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\ntwo\n")
    await writer.close()
    assert texts(await read_all(other, execution)) == ["one", "two"]
    assert await read_all(other, execution) == await read_all(logs, execution)


async def test_lines_outlive_their_node(make_logs: MakeLogs):
    execution = new_id()
    first = make_logs()
    await first.start()
    writer = first.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    await first.stop()
    second = make_logs()
    await second.start()
    assert texts(await read_all(second, execution)) == ["one"]
    await second.stop()


async def test_a_stop_stores_the_lines_of_attempts_that_were_not_closed(make_logs: MakeLogs, other: LogStore):
    execution = new_id()
    stopping = make_logs()
    await stopping.start()
    stopping.open(execution, 1).write("stdout", "one\nand a half")
    await stopping.stop()
    assert texts(await read_all(other, execution)) == ["one", "and a half"]


async def test_the_line_numbers_of_an_attempt_are_higher_than_those_of_earlier_attempts(logs: LogStore):
    execution = new_id()
    for attempt in (1, 2, 3):
        writer = logs.open(execution, attempt)
        writer.write("stdout", f"attempt {attempt}\nbye\n")
        await writer.close()
    lines = await read_all(logs, execution)
    assert [(line.attempt, line.number & 0xFFFF_FFFF) for line in lines] == [
        (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)
    ]  # fmt: skip
    assert texts(await read_all(logs, execution, after=(1 << 32) + 2)) == ["attempt 2", "bye", "attempt 3", "bye"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_attempt_that_is_opened_again_continues_its_line_numbers(
    logs: LogStore, other: LogStore, elsewhere: bool
):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\ntwo\n")
    await writer.close()
    again = (other if elsewhere else logs).open(execution, 1)
    again.write("stdout", "three\n")
    assert texts(await follow(other if elsewhere else logs, execution, 1, after=FIRST + 2)) == ["three"]
    again.write("stdout", "four\n")
    await again.close()
    lines = await read_all(logs, execution)
    assert [(line.number - FIRST, line.text) for line in lines] == [(1, "one"), (2, "two"), (3, "three"), (4, "four")]


async def test_logs_of_one_day_are_separate(logs: LogStore):
    executions = [new_id() for _ in range(3)]
    for execution in executions:
        writer = logs.open(execution, 1)
        writer.write("stdout", f"{execution}\n")
        await writer.close()
    for execution in executions:
        assert texts(await read_all(logs, execution)) == [execution]


async def test_a_page_begins_after_the_given_number(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "".join(f"{number}\n" for number in range(1, 51)))
    await writer.close()
    assert texts(await logs.read(execution, 0, 3)) == ["1", "2", "3"]
    assert texts(await logs.read(execution, FIRST + 3, 2)) == ["4", "5"]
    assert texts(await logs.read(execution, FIRST + 1, 2)) == ["2", "3"]
    assert texts(await logs.read(execution, FIRST + 48, 10)) == ["49", "50"]
    assert await logs.read(execution, FIRST + 50, 10) == []
    assert texts(await read_all(logs, execution, limit=7)) == [str(number) for number in range(1, 51)]


async def test_a_large_log_is_read_in_pages_of_bounded_size_with_every_line_once(make_logs: MakeLogs):
    logs = make_logs(limit_bytes=4 * 1024 * 1024)
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    line = "x" * 1000
    for number in range(3000):
        writer.write("stdout", f"{number:06} {line}\n")
        if number % 500 == 0:
            await asyncio.sleep(0)
    await writer.close()
    found: list[Line] = []
    while page := await logs.read(execution, found[-1].number if found else 0, 100_000):
        assert sum(len(line.text) for line in page) <= PAGE_BYTES
        found += page
    assert [int(line.text[:6]) for line in found] == list(range(3000))
    await logs.stop()


async def test_a_line_is_stored_at_its_end_or_at_the_close(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "begun, ")
    writer.write("stderr", "another\n")
    writer.write("stdout", "ended\nnever ended")
    assert texts(await follow(logs, execution, 2)) == ["another", "begun, ended"]
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["another", "begun, ended", "never ended"]


async def test_lines_are_clean_whatever_a_program_prints(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write(
        "stdout", 'a\x00b\x07\n\x1b[31mred\x1b[0m\ttab\n\udc80 half a pair\nGrüße 😀 "quoted" \\ \u2028 end\n\n'
    )
    await writer.close()
    assert texts(await read_all(logs, execution)) == [
        "ab",
        "red\ttab",
        "\ufffd half a pair",
        'Grüße 😀 "quoted" \\ \u2028 end',
        "",
    ]


async def test_a_line_that_is_too_long_is_split(logs: LogStore):
    execution = new_id()
    long = "ü€😀x" * 20_000
    writer = logs.open(execution, 1)
    writer.write("stdout", f"{long}\nshort\n")
    await writer.close()
    *pieces, short = texts(await read_all(logs, execution))
    assert "".join(pieces) == long
    assert all(len(piece.encode()) <= LONGEST_LINE_BYTES for piece in pieces)
    assert len(pieces) == 13
    assert short == "short"


async def test_a_full_log_ends_with_the_size_of_the_omitted_text(make_logs: MakeLogs):
    logs = make_logs(limit_bytes=2048)
    await logs.start()
    execution = new_id()
    writer = logs.open(execution, 1)
    for _ in range(100):
        writer.write("stdout", "x" * 99 + "\n")
    await writer.close()
    lines = await read_all(logs, execution)
    assert texts(lines[:-1]) == ["x" * 99] * 20
    assert (lines[-1].stream, lines[-1].text) == ("log", "the log is full at 2.0 KiB: 8,000 bytes more were left out")
    again = logs.open(execution, 2)
    again.write("stdout", "there is room for the next attempt\n")
    await again.close()
    assert texts(await read_all(logs, execution))[-1] == "there is room for the next attempt"
    await logs.stop()


async def test_size_is_the_bytes_of_the_texts_with_their_line_ends(logs: LogStore, other: LogStore):
    execution = new_id()
    assert await logs.size(execution) == 0
    writer = logs.open(execution, 1)
    writer.write("stdout", "five5\nü\n")
    await follow(logs, execution, 2)
    assert await logs.size(execution) == 9
    await writer.close()
    assert await logs.size(execution) == 9
    assert await other.size(execution) == 9
    second = other.open(execution, 2)
    second.write("stdout", "more\n")
    await second.close()
    assert await logs.size(execution) == 14


async def test_a_log_that_was_never_written_is_empty(logs: LogStore):
    execution = new_id()
    await logs.open(execution, 1).close()
    assert await logs.read(execution, 0, 10) == []
    assert await logs.size(execution) == 0


async def test_text_written_after_the_close_is_discarded(logs: LogStore):
    execution = new_id()
    writer = logs.open(execution, 1)
    writer.write("stdout", "one\n")
    await writer.close()
    writer.write("stdout", "late\n")
    await writer.close()
    assert texts(await read_all(logs, execution)) == ["one"]


async def test_concurrent_attempts_have_separate_lines(logs: LogStore, other: LogStore):
    executions = [new_id() for _ in range(30)]

    async def attempt(execution: str) -> None:
        writer = logs.open(execution, 1)
        for number in range(30):
            writer.write("stdout", f"{execution} {number}\n")
            await asyncio.sleep(0)
        await writer.close()

    followed = asyncio.gather(*(follow(logs, execution, 30) for execution in executions))
    await asyncio.gather(*(attempt(execution) for execution in executions))
    for execution, lines in zip(executions, await followed, strict=True):
        assert texts(lines) == [f"{execution} {number}" for number in range(30)]
        assert await read_all(other, execution) == lines
