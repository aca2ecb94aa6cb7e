"""Many nodes in one process, one simulated clock, and random faults: machines stop, die, return, are cut off or slow.

Engines and the store are real. In the end every due instant has one decision, all executions are terminal, none was
early, epochs only grew, and no write of a replaced owner was accepted.

Each test run has fixed seeds and new ones. A failure prints its seed: DUETIME_SEED=123 runs that seed again, and
DUETIME_SIMULATIONS=500 with `make soak` runs many.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from cluster.checker import Report, check
from duetime.domain.instants import SECOND
from duetime.engine import engine, recorder, timer
from duetime.engine.timer_buffer import TimerBuffer
from duetime.store.sqlite import SqliteStore
from duetime.store.sqlite.statements import Statements
from samples import TENANT
from simulation.diary import history_of
from simulation.world import STEP, TTL, World

SECONDS = 30.0  # of trouble
QUIET_SECONDS = 200.0  # after it, at most: three retries take up to 130, and a clock may have been 30 ahead
SOAK = int(os.environ.get("DUETIME_SIMULATIONS", "100"))
FIXED = [4, 7]  # with both, a fence refused a write when they were chosen
MOST_MORE = 20  # seeds until a fence refuses a write, which happens in one of three
SKEW: dict[str, Any] = {"allowed": {"EARLY", "STALE", "LATE"}, "has_skew": True}  # these compare clocks of two machines


def seeds(count: int = 1) -> list[int]:
    """Returns the fixed seeds and this many new ones; or the seed of DUETIME_SEED."""
    if named := os.environ.get("DUETIME_SEED"):
        return [int(named)]
    return [*FIXED, *new_seeds(count)]


def new_seeds(count: int) -> list[int]:
    return [random.randrange(2**32) for _ in range(count)]


@pytest.fixture(autouse=True)
def no_waits_by_the_real_clock_and_no_logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(recorder, "GATHER_SECONDS", 0)
    monkeypatch.setattr(engine, "REJOIN_SECONDS", 0)
    monkeypatch.setattr(timer, "ROOM_WAIT_SECONDS", 0)
    with capture_logs():
        yield


async def simulate(seed: int, folder: Path, **nature: Any) -> tuple[World, Report]:
    store = SqliteStore(folder / str(seed))
    await store.start()
    world = World(seed, store)
    for name, value in nature.items():
        setattr(world, name, value)
    try:
        for name in ("n0", "n1", "n2"):
            world.start(name)
        await world.run(3)
        end_at = world.clock.now() + SECONDS * 1000
        while world.clock.now() < end_at:
            for _ in range(world.rng.randrange(4)):
                await world.create(world.some_job(max(1.0, (end_at - world.clock.now()) / 1000)))
            world.disturb()
            await world.run(world.rng.choice([STEP, 0.5, 1.0, 2.0, 4.0]))
        world.calm()
        await world.run(2 * TTL)
        await until_quiet(world)
        history = await history_of(store, world.jobs, world.diary.lines, world.clock.now())
        return world, check(history)
    finally:
        await world.end()
        await store.stop()


async def until_quiet(world: World) -> None:
    for _ in range(round(QUIET_SECONDS / 2)):
        await world.run(2)
        rows = (await history_of(world.store, world.jobs, [], world.clock.now())).executions
        due = [job.due_at for job in [await world.store.get_job(TENANT, job.job_id) for job in world.jobs] if job]
        if all(row["end_time"] for row in rows) and not any(due):
            return


async def run_and_judge(seed: int, folder: Path, allowed: Collection[str] = (), **nature: Any) -> World:
    print(f"DUETIME_SEED={seed}")  # noqa: T201 (shown when it fails)
    world, report = await simulate(seed, folder, **nature)
    assert not report.verdicts - set(allowed), f"DUETIME_SEED={seed}\n{report}"
    assert not world.diary.wrongs, f"DUETIME_SEED={seed}\n{world.diary.wrongs}"
    return world


@pytest.mark.slow
async def test_every_instant_has_one_decision_whatever_faults_happen(tmp_path: Path) -> None:
    worlds = [await run_and_judge(seed, tmp_path) for seed in seeds()]
    if len(worlds) > 1:  # not for a single seed
        assert sum(len(world.diary.lines) for world in worlds) > 50
        more = iter(new_seeds(MOST_MORE))
        while not any(world.refused_fires for world in worlds):
            seed = next(more, None)
            assert seed is not None, "no fence has refused a write"
            worlds.append(await run_and_judge(seed, tmp_path))


@pytest.mark.slow
@pytest.mark.soak
async def test_every_instant_has_one_decision_for_many_seeds(tmp_path: Path) -> None:
    for seed in seeds(SOAK):
        await run_and_judge(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.soak
async def test_every_instant_has_one_decision_for_many_seeds_with_wrong_clocks(tmp_path: Path) -> None:
    for seed in seeds(SOAK):
        await run_and_judge(seed, tmp_path, **SKEW)


@pytest.mark.slow
async def test_the_same_seed_gives_the_same_history(tmp_path: Path) -> None:
    seed = seeds()[-1]
    worlds = [await run_and_judge(seed, tmp_path / folder) for folder in ("first", "second")]
    assert worlds[0].diary.lines == worlds[1].diary.lines, f"DUETIME_SEED={seed}"


@pytest.mark.slow
async def test_a_wrong_clock_on_one_machine_delays_decisions_and_loses_none(tmp_path: Path) -> None:
    """By its own clock nothing is early. (By other clocks something may be: the machine has no other clock.)"""
    for seed in seeds():
        await run_and_judge(seed, tmp_path, **SKEW)


@pytest.mark.slow
async def test_the_simulation_fails_with_a_timer_that_fires_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = TimerBuffer.take
    monkeypatch.setattr(TimerBuffer, "take", lambda buffer, now, most: take(buffer, now + STEP * SECOND, most))
    seed = seeds()[-1]
    world, _ = await simulate(seed, tmp_path, has_skew=True)
    assert any("ms early" in wrong for wrong in world.diary.wrongs), f"DUETIME_SEED={seed}"


@pytest.mark.slow
async def test_the_simulation_fails_without_the_fence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Statements, "check_epochs", lambda *_, **__: None)
    monkeypatch.setattr(Statements, "check_node", lambda *_: None)
    found = ""
    tried = new_seeds(60)  # most seeds show it, but not every one: so DUETIME_SEED does not apply
    for seed in tried:
        try:
            _, report = await simulate(seed, tmp_path, stalls=0.2)
            found = str(report) if "STALE" in report.verdicts else ""
        except AssertionError as error:
            found = str(error)
        if found:
            break
    assert "STALE" in found or "older epoch" in found, f"no failure with these seeds: {tried}"
