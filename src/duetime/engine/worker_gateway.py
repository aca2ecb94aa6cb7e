"""The worker gateway hands executions of Python functions to workers, and records what they report.

It keeps no state that must survive: the ledger stores a worker's claims under the worker's own id. So a worker may poll
one node, report to another, and outlive both. The gateway remembers claims only to save reads. Reports are fenced like
all results: a report counts only if its execution still runs with the same attempt and token.
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
from duetime.domain.worker_limits import WorkerLimits
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

MOST_REMEMBERED = 50_000  # runs handed out by this node; one with large arguments that hold secrets counts as several
READ_PAGE = 64  # runs, each with its arguments
MOST_BYTES = 4 * 1024 * 1024  # of arguments in one response
SILENT_SECONDS = 120.0  # after its lease: a worker silent for that long is forgotten, and read again if it comes back
READS_AT_ONCE = 1  # for polls and reports: the rest of the node reads through the same few connections
RELEASE_PAGE = 2048
PROGRESS_PAGE = 200  # commands: each saved progress is a separate one
LOOK_SECONDS = 1.0  # how often the claims that a worker reports are compared with its claims in the ledger


_encode = msgspec.json.Encoder().encode


class _Handed(msgspec.Struct, gc=False):
    """A run that was handed to a worker."""

    run: Run
    worker_id: int
    log: LogWriter | None = None


class _Known(msgspec.Struct):
    """What this node remembers of a worker."""

    record: WorkerRecord
    endpoints: tuple[int, ...]
    beaten_at: float
    looked_at: float
    missing: dict[WorkClaim, float]  # claims in the ledger that the worker does not report, and since when


class WorkerGateway:
    """`jitter`: as in `conclude`. `taken_over` is called when a worker has left and its executions must be returned."""

    def __init__(
        self, store: Store, clock: Clock, recorder: Recorder, vault: Vault, logs: LogStore | None, lease_seconds: float,
        jitter: Callable[[], float], taken_over: Callable[[], None], redaction: Redaction | None,
        limits: WorkerLimits,
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
        self._places = 0  # sum of `run.places` over `_handed`
        self._workers: dict[int, _Known] = {}
        self._reads = TurnGate(READS_AT_ONCE)
        self._joins = Joins(store, clock, limits)
        self._records = WorkerRecords(store, clock, self._reads)
        self.is_clock_right: Callable[[], bool] = always
        self._polls = Polls(store, clock, self._reads, lambda: self.is_clock_right())
        self._releases = Pages(RELEASE_PAGE)
        self._saves = Pages(PROGRESS_PAGE)

    def hint(self) -> None:
        """Wakes open polls: an execution may be waiting for a worker."""
        self._polls.hint()

    def close(self) -> None:
        """Ends open polls now. Later polls and joins raise Overloaded: the worker retries here or at another node."""
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
        """Ends the worker. Executions that it still runs are returned to other workers at once."""
        known = await self._known(tenant, worker_id)
        await self._apply(EndNodes(self._clock.now(), (worker_id,)))
        await self.forget((worker_id,))
        self._taken_over()
        log.info("a worker left", worker=known.record.name)

    # Polls: executions for workers

    async def poll(self, tenant: str, polling: Polling) -> Polled:
        with self._polls.place(tenant):
            known = await self._known(tenant, polling.worker_id)
            # Only one beat per poll: the worker may die while its poll is open, and if an open poll counted as a sign
            # of life, its death would go unnoticed.
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

    # Reports from workers

    async def report(self, tenant: str, reporting: Reporting) -> Reported:
        known = await self._known(tenant, reporting.worker_id)
        await self._beat(known)
        held = await self._held(known, reporting)
        await self._keep_notes(reporting.notes, held)
        refused = await self._end(known, reporting.ended, held)
        await self._releases.write(reporting.unbegun, lambda page: self._release(known, page))
        return Reported(await self._look(known, reporting), refused)

    async def _held(self, known: _Known, reporting: Reporting) -> dict[WorkClaim, _Handed]:
        """Returns the reported claims that the worker holds, from memory or from the ledger."""
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
        """Returns the runs of claims that the worker still holds: an execution may have been claimed again since."""
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
        """Returns the log writer of a run, which redacts the run's secrets; None if this node keeps no logs."""
        if handed.log is None and self._logs is not None:
            run = handed.run
            opened = await self._redactors.redacting(run, self._logs.open(run.execution_id, run.attempt, run.tenant))
            handed.log = handed.log or opened  # a concurrent report may have opened it
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
        """Concludes an attempt by this node's clock. Of the worker's clock, only the duration is used."""
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
        """Compares the worker's claims with the ledger, at most once per LOOK_SECONDS or quarter of the lease.

        Gives back claims that the worker has not reported for a whole lease. Returns the claims that it has to stop.
        """
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
        """Gives back claims that the worker has not reported for a whole lease: it never received them."""
        runs = await self._runs_of(known, lost)
        if runs:
            log.warning("runs never reached their worker: given back", worker=known.record.name, count=len(runs))
            # The response to the worker may still be under way, so an at-most-once execution goes to no other worker.
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

    # Known workers

    async def _known(self, tenant: str, worker_id: int) -> _Known:
        """Returns the worker, from memory or the store.

        Raises NotFound if its lease is lost, if it never joined, or if it belongs to another tenant.
        """
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
        """Forgets workers that have ended, with the runs handed to them, and closes the logs of those runs."""
        for worker_id in worker_ids:
            self._workers.pop(worker_id, None)
        for execution_id in [id for id, handed in self._handed.items() if handed.worker_id in worker_ids]:
            await _close_log(self._drop(execution_id))

    async def _forget_silent(self) -> None:
        """Forgets workers that were silent for long: they may have ended or use another node. No node reports that."""
        before = self._clock.monotonic() - self._lease - SILENT_SECONDS
        if silent := [id for id, known in self._workers.items() if known.beaten_at < before]:
            await self.forget(silent)

    async def _beat(self, known: _Known) -> None:
        """Stores a sign of life, at most one per quarter of the lease. Raises NotFound if the worker has ended."""
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
