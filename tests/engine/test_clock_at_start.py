"""A single node has no other clock. It compares its clock with the newest entry of the ledger."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.instants import DAY, HOUR, SECOND
from duetime.domain.lease import doubt_clock
from engine.stage import Stage
from samples import NOW, add_execution, add_job, claim_waiting, ended, one, spec


async def ran_until_now(stage: Stage) -> None:
    """Runs an earlier term, which ended with an execution of NOW."""
    node = await one(stage.store, c.StartNode(NOW, "node-1"))
    await add_execution(stage.store, await add_job(stage.store, spec("every 1000d")), NOW)
    (claim,) = await claim_waiting(stage.store, node, NOW)
    await one(stage.store, c.Finish(node, NOW, (ended(claim),)))


def doubts(logs: list[object]) -> list[str]:
    return [line["event"] for line in logs if "the ledger has seen" in line["event"]]  # type: ignore[index]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (NOW, None),
        (NOW - SECOND, None),
        (NOW + DAY, None),
        (NOW - 40 * DAY, "was the clock set back?"),
        (NOW + 40 * DAY, "or is its clock ahead?"),
    ],
)
def test_a_clock_that_contradicts_the_ledger_is_doubted(now: int, expected: str | None):
    said = doubt_clock(NOW, now)
    assert said is expected is None or str(said).endswith(str(expected))
    assert doubt_clock(None, now) is None


@pytest.mark.parametrize(("days", "count"), [(40, 1), (-40, 1), (0, 0)])
async def test_a_node_logs_the_doubt_at_its_start(stage: Stage, days: int, count: int):
    await ran_until_now(stage)
    stage.clock.jump(days * 86_400)
    with capture_logs() as logs:
        await stage.join()
    assert len(doubts(logs)) == count  # type: ignore[arg-type]


async def test_nothing_is_pruned_by_a_clock_that_may_be_ahead_for_an_hour(stage: Stage):
    await ran_until_now(stage)
    stage.clock.jump(40 * 86_400)
    await stage.join()
    for _ in range(4):
        await stage.engine.term.retention.run_once()
        stage.clock.advance(899)
    assert await stage.store.count_history() == 1
    stage.clock.advance(5)
    await stage.engine.term.retention.run_once()
    assert await stage.store.count_history() == 0


async def test_a_node_that_was_stopped_briefly_prunes_at_once(stage: Stage):
    await ran_until_now(stage)
    stage.clock.jump(HOUR / SECOND)
    await stage.join(history_seconds=60)
    await stage.engine.term.retention.run_once()
    assert await stage.store.count_history() == 0
