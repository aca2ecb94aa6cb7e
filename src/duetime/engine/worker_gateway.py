"""The worker gateway hands executions of Python functions to workers, and records what they report.

It keeps no state that must survive: the ledger stores a worker's claims under the worker's own id. So a worker may poll
one node, report to another, and outlive both. The gateway remembers claims only to save reads. Reports are fenced like
all results: a report counts only if its execution still runs with the same attempt and token.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import structlog

from duetime.domain.commands import Command, FenceNodes, Release, SaveProgress
from duetime.domain.defaults import timeout_of
from duetime.domain.errors import StaleWrite
from duetime.domain.execution import AttemptEnd, Claim, Outcome, conclude, expire
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
from duetime.engine.execution_events import publish_started
from duetime.engine.handed_claims import MOST_REMEMBERED, HandedClaim, HandedClaims, claim_of
from duetime.engine.joins import Joins
from duetime.engine.known_workers import KnownWorker, KnownWorkers, unknown_worker
from duetime.engine.on_finish import Result
from duetime.engine.pages import Pages
from duetime.engine.polls import Polls
from duetime.engine.recorder import Recorder
from duetime.engine.redaction import KeptRedactors, Redaction
from duetime.engine.turn_gate import TurnGate
from duetime.events import EventHub
from duetime.ports.clock import Clock
from duetime.ports.logs import LogStore, LogWriter
from duetime.ports.store import Store, WorkerRecord, apply_one
from duetime.ports.vault import DecryptionFailed, Vault

log = structlog.get_logger()

READ_PAGE = 64  # claims, each with its arguments
MOST_BYTES = 4 * 1024 * 1024  # of arguments in one response
READS_AT_ONCE = 1  # for polls and reports: the rest of the node reads through the same few connections
RELEASE_PAGE = 2048
PROGRESS_PAGE = 200  # commands: each saved progress is a separate one
LOOK_SECONDS = 1.0  # how often the claims that a worker reports are compared with its claims in the ledger


_encode = msgspec.json.Encoder().encode


class WorkerGateway:
    """`jitter`: as in `conclude`. `taken_over` is called when a worker has left and its executions must be returned.

    `waiting_hint(due_at)`: an execution can be claimed from then on.
    """

    def __init__(
        self, store: Store, clock: Clock, recorder: Recorder, vault: Vault, logs: LogStore | None, lease_seconds: float,
        jitter: Callable[[], float], redaction: Redaction, limits: WorkerLimits, *,
        taken_over: Callable[[], None], waiting_hint: Callable[[int], None], is_clock_right: Callable[[], bool],
        events: EventHub,
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._recorder = recorder
        self._vault = vault
        self._logs = logs
        self._lease = lease_seconds
        self._jitter = jitter
        self._taken_over = taken_over
        self._events = events
        self._waiting_hint = waiting_hint
        self._redactors = KeptRedactors(redaction, self._decrypted)
        self._reads = TurnGate(READS_AT_ONCE)
        self._joins = Joins(store, clock, limits)
        self._handed = HandedClaims()
        self.workers = KnownWorkers(store, clock, lease_seconds, self._handed, self._reads)
        self.polls = Polls(store, clock, self._reads, is_clock_right)
        self._releases = Pages(RELEASE_PAGE)
        self._saves = Pages(PROGRESS_PAGE)

    def running(self) -> int:
        """Returns how many claims workers have, as far as this node remembers."""
        return len(self._handed)

    async def join(self, tenant: str, user_id: str, joining: Joining) -> Joined:
        self.polls.check_open()
        now = self._clock.now()
        worker_id = await self._joins.add(tenant, user_id, joining, now)
        await self.workers.add(
            WorkerRecord(worker_id, tenant, user_id, joining.name, joining.functions, joining.slots, now, now, 0)
        )
        data: dict[str, object] = {"worker": worker_id, "name": joining.name}
        self._events.publish("worker.joined", now, tenant, data, user_id)
        log.info("a worker joined", worker=joining.name, functions=len(joining.functions), slots=joining.slots)
        return Joined(worker_id, self._lease)

    async def leave(self, tenant: str, worker_id: int) -> None:
        """Ends the worker. Executions that it still runs are returned to other workers at once."""
        known = await self.workers.get(tenant, worker_id)
        now = self._clock.now()
        await apply_one(self._store, FenceNodes(now, (worker_id,)))
        await self.workers.forget((worker_id,))
        data: dict[str, object] = {"worker": worker_id, "name": known.record.name}
        self._events.publish("worker.left", now, tenant, data, known.record.user_id)
        self._taken_over()
        log.info("a worker left", worker=known.record.name)

    # Polls: executions for workers

    async def poll(self, tenant: str, polling: Polling) -> Polled:
        with self.polls.place(tenant):
            known = await self.workers.get(tenant, polling.worker_id)
            # Only one beat per poll: the worker may die while its poll is open, and if an open poll counted as a sign
            # of life, its death would go unnoticed.
            await self.workers.beat(known)
            try:
                claims = await self.polls.wait(
                    tenant, known.endpoints, polling.worker_id, polling.free, polling.wait_seconds
                )
            except StaleWrite:
                await self.workers.forget((polling.worker_id,))
                raise unknown_worker(polling.worker_id) from None
            publish_started(self._events, claims, self._clock.now())
            return Polled(await self._assignments(known, claims)) if claims else Polled()

    async def _assignments(self, known: KnownWorker, claims: Sequence[Claim]) -> list[Assignment]:
        again = [claim.execution_id for claim in claims if claim.attempt > 1]
        progress = await self._store.get_progress(again) if again else {}
        assignments: list[Assignment] = []
        broken: list[Result] = []
        size = 0
        for number, claim in enumerate(claims):
            size += len(_encode(claim.spec.payload))
            if size > MOST_BYTES and number:
                await apply_one(self._store, Release(known.record.worker_id, self._clock.now(), tuple(claims[number:])))
                break
            try:
                call = self._decrypted(claim)
            except DecryptionFailed as error:
                now = self._clock.now()
                outcome = Outcome(ErrorType.INTERNAL_ERROR, f"{error}. Nothing was called.")
                broken.append((claim, conclude(claim, outcome, now, now, self._jitter())))
                continue
            self._handed.add(claim, known.record.worker_id)
            saved = progress.get(claim.execution_id)
            assignments.append(_assignment(claim, call, None if saved is None else msgspec.json.decode(saved)))
        if broken:
            await self._recorder.record(known.record.worker_id, broken)
        return assignments

    def _decrypted(self, claim: Claim) -> PythonCall:
        assert isinstance(claim.spec, PythonJob)
        call = claim.spec.payload
        if not has_secrets(call):
            return call
        plain = decrypt_payload(call, lambda encrypted: self._vault.decrypt(claim.tenant, claim.job_id, encrypted))
        assert isinstance(plain, PythonCall)
        return plain

    # Reports from workers

    async def report(self, tenant: str, reporting: Reporting) -> Reported:
        known = await self.workers.get(tenant, reporting.worker_id)
        await self.workers.beat(known)
        held = await self._held(known, reporting)
        await self._keep_notes(reporting.notes, held)
        refused = await self._end(known, reporting.ended, held)
        await self._releases.write(reporting.unbegun, lambda page: self._release(known, page))
        return Reported(await self._look(known, reporting), refused)

    async def _held(self, known: KnownWorker, reporting: Reporting) -> dict[WorkClaim, HandedClaim]:
        """Returns the reported claims that the worker holds, from memory or from the ledger."""
        held: dict[WorkClaim, HandedClaim] = {}
        unknown: set[WorkClaim] = set()
        for key in {said.claim for said in (*reporting.ended, *reporting.notes)}:
            if (handed := self._handed.get(known.record.worker_id, key)) is not None:
                held[key] = handed
            else:
                unknown.add(key)
        for claim in await self._claims_of(known, unknown):
            held[claim_of(claim)] = self._handed.add(claim, known.record.worker_id)
        return held

    async def _claims_of(self, known: KnownWorker, keys: Collection[WorkClaim]) -> list[Claim]:
        """Returns those of the claims that the worker still holds: an execution may have been claimed again since."""
        wanted = frozenset(keys)
        ids = sorted({key.execution_id for key in wanted})
        found: list[Claim] = []
        for begin in range(0, len(ids), READ_PAGE):
            page = ids[begin : begin + READ_PAGE]
            async with self._reads.turn(known.record.tenant):
                claims = await self._store.get_claims(known.record.worker_id, page, known.record.tenant)
            found += [claim.without_arguments() for claim in claims if claim_of(claim) in wanted]
        return found

    async def _log_of(self, handed: HandedClaim) -> LogWriter | None:
        """Returns the log writer of a claim, which redacts the job's secrets; None if this node keeps no logs."""
        if handed.log is None and self._logs is not None:
            claim = handed.claim
            opened = await self._redactors.redacting(
                claim, self._logs.open(claim.execution_id, claim.attempt, claim.tenant)
            )
            handed.log = handed.log or opened  # a concurrent report may have opened it
        return handed.log

    async def _keep_notes(self, notes: Sequence[Note], held: dict[WorkClaim, HandedClaim]) -> None:
        commands: list[Command] = []
        for note in notes:
            handed = held.get(note.claim)
            if handed is None:
                continue
            if note.text and (printed := await self._log_of(handed)) is not None:
                printed.write(note.stream, note.text)
            if note.progress is not msgspec.UNSET:
                value = await self._redactors.redact(handed.claim, bytes(note.progress).decode())
                if len(value) <= LONGEST_PROGRESS:
                    claim = handed.claim
                    kept = None if value == "null" else value
                    key = (claim.execution_id, claim.job_id, claim.attempt, claim.token)
                    commands.append(SaveProgress(claim.tenant, *key, kept))
        await self._saves.write(commands, self._store.apply)

    async def _end(
        self, known: KnownWorker, ended: Sequence[Ended], held: dict[WorkClaim, HandedClaim]
    ) -> list[WorkClaim]:
        results: list[Result] = []
        refused: list[WorkClaim] = []
        for end in ended:
            handed = held.get(end.claim)
            if handed is None:
                refused.append(end.claim)
                continue
            results.append((handed.claim, await self._concluded(end, handed.claim)))
        if results:
            for claim, _ in results:
                await held[claim_of(claim)].close_log()
            late = await self._recorder.record(known.record.worker_id, results)
            refused += [claim_of(claim) for claim, _ in results if claim.execution_id in late]
            for claim, _ in results:
                self._handed.drop(claim.execution_id)
                self._redactors.drop(claim)
        return refused

    async def _concluded(self, end: Ended, claim: Claim) -> AttemptEnd:
        """Concludes an attempt by this node's clock. Of the worker's clock, only the duration is used."""
        message, result = end.error_message, end.result
        if message:
            message = await self._redactors.redact(claim, message)
        if result:
            result = await self._redactors.redact(claim, result)
        outcome = Outcome(error_type_of(end), message, None, result, end.retry_after_seconds)
        now = self._clock.now()
        took = min(max(0, end.ended_at - end.started_at), now)
        return conclude(claim, outcome, now - took, now, self._jitter())

    async def _look(self, known: KnownWorker, reporting: Reporting) -> list[WorkClaim]:
        """Compares the worker's claims with the ledger, at most once per LOOK_SECONDS or quarter of the lease.

        Gives back claims that the worker has not reported for a whole lease. Returns the claims that it has to stop.
        """
        now = self._clock.monotonic()
        if now - known.looked_at < min(LOOK_SECONDS, self._lease / 4):
            return []
        known.looked_at = now
        async with self._reads.turn(known.record.tenant):
            listed = await self._store.list_claims(known.record.worker_id, known.record.tenant, MOST_REMEMBERED)
        keys = {WorkClaim(id, attempt, token): is_to_stop for id, attempt, token, is_to_stop in listed}
        has = {*reporting.running, *(end.claim for end in reporting.ended)}
        known.missing = {key: known.missing.get(key, now) for key in keys if key not in has}
        unreported = [key for key, since in known.missing.items() if now - since > self._lease]
        await self._releases.write(unreported, lambda page: self._give_back(known, page))
        return [key for key, is_to_stop in keys.items() if is_to_stop]

    async def _give_back(self, known: KnownWorker, unreported: Sequence[WorkClaim]) -> None:
        """Gives back claims that the worker has not reported for a whole lease: it never received them."""
        claims = await self._claims_of(known, unreported)
        if claims:
            log.warning("claims never reached their worker: released", worker=known.record.name, count=len(claims))
            # The response to the worker may still be under way, so an at-most-once execution goes to no other worker.
            now = self._clock.now()
            once = [claim for claim in claims if claim.spec.delivery is Delivery.AT_MOST_ONCE]
            if once:
                await self._recorder.record(known.record.worker_id, [(claim, expire(claim, now)) for claim in once])
            await self._release_claims(known, [claim for claim in claims if claim not in once])

    async def _release(self, known: KnownWorker, keys: Sequence[WorkClaim]) -> None:
        await self._release_claims(known, await self._claims_of(known, keys))

    async def _release_claims(self, known: KnownWorker, claims: Sequence[Claim]) -> None:
        if claims:
            await apply_one(self._store, Release(known.record.worker_id, self._clock.now(), tuple(claims)))
            self._waiting_hint(0)


def _assignment(claim: Claim, call: PythonCall, progress: Any) -> Assignment:
    return Assignment(
        claim.execution_id, claim.attempt, claim.token, claim.job_id, claim.spec.name, call.function, call.args,
        call.kwargs, claim.scheduled_at, claim.trigger, timeout_of(claim.spec), progress, call.secret,
    )  # fmt: skip
