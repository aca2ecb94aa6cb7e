"""Any sequence of the store's commands keeps the invariants, compared with a model of a few lines.

The model has the state, attempt and token of each execution, and whether it is a dead letter. It predicts which
commands the store refuses; after each step the store is read and compared.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duetime.domain import commands as c
from duetime.domain.errors import Conflict, StaleWrite
from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude, expire
from duetime.domain.instants import SECOND
from duetime.domain.job import JobStatus, Overlap, RetryPolicy
from duetime.domain.plan import skipped_while_paused
from duetime.domain.retry import LOST_ATTEMPTS, max_attempts
from duetime.domain.schedule import timetable
from duetime.domain.states import OPEN, TERMINAL, ErrorType, State, Trigger
from duetime.ports.store import ExecutionQuery, ExecutionRecord, JobRecord
from duetime.store.sqlite import SqliteStore
from property.examples import examples
from samples import NOW, TENANT, decide, new_id, new_job, one, spec
from snapshot import recount, snapshot, totals

OUTCOMES = [
    Outcome(http_status=200),
    Outcome(ErrorType.HTTP_ERROR, "500", 500),
    Outcome(ErrorType.HTTP_ERROR, "404", 404),
    Outcome(ErrorType.TIMEOUT, "too slow"),
    Outcome(ErrorType.CANCELLED, "cancelled on request"),
]
POLICY = RetryPolicy(delays=(1, 2))
BOUND = max(LOST_ATTEMPTS, max_attempts(spec(retry_policy=POLICY)))
ANY = st.integers(0, 1000)
PLANNED = (Trigger.SCHEDULE, Trigger.CATCH_UP)
IN_MEMORY = Path("/dev/shm")  # thousands of commits: the disk is not tested here


@dataclass
class Known:
    """The model's state of an execution."""

    state: State
    attempt: int
    token: int
    dead: bool = False
    ended_as: ExecutionRecord | None = None  # as first seen in a terminal state; it must not change again


@dataclass
class Model:
    executions: dict[str, Known] = field(default_factory=dict)
    claims: list[tuple[int, Claim]] = field(default_factory=list)  # every claim, with its node; most are stale


class ExecutionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="duetime-machine-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
        self.store = SqliteStore(self.folder)
        self.loop.run_until_complete(self.store.start())
        self.now = NOW
        self.nodes: list[int] = []
        self.jobs: list[str] = []
        self.cancelled: set[str] = set()
        self.model = Model()

    def teardown(self) -> None:
        self.loop.run_until_complete(self.store.stop())
        self.loop.close()
        shutil.rmtree(self.folder)

    def ask(self, read: Any) -> Any:
        return self.loop.run_until_complete(read)

    def apply(self, command: c.Command) -> Any:
        return self.ask(one(self.store, command))

    @property
    def node(self) -> int:
        return self.nodes[-1]

    def job(self, number: int) -> JobRecord:
        found = self.ask(self.store.get_job(TENANT, self.jobs[number % len(self.jobs)]))
        assert found is not None
        return found

    @initialize()
    def begin(self) -> None:
        self.nodes.append(self.apply(c.StartNode(self.now, "node-1")))
        for overlap in Overlap:
            job = new_job(spec("every 1s", overlap=overlap, retry_policy=POLICY))
            self.jobs.append(job.job_id)
            assert self.apply(c.CreateJobs(NOW, (job,))) is None

    # Time and planning

    @rule(seconds=st.sampled_from([1, 2, 3, 30]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @rule(claim=st.booleans(), most=st.integers(1, 5))
    def fire(self, claim: bool, most: int) -> None:
        timers = self.ask(self.store.list_due_timers(self.now, most))
        page = decide(timers, self.now)
        command = c.Fire(self.node, self.now, claim, tuple(page.moves), tuple(page.executions), tuple(page.skips))
        fired = self.apply(command)
        assert fired.stale_jobs == frozenset()
        for made in page.claims:
            if claim and made.execution_id not in fired.not_claimed:
                self.model.claims.append((self.node, made))
        if page.moves:
            before = self.ask(snapshot(self.store))
            again = self.apply(command)
            assert again.stale_jobs == {move.job_id for move in page.moves}
            assert self.ask(snapshot(self.store)) == before

    @rule(number=ANY)
    def plan_again_as_after_a_clock_that_went_back(self, number: int) -> None:
        job = self.job(number)
        if job.status is JobStatus.PENDING and job.due_at is not None:
            earlier = max(job.due_at - 3 * SECOND, NOW + SECOND)
            change = c.ChangeJob(self.now, TENANT, job.job_id, job.version, None, job.spec.name, job.spec.type, True,
                                 earlier, job.spec)  # fmt: skip
            assert self.apply(change) == job.version + 1

    @rule(number=ANY)
    def run_once_now(self, number: int) -> None:
        execution_id = new_id(self.now)
        assert (
            self.apply(c.AddExecution(self.now, TENANT, self.job(number).job_id, execution_id, Trigger.MANUAL))
            == execution_id
        )

    # Execution

    @rule(limit=st.integers(1, 4))
    def claim_what_waits(self, limit: int) -> None:
        self.claim(limit)

    def claim(self, limit: int) -> None:
        claimed = self.apply(c.ClaimExecutions(self.node, self.now, limit, (TENANT,)))
        assert len(claimed) <= limit
        for claim in claimed:
            known = self.model.executions[claim.execution_id]
            assert known.state in (State.QUEUED, State.RETRYING)
            assert (claim.attempt, claim.token) == (known.attempt + 1, known.token + 1)
            self.model.claims.append((self.node, claim))

    def is_held(self, claim: Claim) -> bool:
        known = self.model.executions.get(claim.execution_id)
        return known is not None and known == Known(State.RUNNING, claim.attempt, claim.token)

    @precondition(lambda self: self.model.claims)
    @rule(number=ANY, outcome=st.sampled_from(OUTCOMES), jitter=st.sampled_from([0.0, 0.9]))
    def finish_some_claim_be_it_stale_or_not(self, number: int, outcome: Outcome, jitter: float) -> None:
        node, claim = self.model.claims[number % len(self.model.claims)]
        self.finish(node, claim, conclude(claim, outcome, self.now, self.now, jitter))

    @precondition(lambda self: self.model.claims)
    @rule(number=ANY, outcome=st.sampled_from(OUTCOMES))
    def finish_the_latest_claim(self, number: int, outcome: Outcome) -> None:
        node, claim = self.model.claims[-1 - number % min(3, len(self.model.claims))]
        self.finish(node, claim, conclude(claim, outcome, self.now, self.now, 0.5))

    @rule(number=ANY, outcome=st.sampled_from(OUTCOMES))
    def finish_a_claim_that_another_has_followed(self, number: int, outcome: Outcome) -> None:
        followed = [
            (node, claim)
            for node, claim in self.model.claims
            if not self.is_held(claim) and self.model.executions[claim.execution_id].state is State.RUNNING
        ]
        if followed:
            node, claim = followed[number % len(followed)]
            self.finish(node, claim, conclude(claim, outcome, self.now, self.now, 0.5))

    @rule(number=ANY)
    def release_what_is_held_and_claim_it_anew(self, number: int) -> None:
        held = [(node, claim) for node, claim in self.model.claims if self.is_held(claim)]
        if held:
            node, claim = held[number % len(held)]
            assert self.apply(c.Release(node, self.now, (claim,))) is None
            self.the_store_keeps_its_promises()
            self.claim(100)

    def finish(self, node: int, claim: Claim, end: AttemptEnd) -> None:
        is_right = self.is_held(claim)
        before = None if is_right else self.ask(snapshot(self.store))
        assert self.apply(c.Finish(node, self.now, (end,))) == ([] if is_right else [claim.execution_id])
        if before is not None:
            assert self.ask(snapshot(self.store)) == before

    @precondition(lambda self: self.model.claims)
    @rule(number=ANY)
    def release_some_claim_be_it_stale_or_not(self, number: int) -> None:
        node, claim = self.model.claims[number % len(self.model.claims)]
        before = None if self.is_held(claim) else self.ask(snapshot(self.store))
        assert self.apply(c.Release(node, self.now, (claim,))) is None
        if before is not None:
            assert self.ask(snapshot(self.store)) == before

    @rule()
    def a_new_node_takes_over(self) -> None:
        fenced = self.node
        self.nodes.append(self.apply(c.StartNode(self.now, "node-1")))
        assert isinstance(self.apply(c.ClaimExecutions(fenced, self.now, 1, (TENANT,))), StaleWrite)
        assert isinstance(self.apply(c.Fire(fenced, self.now, True, (), ())), StaleWrite)
        while expired := self.ask(self.store.list_expired_claims(self.node, 2)):
            refused = self.apply(c.Finish(self.node, self.now, tuple(expire(claim, self.now) for claim in expired)))
            assert refused == []

    # Users

    @rule(number=ANY)
    def cancel_some_execution(self, number: int) -> None:
        if self.model.executions:
            ids = sorted(self.model.executions)
            execution_id = ids[number % len(ids)]
            state = self.model.executions[execution_id].state
            answer = self.apply(c.CancelExecution(self.now, TENANT, execution_id))
            if state in TERMINAL:
                assert isinstance(answer, Conflict)
            else:
                assert answer is (State.RUNNING if state is State.RUNNING else State.CANCELLED)

    @rule(number=ANY)
    def pause_or_resume(self, number: int) -> None:
        job = self.job(number)
        if job.status is JobStatus.PENDING:
            assert self.apply(c.PauseJob(self.now, TENANT, job.job_id, "ann", "")) is JobStatus.PAUSED
        elif job.status is JobStatus.PAUSED:
            table = timetable(job.spec, job.job_id, job.created_at)
            first_at = job.resume_at or self.now
            skipped = skipped_while_paused(table, job.job_id, TENANT, first_at, self.now)
            due_at = table.next_after(max(self.now, first_at - 1))
            resume = c.ResumeJob(self.now, TENANT, job.job_id, job.version, due_at, skipped)
            assert self.apply(resume) is JobStatus.PENDING

    @rule(number=ANY)
    def cancel_what_waits_of_a_job_and_begin_anew(self, number: int) -> None:
        if number % 5:
            return  # rarely: a cancelled job has few further transitions
        job_id = self.job(number).job_id
        running = self.apply(c.CancelJob(self.now, TENANT, job_id))
        assert sorted(running) == sorted(
            execution_id
            for execution_id, known in self.model.executions.items()
            if known.state is State.RUNNING and self.record(execution_id).job_id == job_id
        )
        self.cancelled.add(job_id)
        refused = self.apply(c.AddExecution(self.now, TENANT, job_id, new_id(self.now), Trigger.MANUAL))
        assert isinstance(refused, Conflict)
        job = new_job(spec("every 1s", retry_policy=POLICY), now=self.now)
        self.jobs[self.jobs.index(job_id)] = job.job_id
        assert self.apply(c.CreateJobs(self.now, (job,))) is None

    @rule()
    def redrive_all_dead_letters(self) -> None:
        letters = [execution_id for execution_id, known in self.model.executions.items() if known.dead]
        pairs = tuple((execution_id, new_id(self.now)) for execution_id in letters)
        dead = [letter for letter in letters if self.record(letter).job_id not in self.cancelled]
        assert self.apply(c.Redrive(self.now, TENANT, pairs)) == [pair for pair in pairs if pair[0] in dead]
        assert self.apply(c.Redrive(self.now, TENANT, tuple((old, new_id(self.now)) for old in dead))) == []
        for execution_id in dead:
            known = self.model.executions[execution_id]
            known.dead = False
            if known.ended_as is not None:
                known.ended_as = msgspec.structs.replace(known.ended_as, dead=False)

    def record(self, execution_id: str) -> ExecutionRecord:
        found = self.ask(self.store.get_execution(TENANT, execution_id))
        assert found is not None
        return found

    # Invariants after each step

    @invariant()
    def the_store_keeps_its_promises(self) -> None:
        records = self.ask(self.store.list_executions(ExecutionQuery(TENANT, limit=100_000)))
        planned = [(r.job_id, r.scheduled_at) for r in records if r.trigger in PLANNED]
        assert len(planned) == len(set(planned)), "two executions of one instant"
        assert {r.execution_id for r in records} >= set(self.model.executions), "an execution is gone"
        for record in records:
            self.compare(record)
        self.nobody_waits_for_nobody(records)
        self.what_was_fired_is_there(records)
        assert self.ask(totals(self.store)) == self.ask(recount(self.store)), "counters differ from a recount"

    def compare(self, record: ExecutionRecord) -> None:
        known = self.model.executions.setdefault(record.execution_id, Known(record.state, record.attempt, record.token))
        assert record.attempt <= BOUND, "too many attempts"
        assert record.token >= known.token, "a token went back"
        assert record.attempt <= record.token
        if known.ended_as is not None:
            assert record == known.ended_as, "what is terminal has changed"
        known.state, known.attempt, known.token, known.dead = record.state, record.attempt, record.token, record.dead
        if record.state in TERMINAL:
            known.ended_as = record

    def what_was_fired_is_there(self, records: list[ExecutionRecord]) -> None:
        """A job's count towards `max_runs` is the number of runs of its timetable: none twice, and no skipped ones."""
        ran = [r.job_id for r in records if r.trigger in PLANNED and r.state is not State.SKIPPED]
        for number, job_id in enumerate(self.jobs):
            assert self.job(number).fired == ran.count(job_id), "a run was counted twice, or one that was none"

    def nobody_waits_for_nobody(self, records: list[ExecutionRecord]) -> None:
        """A held execution has an open one of its job before it; otherwise it would wait for ever."""
        at_work = {record.job_id for record in records if record.state in OPEN and not record.held}
        for record in records:
            assert not record.held or record.job_id in at_work, "an execution is held by nobody"


ExecutionMachine.TestCase.settings = settings(examples(12, 40), stateful_step_count=40)
TestExecutionMachine = ExecutionMachine.TestCase
