"""The worker gateway hands executions of Python functions to workers, and records what they report.

It keeps no state that matters: a worker's claims stand in the ledger under the worker's own id. So a worker may poll at
one node, report to another, and outlive both. The gateway remembers claims only to save reads. Reports are fenced like
all results: one counts if its execution still runs with that attempt and token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import structlog

from duetime.domain.commands import BeatWorkers, Command, EndNodes, Release, SaveProgress
from duetime.domain.defaults import timeout_of
from duetime.domain.endpoints import endpoint_of_function
from duetime.domain.errors import DuetimeError, NotFound, StaleWrite
from duetime.domain.execution import Attempted, Outcome, Run, conclude, lapse
from duetime.domain.job import Delivery, PythonJob
from duetime.domain.payloads import PythonCall
from duetime.domain.secrets import decrypt_payload, has_secrets
from duetime.domain.states import ErrorType
from duetime.domain.work import (
    LONGEST_PROGRESS,
    Assignment,
    Ended,
    Joined,
    Joining,
    Note,
    Polled,
    Polling,
    Reported,
    Reporting,
    WorkClaim,
    error_type_of,
)
from duetime.domain.worker_limits import DEFAULT_LIMITS, WorkerLimits
from duetime.engine.joins import Joins
from duetime.engine.pages import Pages
from duetime.engine.polls import Polls
from duetime.engine.recorder import Recorder, Result
from duetime.engine.redaction import KeptRedactors, Redaction
from duetime.engine.turn_gate import TurnGate
from duetime.engine.worker_records import WorkerRecords
from duetime.ports.clock import Clock
from duetime.ports.executor import always
from duetime.ports.logs import LogStore, LogWriter
from duetime.ports.store import Store, WorkerRecord
from duetime.ports.vault import DecryptionFailed, Vault

log = structlog.get_logger()

MOST_REMEMBERED = 50_000  # runs that were handed out here; one with large arguments that hold secrets counts as several
READ_PAGE = 64  # runs, each with its arguments
MOST_BYTES = 4 * 1024 * 1024  # of arguments in one answer
SILENT_SECONDS = 120.0  # beyond its lease: a worker that was not heard for so long is read anew if it comes back
READS_AT_ONCE = 1  # of polls and reports: the node reads through the same few connections
RELEASE_PAGE = 2048
PROGRESS_PAGE = 200  # each is a command of its own
LOOK_SECONDS = 1.0  # how often it is compared what a worker has and what the ledger says that it has


_encode = msgspec.json.Encoder().encode


class _Handed(msgspec.Struct, gc=False):
    """A run that a worker has."""

    run: Run
    worker_id: int
    log: LogWriter | None = None


class _Known(msgspec.Struct):
    """A worker, as far as this node needs to remember."""

    record: WorkerRecord
    endpoints: tuple[int, ...]
    beaten_at: float
    looked_at: float
    missing: dict[WorkClaim, float]  # claims that the ledger says it has and it does not, and since when


class WorkerGateway:
    """`jitter` as in `conclude`. `taken_over` is called when a worker has ended and its executions must be returned."""

    def __init__(
        self, store: Store, clock: Clock, recorder: Recorder, vault: Vault, logs: LogStore | None, lease_seconds: float,
        jitter: Callable[[], float], taken_over: Callable[[], None], redaction: Redaction | None = None,
        limits: WorkerLimits = DEFAULT_LIMITS,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._vault = vault
        self._logs = logs
        self._lease = lease_seconds
        self._jitter = jitter
        self._taken_over = taken_over
        self._redactors = KeptRedactors(redaction or Redaction(), self._decrypted)
        self._handed: OrderedDict[str, _Handed] = OrderedDict()
        self._places = 0  # of memory that they take
        self._workers: dict[int, _Known] = {}
        self._reads = TurnGate(READS_AT_ONCE)
        self._joins = Joins(store, clock, limits)
        self._records = WorkerRecords(store, clock, self._reads)
        self.is_clock_right: Callable[[], bool] = always
        self._polls = Polls(store, clock, self._reads, lambda: self.is_clock_right())
        self._releases = Pages(RELEASE_PAGE)
        self._saves = Pages(PROGRESS_PAGE)

    def hint(self) -> None:
        """Something may wait for a worker."""
        self._polls.hint()

    def close(self) -> None:
        """Polls that wait are answered now; whoever asks for more is told to come back, or to ask another node."""
        self._polls.close()

    async def join(self, tenant: str, user_id: str, joining: Joining) -> Joined:
        self._polls.check_open()
        now = self._clock.now()
        worker_id = await self._joins.add(tenant, user_id, joining, now)
        await self._forget_silent()
        self._remember(
            WorkerRecord(worker_id, tenant, user_id, joining.name, joining.functions, joining.slots, now, now, 0)
        )
        log.info("a worker joined", worker=joining.name, functions=len(joining.functions), slots=joining.slots)
        return Joined(worker_id, self._lease)

    async def leave(self, tenant: str, worker_id: int) -> None:
        """What it still runs goes to others at once."""
        known = await self._known(tenant, worker_id)
        await self._apply(EndNodes(self._clock.now(), (worker_id,)))
        await self.forget((worker_id,))
        self._taken_over()
        log.info("a worker left", worker=known.record.name)

    # What it gets

    async def poll(self, tenant: str, polling: Polling) -> Polled:
        with self._polls.place(tenant):
            known = await self._known(tenant, polling.worker_id)
            # Once: while this waits the worker may die, and nobody would notice if the waiting itself were a sign of
            # life.
            await self._beat(known)
            try:
                runs = await self._polls.wait(
                    tenant, known.endpoints, polling.worker_id, polling.free, polling.wait_seconds
                )
            except StaleWrite:
                await self.forget((polling.worker_id,))
                raise _unknown(polling.worker_id) from None
            return Polled(await self._assignments(known, runs)) if runs else Polled()

    async def _assignments(self, known: _Known, runs: Sequence[Run]) -> list[Assignment]:
        again = [run.execution_id for run in runs if run.attempt > 1]
        progress = await self._store.get_progress(again) if again else {}
        assignments: list[Assignment] = []
        broken: list[Result] = []
        size = 0
        for number, run in enumerate(runs):
            size += len(_encode(run.spec.payload))
            if size > MOST_BYTES and number:
                await self._apply(Release(known.record.worker_id, self._clock.now(), tuple(runs[number:])))
                break
            try:
                call = self._decrypted(run)
            except DecryptionFailed as error:
                now = self._clock.now()
                outcome = Outcome(ErrorType.INTERNAL_ERROR, f"{error}. Nothing was called.")
                broken.append((run, conclude(run, outcome, now, now, self._jitter())))
                continue
            self._hand(run, known.record.worker_id)
            saved = progress.get(run.execution_id)
            assignments.append(_assignment(run, call, None if saved is None else msgspec.json.decode(saved)))
        if broken:
            await self._recorder.record(known.record.worker_id, broken)
        return assignments

    def _decrypted(self, run: Run) -> PythonCall:
        assert isinstance(run.spec, PythonJob)
        call = run.spec.payload
        if not has_secrets(call):
            return call
        plain = decrypt_payload(call, lambda encrypted: self._vault.decrypt(run.tenant, run.job_id, encrypted))
        assert isinstance(plain, PythonCall)
        return plain

    def _hand(self, run: Run, worker_id: int) -> _Handed:
        run = run.without_arguments()
        self._drop(run.execution_id)
        handed = self._handed[run.execution_id] = _Handed(run, worker_id)
        self._places += run.places
        while self._places > MOST_REMEMBERED and len(self._handed) > 1:
            self._drop(next(iter(self._handed)))
        return handed

    def _drop(self, execution_id: str) -> _Handed | None:
        if (handed := self._handed.pop(execution_id, None)) is not None:
            self._places -= handed.run.places
        return handed

    # What it brings

    async def report(self, tenant: str, reporting: Reporting) -> Reported:
        known = await self._known(tenant, reporting.worker_id)
        await self._beat(known)
        held = await self._held(known, reporting)
        await self._keep_notes(reporting.notes, held)
        refused = await self._end(known, reporting.ended, held)
        await self._releases.write(reporting.unbegun, lambda page: self._release(known, page))
        return Reported(await self._look(known, reporting), refused)

    async def _held(self, known: _Known, reporting: Reporting) -> dict[WorkClaim, _Handed]:
        """What is reported on, as far as it is the worker's: remembered, or read from the ledger."""
        held: dict[WorkClaim, _Handed] = {}
        unknown: set[WorkClaim] = set()
        for claim in {said.claim for said in (*reporting.ended, *reporting.notes)}:
            handed = self._handed.get(claim.execution_id)
            if handed is not None and handed.worker_id == known.record.worker_id and _claim_of(handed.run) == claim:
                held[claim] = handed
            else:
                unknown.add(claim)
        for run in await self._runs_of(known, unknown):
            held[_claim_of(run)] = self._hand(run, known.record.worker_id)
        return held

    async def _runs_of(self, known: _Known, claims: Collection[WorkClaim]) -> list[Run]:
        """Those of the claims that the worker holds still: an execution may be claimed anew since it said so."""
        wanted = frozenset(claims)
        ids = sorted({claim.execution_id for claim in wanted})
        found: list[Run] = []
        for begin in range(0, len(ids), READ_PAGE):
            page = ids[begin : begin + READ_PAGE]
            async with self._reads.turn(known.record.tenant):
                runs = await self._store.list_runs_of(known.record.worker_id, page, known.record.tenant)
            found += [run.without_arguments() for run in runs if _claim_of(run) in wanted]
        return found

    async def _log_of(self, handed: _Handed) -> LogWriter | None:
        """The log of a run that a worker has, without its secrets; None if this node keeps no logs."""
        if handed.log is None and self._logs is not None:
            run = handed.run
            opened = await self._redactors.redacting(run, self._logs.open(run.execution_id, run.attempt, run.tenant))
            handed.log = handed.log or opened  # another report may have opened it meanwhile
        return handed.log

    async def _keep_notes(self, notes: Sequence[Note], held: dict[WorkClaim, _Handed]) -> None:
        commands: list[Command] = []
        for note in notes:
            handed = held.get(note.claim)
            if handed is None:
                continue
            if note.text and (printed := await self._log_of(handed)) is not None:
                printed.write(note.stream, note.text)
            if note.progress is not msgspec.UNSET:
                value = await self._redactors.redact(handed.run, bytes(note.progress).decode())
                if len(value) <= LONGEST_PROGRESS:
                    run = handed.run
                    kept = None if value == "null" else value
                    claim = (run.execution_id, run.job_id, run.attempt, run.token)
                    commands.append(SaveProgress(run.tenant, *claim, kept))
        await self._saves.write(commands, self._store.apply)

    async def _end(self, known: _Known, ended: Sequence[Ended], held: dict[WorkClaim, _Handed]) -> list[WorkClaim]:
        results: list[Result] = []
        refused: list[WorkClaim] = []
        for end in ended:
            handed = held.get(end.claim)
            if handed is None:
                refused.append(end.claim)
                continue
            results.append((handed.run, await self._concluded(end, handed.run)))
        if results:
            for run, _ in results:
                await _close_log(held[_claim_of(run)])
            late = await self._recorder.record(known.record.worker_id, results)
            refused += [_claim_of(run) for run, _ in results if run.execution_id in late]
            for run, _ in results:
                self._drop(run.execution_id)
                self._redactors.drop(run)
        return refused

    async def _concluded(self, end: Ended, run: Run) -> Attempted:
        """By this node's clock: of the worker's, only how long it took is believed."""
        message, result = end.error_message, end.result
        if message:
            message = await self._redactors.redact(run, message)
        if result:
            result = await self._redactors.redact(run, result)
        outcome = Outcome(error_type_of(end), message, None, result, end.retry_after_seconds)
        now = self._clock.now()
        took = min(max(0, end.ended_at - end.started_at), now)
        return conclude(run, outcome, now - took, now, self._jitter())

    async def _look(self, known: _Known, reporting: Reporting) -> list[WorkClaim]:
        """Now and then: what is it to stop, and does it know of all that it runs? Answers the first."""
        now = self._clock.monotonic()
        if now - known.looked_at < min(LOOK_SECONDS, self._lease / 4):
            return []
        known.looked_at = now
        async with self._reads.turn(known.record.tenant):
            listed = await self._store.list_claims(known.record.worker_id, known.record.tenant, MOST_REMEMBERED)
        claims = {WorkClaim(id, attempt, token): is_to_stop for id, attempt, token, is_to_stop in listed}
        has = {*reporting.running, *(end.claim for end in reporting.ended)}
        known.missing = {claim: known.missing.get(claim, now) for claim in claims if claim not in has}
        lost = [claim for claim, since in known.missing.items() if now - since > self._lease]
        await self._releases.write(lost, lambda page: self._give_back(known, page))
        return [claim for claim, is_to_stop in claims.items() if is_to_stop]

    async def _give_back(self, known: _Known, lost: Sequence[WorkClaim]) -> None:
        """What the ledger has it run, and it has not heard of for a whole lease, it never got."""
        runs = await self._runs_of(known, lost)
        if runs:
            log.warning("runs never reached their worker: given back", worker=known.record.name, count=len(runs))
            # It may be on its way still: what is to run at most once is not given to another for that.
            now = self._clock.now()
            once = [run for run in runs if run.spec.delivery is Delivery.AT_MOST_ONCE]
            if once:
                await self._recorder.record(known.record.worker_id, [(run, lapse(run, now)) for run in once])
            await self._release_runs(known, [run for run in runs if run not in once])

    async def _release(self, known: _Known, claims: Sequence[WorkClaim]) -> None:
        await self._release_runs(known, await self._runs_of(known, claims))

    async def _release_runs(self, known: _Known, runs: Sequence[Run]) -> None:
        if runs:
            await self._apply(Release(known.record.worker_id, self._clock.now(), tuple(runs)))
            self._recorder.waiting_hint(0)
            self.hint()

    # Who it is

    async def _known(self, tenant: str, worker_id: int) -> _Known:
        """Raises NotFound: its lease is lost, or it never joined; or it is another tenant's."""
        known = self._workers.get(worker_id)
        if known is not None and known.record.tenant == tenant:
            return known
        record = None if known is not None else await self._records.get(tenant, worker_id)
        if record is None:
            raise _unknown(worker_id)
        await self._forget_silent()
        return self._remember(record)

    def _remember(self, record: WorkerRecord) -> _Known:
        endpoints = tuple(endpoint_of_function(record.tenant, name) for name in record.functions)
        now = self._clock.monotonic()
        known = self._workers[record.worker_id] = _Known(record, endpoints, now - self._lease, now, {})
        return known

    async def forget(self, worker_ids: Collection[int]) -> None:
        """These have ended."""
        for worker_id in worker_ids:
            self._workers.pop(worker_id, None)
        for execution_id in [id for id, handed in self._handed.items() if handed.worker_id in worker_ids]:
            await _close_log(self._drop(execution_id))

    async def _forget_silent(self) -> None:
        """Another node may have ended them, or have them now: nobody tells this one."""
        before = self._clock.monotonic() - self._lease - SILENT_SECONDS
        if silent := [id for id, known in self._workers.items() if known.beaten_at < before]:
            await self.forget(silent)

    async def _beat(self, known: _Known) -> None:
        """A sign of life; several in a quarter of the lease are one."""
        now = self._clock.monotonic()
        if now - known.beaten_at < self._lease / 4:
            return
        known.beaten_at = now
        if await self._apply(BeatWorkers(self._clock.now(), (known.record.worker_id,))):
            await self.forget((known.record.worker_id,))
            raise _unknown(known.record.worker_id)

    async def _apply(self, command: Command) -> Any:
        (answer,) = await self._store.apply([command])
        if isinstance(answer, DuetimeError):
            raise answer
        return answer


def _assignment(run: Run, call: PythonCall, progress: Any) -> Assignment:
    return Assignment(
        run.execution_id, run.attempt, run.token, run.job_id, run.spec.name, call.function, call.args, call.kwargs,
        run.scheduled_at, run.trigger, timeout_of(run.spec), progress, call.secret,
    )  # fmt: skip


async def _close_log(handed: _Handed | None) -> None:
    if handed is not None and handed.log is not None:
        await handed.log.close()
        handed.log = None


def _claim_of(run: Run) -> WorkClaim:
    return WorkClaim(run.execution_id, run.attempt, run.token)


def _unknown(worker_id: int) -> NotFound:
    return NotFound(f"there is no worker {worker_id}: it was silent for too long, or never joined; join anew")
