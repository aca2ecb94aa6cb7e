"""Scripts that print without end: output over the limit of a log is read slowly, so that the event loop stays free."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from duetime.executors.script import bandwidth
from duetime.executors.script.bandwidth import FREE_BYTES, Bandwidth
from duetime.executors.script.output import Output
from duetime.ports.logs import Stream

CHUNK = b"x" * 65_536


class Counting:
    def __init__(self) -> None:
        self.characters = 0

    def write(self, stream: Stream, text: str) -> None:
        self.characters += len(text)

    async def close(self) -> None:
        return


@pytest.fixture
async def never(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bandwidth]:
    """A Bandwidth whose next tick does not come during a test."""
    monkeypatch.setattr(bandwidth, "TICK_SECONDS", 3600)
    made = Bandwidth()
    yield made
    assert made._timer is not None
    made._timer.cancel()


def flooding(share: Bandwidth, tenant: str) -> tuple[Output, Counting]:
    log = Counting()
    output = Output("stdout", log, share, tenant)
    os.set_blocking(output.descriptor, False)
    return output, log


async def pour(output: Output) -> int:
    """Prints until the pipe stays full for many turns of the event loop. Returns how much was printed."""
    poured, full = 0, 0
    while full < 100 and poured < 8 * FREE_BYTES:
        try:
            poured += os.write(output.descriptor, CHUNK)
            full = 0
        except BlockingIOError:
            full += 1
        await asyncio.sleep(0)
    return poured


async def test_a_flood_of_output_is_read_up_to_its_free_bytes_until_the_next_tick(never: Bandwidth):
    output, log = flooding(never, "hostile")
    poured = await pour(output)
    assert FREE_BYTES <= log.characters < min(FREE_BYTES + len(CHUNK), poured)
    output.close()
    assert log.characters == poured, "the end reads what is left, whoever's turn it is"


async def test_little_output_is_read_at_once_while_a_flood_waits(never: Bandwidth):
    flood, _ = flooding(never, "hostile")
    await pour(flood)
    quiet, log = flooding(never, "hostile")
    os.write(quiet.descriptor, b"hello")
    while not log.characters:  # noqa: ASYNC110 (the loop reads it)
        await asyncio.sleep(0)
    for output in (flood, quiet):
        output.close()


async def test_a_tick_is_shared_by_tenant_and_then_by_stream(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bandwidth, "TICK_SECONDS", 0)
    share, given, all_given = Bandwidth(), dict[str, list[int]](), asyncio.Event()

    def ask(tenant: str) -> None:
        def resume(size: int) -> None:
            given.setdefault(tenant, []).append(size)
            if sum(map(len, given.values())) == 8:
                all_given.set()

        share.ask(tenant, resume)

    for _ in range(7):
        ask("hostile")
    ask("other")
    await all_given.wait()
    assert given["other"] == [bandwidth.TICK_BYTES // 2]
    assert len(set(given["hostile"])) == 1
    assert sum(given["hostile"]) <= bandwidth.TICK_BYTES // 2
