"""The hub of telemetry, and the store whose methods are measured at the port."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.errors import NotFound, Overloaded
from duetime.ports.store import Store
from duetime.store.sqlite import SqliteStore
from duetime.telemetry.emitted import Emitted, Fenced, Read, TurnFailed, WriteFailed, Written
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.measured_store import measured
from samples import NOW, TENANT, new_job, spec


def test_a_subscriber_gets_the_kinds_that_it_asked_for():
    telemetry, got = Telemetry(), list[Emitted]()
    telemetry.subscribe(Fenced, got.append)
    telemetry.emit(TurnFailed("timer", "no"))
    telemetry.emit(Fenced(7))
    assert got == [Fenced(7)]


def test_a_subscriber_that_fails_is_logged_once_and_affects_nobody():
    telemetry, got = Telemetry(), list[Emitted]()

    def fail(_: Fenced) -> None:
        raise ValueError("broken")

    telemetry.subscribe(Fenced, fail)
    telemetry.subscribe(Fenced, got.append)
    with capture_logs() as lines:
        telemetry.emit(Fenced(1))
        telemetry.emit(Fenced(2))
    assert got == [Fenced(1), Fenced(2)]
    assert [line["emitted"] for line in lines] == ["Fenced"]


class Emissions:
    def __init__(self, telemetry: Telemetry) -> None:
        self.writes: list[Written] = []
        self.failures: list[WriteFailed] = []
        self.reads: list[Read] = []
        telemetry.subscribe(Written, self.writes.append)
        telemetry.subscribe(WriteFailed, self.failures.append)
        telemetry.subscribe(Read, self.reads.append)


async def test_each_write_and_read_of_a_store_is_emitted_with_its_answers(tmp_path: Path):
    telemetry = Telemetry()
    emissions = Emissions(telemetry)
    store = measured(SqliteStore(tmp_path), telemetry)
    await store.start()
    try:
        job = new_job(spec("every 1m"))
        commands = [c.CreateJobs(NOW, (job,)), c.CancelJob(NOW, TENANT, "0" * 32)]
        answers = await store.apply(commands)
        (written,) = emissions.writes
        assert (written.commands, written.answers) == (commands, answers)
        assert isinstance(written.answers[1], NotFound)
        assert (await store.get_job(TENANT, job.job_id)) is not None
        assert [(read.name, read.error) for read in emissions.reads] == [("get_job", None)]
        assert written.seconds > 0
        assert emissions.reads[0].seconds > 0
        assert store.writes().failure is None, "a method that is no read is the store's own"
        assert len(emissions.reads) == 1
    finally:
        await store.stop()


class Failing:
    async def apply(self, commands: object) -> list[object]:
        raise Overloaded("full")

    async def get_load(self) -> object:
        raise Overloaded("busy")


async def test_a_write_or_read_that_fails_is_emitted_and_raised():
    telemetry = Telemetry()
    emissions = Emissions(telemetry)
    store: Store = measured(Failing(), telemetry)  # type: ignore[arg-type]  # the two methods that are called
    with pytest.raises(Overloaded):
        await store.apply([c.TouchKeys(NOW, ())])
    with pytest.raises(Overloaded):
        await store.get_load()
    (failure,), (read,) = emissions.failures, emissions.reads
    assert failure.commands == [c.TouchKeys(NOW, ())]
    assert isinstance(failure.error, Overloaded)
    assert isinstance(read.error, Overloaded)
