"""The circuit breaker in the engine: a target that keeps failing is not called, until one probe succeeds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.breaker import CircuitState, Rules, circuit_of
from duetime.domain.errors import Overloaded
from duetime.domain.execution import Outcome
from duetime.domain.instants import DAY, MINUTE, SECOND
from duetime.domain.job import RetryPolicy
from duetime.domain.states import ErrorType, State
from duetime.engine import breaker as engine_breaker
from duetime.engine.engine import Engine
from duetime.ports.store import ExecutionRecord, Store
from duetime.registry.memory import MemoryRegistry
from duetime.testing import HandClock, ScriptedExecutor
from engine.flaky import FlakyStore
from engine.stage import Stage, until
from samples import NOW, TENANT, URL, add_execution, execution, spec

FAILURE = Outcome(ErrorType.CONNECTION_ERROR, "nobody listens")
ELSEWHERE = "https://elsewhere.example/"
ONCE = RetryPolicy(max_retries=0)
NUMBER = circuit_of(TENANT, URL)


class Watched(FlakyStore):
    """Keeps the commands that were written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written: list[c.Command] = []

    async def apply(self, commands: Any) -> Any:
        self.written.extend(commands)
        return await super().apply(commands)


async def run_jobs(stage: Stage, count: int = 1, *, url: str = URL, **fields: Any) -> list[ExecutionRecord]:
    """Runs jobs that are due now, one after the other. Returns their executions."""
    found = []
    for _ in range(count):
        job_id = await stage.add_job(spec("immediate", url=url, **{"retry_policy": ONCE} | fields))
        await stage.tick()
        found += await stage.executions(job_id)
    return found


def states(found: list[ExecutionRecord]) -> list[str]:
    return [str(one.state) for one in found]


async def test_status_400_opens_no_circuit_and_closes_an_open_one(stage: Stage, executor: ScriptedExecutor):
    """A target that refuses the requests of one job works for the other jobs of its URL."""
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "hook.example answered 400.", 400))
    await stage.join()
    assert states(await run_jobs(stage, 6)) == [State.FAILED] * 6
    assert (await stage.store.list_changed_circuits(None, 10)).circuits == [], "nothing is kept of it"
    executor.answer(FAILURE)
    assert states(await run_jobs(stage, 6)) == [State.FAILED] * 5 + [State.SKIPPED]
    executor.answer(Outcome(ErrorType.HTTP_ERROR, "hook.example answered 400.", 400))
    stage.clock.advance(2 * MINUTE)
    assert states(await run_jobs(stage, 2)) == [State.FAILED] * 2
    assert len(executor.attempts) == 13, "the probe had its answer, and the next run was sent"


async def test_the_fifth_failure_opens_the_circuit_and_the_next_executions_are_skipped(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer(FAILURE)
    await stage.join()
    with capture_logs() as logs:
        assert states(await run_jobs(stage, 5)) == [State.FAILED] * 5
    assert [log["event"] for log in logs] == ["a circuit is open: its executions are skipped"]
    stage.clock.advance(1)
    skipped = await run_jobs(stage, 3)
    assert len(executor.attempts) == 5
    for one in skipped:
        assert (one.state, one.reason, one.started_at) == (State.SKIPPED, "circuit_open", None)
        assert one.ended_at == stage.clock.now(), "at once"
        assert one.error_message == (
            f"nothing was sent: the circuit of {URL} is open since 2026-01-01T00:00:00.000Z, after 5 failed "
            "executions in a row; it is tried again from 2026-01-01T00:02:00.000Z on"
        )
    job = await stage.job(skipped[0].job_id)
    assert (job.runs, job.failures) == (0, 0)


async def test_four_failures_and_a_success_open_no_circuit(stage: Stage, executor: ScriptedExecutor):
    executor.answer([*[FAILURE] * 4, Outcome(http_status=200), *[FAILURE] * 4, Outcome(http_status=200)])
    await stage.join()
    assert states(await run_jobs(stage, 10)).count(State.SKIPPED) == 0
    assert await stage.store.list_circuits(None, 10) == []


async def test_attempts_that_are_retried_do_not_count(stage: Stage, executor: ScriptedExecutor):
    executor.answer([*[FAILURE] * 8, Outcome(http_status=200)])
    await stage.join()
    await run_jobs(stage, retry_policy=RetryPolicy(delays=(1,) * 8))
    await stage.pass_time(10)
    assert len(executor.attempts) == 9


async def test_other_targets_and_other_tenants_are_still_called(stage: Stage, executor: ScriptedExecutor):
    executor.answer(
        lambda attempt: FAILURE if attempt.payload.url == URL and attempt.claim.tenant == TENANT else Outcome()
    )
    await stage.join()
    await run_jobs(stage, 6)
    assert states(await run_jobs(stage, url=ELSEWHERE)) == [State.COMPLETED]
    assert states(await run_jobs(stage, url=f"{URL}/else")) == [State.COMPLETED]
    others = await stage.add_job(spec("immediate"), tenant="other")
    await stage.tick()
    (found,) = executor.attempts[-1:]
    assert (found.claim.job_id, found.claim.tenant) == (others, "other")


async def test_urls_that_differ_in_their_query_share_a_circuit(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join()
    for n in range(5):
        await run_jobs(stage, url=f"{URL}?n={n}")
    assert states(await run_jobs(stage, url=f"{URL}?n=6")) == [State.SKIPPED]


async def test_after_the_cooldown_one_probe_is_sent_and_its_success_closes_the_circuit(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer(FAILURE)
    await stage.join()
    await run_jobs(stage, 5)
    stage.clock.advance(119)
    assert states(await run_jobs(stage)) == [State.SKIPPED]
    stage.clock.advance(1)
    executor.hold()
    executor.answer(Outcome(http_status=200))
    (probe,) = await run_jobs(stage)
    assert probe.state is State.RUNNING
    assert states(await run_jobs(stage, 3)) == [State.SKIPPED] * 3
    circuit = await stage.store.get_circuit(NUMBER)
    assert circuit is not None
    assert (circuit.state, circuit.probe) == (CircuitState.HALF_OPEN, probe.execution_id)
    executor.let_go()
    await stage.settle()
    assert await stage.store.get_circuit(NUMBER) is None
    assert states(await run_jobs(stage, 2)) == [State.COMPLETED] * 2


async def test_only_one_of_many_due_executions_is_sent_as_the_probe(
    stage: Stage, executor: ScriptedExecutor, store: Store
):
    executor.answer(FAILURE)
    watched = Watched(store)
    await stage.join(store=watched)
    await run_jobs(stage, 5)
    begun = len(executor.attempts)
    stage.clock.advance(120)
    jobs = [await stage.add_job(spec("immediate", retry_policy=ONCE)) for _ in range(50)]
    await stage.tick()
    ended = [one for job_id in jobs for one in await stage.executions(job_id)]
    assert len(executor.attempts) == begun + 1
    assert sum(isinstance(command, c.TakeProbe) for command in watched.written) == 1
    assert sorted(states(ended)) == [State.FAILED] + [State.SKIPPED] * 49


async def test_a_failed_probe_opens_the_circuit_for_another_cooldown(stage: Stage, executor: ScriptedExecutor):
    """The retries of the probe are sent before that."""
    executor.answer(FAILURE)
    await stage.join()
    await run_jobs(stage, 5)
    stage.clock.advance(120)
    await run_jobs(stage, retry_policy=RetryPolicy(delays=(10, 10)))
    await stage.pass_time(20)
    assert [attempt.claim.attempt for attempt in executor.attempts[5:]] == [1, 2, 3]
    circuit = await stage.store.get_circuit(NUMBER)
    assert circuit is not None
    assert (circuit.opened_at, circuit.next_probe_at) == (stage.clock.now(), stage.clock.now() + 2 * MINUTE)
    await stage.pass_time(119, step=119)
    assert states(await run_jobs(stage)) == [State.SKIPPED]
    await stage.pass_time(1)
    assert states(await run_jobs(stage)) == [State.FAILED]
    assert len(executor.attempts) == 9


async def test_a_retry_fails_while_the_circuit_is_open(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join()
    (waiting,) = await run_jobs(stage, retry_policy=RetryPolicy(delays=(5, 5)))
    assert waiting.state is State.RETRYING
    await run_jobs(stage, 5)
    await stage.pass_time(5)
    found = await execution(stage.store, waiting.execution_id)
    assert (found.state, found.dead, found.error_type) == (State.FAILED, True, ErrorType.CIRCUIT_OPEN)
    assert len(executor.attempts) == 6
    circuit = await stage.store.get_circuit(NUMBER)
    assert circuit is not None
    assert circuit.failures == 5, "skipped executions do not count as failures"


async def test_a_manual_execution_is_skipped_too(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join()
    (last,) = (await run_jobs(stage, 5))[-1:]
    made = await add_execution(stage.store, last.job_id, NOW)
    stage.engine.term.claimer.hint(NOW)
    await stage.tick()
    assert (await execution(stage.store, made)).reason == "circuit_open"


async def test_an_execution_can_be_cancelled_while_it_requests_the_probe(
    stage: Stage, executor: ScriptedExecutor, store: Store
):
    slow = FlakyStore(store)
    executor.answer(FAILURE)
    await stage.join(store=slow)
    await run_jobs(stage, 5)
    stage.clock.advance(120)
    gate = slow.hold(c.TakeProbe)
    job_id = await stage.add_job(spec("immediate"))
    await stage.engine.term.timer.run_once()
    await until(lambda: len(slow.held) == 1)
    (found,) = await stage.executions(job_id)
    await stage.cancel_execution(found.execution_id)
    gate.set()
    await stage.settle()
    assert await stage.states(job_id) == [State.CANCELLED]
    assert len(executor.attempts) == 5


async def test_a_threshold_of_zero_turns_the_breaker_off(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join(breaker=Rules(threshold=0, cooldown=MINUTE))
    assert states(await run_jobs(stage, 8)) == [State.FAILED] * 8
    assert await stage.store.list_circuits(None, 10) == []
    assert stage.engine.term.breaker not in stage.engine.term.services


async def test_a_circuit_stays_open_after_a_restart(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join()
    await run_jobs(stage, 5)
    await stage.engine.stop()
    await stage.join()
    assert states(await run_jobs(stage)) == [State.SKIPPED]


async def test_healthy_targets_cost_no_write(stage: Stage, executor: ScriptedExecutor, store: Store):
    watched = Watched(store)
    await stage.join(store=watched)
    executor.answer(lambda attempt: FAILURE if attempt.payload.url == ELSEWHERE else Outcome())
    await run_jobs(stage, 5, url=ELSEWHERE)
    assert sum(isinstance(command, c.CountEnds) for command in watched.written) == 5
    await run_jobs(stage, 5)
    assert sum(isinstance(command, (c.CountEnds, c.TakeProbe)) for command in watched.written) == 5


async def test_opening_and_closing_a_circuit_publish_events(stage: Stage, executor: ScriptedExecutor):
    executor.answer([*[FAILURE] * 6, Outcome(http_status=200)])
    await stage.join()
    await run_jobs(stage, 5)
    for seconds in (120, 120):
        stage.clock.advance(seconds)
        await run_jobs(stage)
    published = [(event.kind, event.at, event.tenant, event.data["url"]) for event in stage.events.list_gathered()
            if event.kind.startswith("circuit.")]  # fmt: skip
    assert published == [
        ("circuit.opened", NOW, TENANT, URL),
        ("circuit.opened", NOW + 2 * MINUTE, TENANT, URL),
        ("circuit.closed", NOW + 4 * MINUTE, TENANT, URL),
    ]


async def test_a_target_is_called_after_its_circuit_was_closed_by_hand(stage: Stage, executor: ScriptedExecutor):
    executor.answer(FAILURE)
    await stage.join()
    await run_jobs(stage, 5)
    await stage.apply(c.CloseCircuit(NOW, TENANT, NUMBER))
    await stage.engine.term.breaker.run_once()
    assert states(await run_jobs(stage)) == [State.FAILED]
    assert [event.kind for event in stage.events.list_gathered()].count("circuit.closed") == 1


async def test_a_circuit_that_another_node_has_removed_is_closed_after_the_cooldown(
    stage: Stage, executor: ScriptedExecutor
):
    executor.answer(FAILURE)
    await stage.join()
    await run_jobs(stage, 5)
    await stage.apply(c.Prune(0, 0, 0, 10, NOW + 1))
    stage.clock.advance(120)
    executor.answer(Outcome(http_status=200))
    assert states(await run_jobs(stage, 3)) == [State.COMPLETED] * 3


async def test_no_probe_is_sent_while_the_store_fails(stage: Stage, executor: ScriptedExecutor, store: Store):
    class Deaf(FlakyStore):
        async def apply(self, commands: Any) -> Any:
            if isinstance(commands[0], c.TakeProbe):
                raise Overloaded("the database did not answer in time")
            return await super().apply(commands)

    executor.answer(FAILURE)
    await stage.join(store=Deaf(store))
    await run_jobs(stage, 5)
    stage.clock.advance(120)
    with capture_logs() as logs:
        assert states(await run_jobs(stage)) == [State.SKIPPED]
    assert [log["event"] for log in logs] == ["no probe can be requested now"]
    assert len(executor.attempts) == 5


async def test_the_number_of_circuits_in_memory_is_bounded(
    stage: Stage, executor: ScriptedExecutor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine_breaker, "MOST_KNOWN", 3)
    executor.answer(FAILURE)
    engine = await stage.join()
    for n in range(5):
        await run_jobs(stage, url=f"https://hook.example/{n}")
    assert len(await stage.store.list_circuits(None, 10)) == 5
    assert len(engine.term.breaker._circuits) == 3
    await engine.term.breaker.run_once()
    assert len(engine.term.breaker._circuits) == 3


# Several nodes


@pytest.fixture
async def nodes(store: Store, clock: HandClock) -> tuple[Stage, Stage]:
    registry = MemoryRegistry(clock, 5)
    stages = Stage(store, clock, ScriptedExecutor()), Stage(store, clock, ScriptedExecutor())
    for name, stage in zip("ab", stages, strict=True):
        stage.registry = registry
        await stage.join(node_name=name, breaker=Rules(5, 4 * SECOND))
        stage.executor.answer(FAILURE)
    for _ in range(3):
        for stage in stages:
            await stage.engine.term.membership.run_once()
    return stages


async def run_on(stage: Stage, count: int = 1) -> list[ExecutionRecord]:
    """Runs manual executions that this node claims."""
    found = []
    for _ in range(count):
        job_id = await stage.add_job(spec("every 1h", retry_policy=ONCE))
        made = await add_execution(stage.store, job_id, stage.clock.now())
        stage.engine.term.claimer.hint(stage.clock.now())
        await stage.engine.term.claimer.run_once()
        await stage.settle()
        found.append(await execution(stage.store, made))
    return found


async def test_failures_of_two_nodes_are_added_up_and_both_read_the_open_circuit(nodes: tuple[Stage, Stage]):
    one, other = nodes
    assert states(await run_on(one, 3) + await run_on(other, 2)) == [State.FAILED] * 5
    assert await other.engine.term.breaker.run_once() == other.clock.now() + SECOND // 2
    await one.engine.term.breaker.run_once()
    assert states(await run_on(one) + await run_on(other)) == [State.SKIPPED] * 2
    assert [sum(event.kind == "circuit.opened" for event in stage.events.list_gathered()) for stage in nodes] == [1, 1]


async def test_two_nodes_send_one_probe(nodes: tuple[Stage, Stage]):
    one, other = nodes
    await run_on(one, 5)
    await other.engine.term.breaker.run_once()
    begun = len(one.executor.attempts) + len(other.executor.attempts)
    for stage in (*nodes, *nodes):
        one.clock.advance(1)
        await stage.engine.term.membership.run_once()
    ran = [claim for claims in await asyncio.gather(run_on(one, 3), run_on(other, 3)) for claim in claims]
    for stage in nodes:  # each node may have claimed executions of the other
        await stage.settle()
    sent = [await execution(one.store, claim.execution_id) for claim in ran]
    assert sorted(states(sent)) == [State.FAILED] + [State.SKIPPED] * 5
    assert len(one.executor.attempts) + len(other.executor.attempts) == begun + 1


async def test_a_read_during_a_write_does_not_undo_the_write(stage: Stage, executor: ScriptedExecutor):
    """A list read before the commit that arrives after it would let attempts through."""
    executor.answer(FAILURE)
    engine: Engine = await stage.join()
    await run_jobs(stage, 4)
    stale = await stage.store.list_changed_circuits(None, 10)
    go = asyncio.Event()

    class Slow(FlakyStore):
        async def list_changed_circuits(self, since: int | None, limit: int) -> Any:
            if go.is_set():
                return await self._store.list_changed_circuits(since, limit)
            await go.wait()
            return stale

    engine.term.breaker._store = Slow(stage.store)
    reading = asyncio.create_task(engine.term.breaker.run_once())
    await run_jobs(stage)
    go.set()
    assert await reading == stage.clock.now() + SECOND // 2, "it reads again soon"
    assert states(await run_jobs(stage)) == [State.SKIPPED]
    assert await engine.term.breaker.run_once() == stage.clock.now() + DAY, "after a read without concurrent changes"
    assert states(await run_jobs(stage)) == [State.SKIPPED]
