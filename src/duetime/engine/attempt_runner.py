"""The attempt runner runs one attempt of a claimed execution, and hands its outcome to the recorder."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Set
from typing import Any

import msgspec
import structlog

from duetime.domain.breaker import explain_refusal
from duetime.domain.execution import Claim, Outcome, conclude, expire
from duetime.domain.job import JobType
from duetime.domain.redaction import Redactor, size_of_secrets
from duetime.domain.secrets import decrypt_payload, has_secrets
from duetime.domain.states import ErrorType
from duetime.engine.breaker import Breaker
from duetime.engine.recorder import Recorder
from duetime.engine.redaction import RedactingLog, Redaction
from duetime.ports.clock import Clock
from duetime.ports.executor import Attempt, Executor, NotSent
from duetime.ports.logs import NO_LOG, LogStore, LogWriter
from duetime.ports.vault import DecryptionFailed, Vault
from duetime.process.crash import crash_point

log = structlog.get_logger()

# A name of the module is found faster than an enum's member.
_WEBHOOK = JobType.HTTP_REQUEST
_WITHOUT_LOG = frozenset({_WEBHOOK, JobType.NOTICE})  # of a webhook, the response is the log
CANCELLED = Outcome(error_type=ErrorType.CANCELLED, error_message="cancelled on request")


class AttemptRunner:
    def __init__(
        self, executor: Executor[Any], recorder: Recorder, clock: Clock, jitter: Callable[[], float],
        cancelled: Set[str], may_send: Callable[[], bool], vault: Vault, logs: LogStore | None, breaker: Breaker,
        redaction: Redaction,
    ) -> None:  # fmt: skip
        """`cancelled`: running executions that were asked to stop."""
        self._executor = executor
        self._recorder = recorder
        self._clock = clock
        self._jitter = jitter
        self._cancelled = cancelled
        self._may_send = may_send
        self._vault = vault
        self._logs = logs
        self._breaker = breaker
        self._redaction = redaction

    async def attempt(self, claim: Claim) -> None:
        """Runs one attempt within its timeout, and records how it ends. A shutdown returns the execution.

        Raises NotSent, and records nothing, if the lease is in doubt when the first byte is about to be sent.
        """
        started_at = self._clock.now()
        crash_point("before_attempt")
        try:
            if self._is_plain(claim):
                # No coroutine between this one and the executor's: a burst has one less for each of its requests.
                outcome = await self._executor.execute(Attempt(claim, claim.spec.payload, self._may_send))
            else:
                outcome = await self._execute(claim)
        except asyncio.CancelledError:
            if claim.execution_id not in self._cancelled:
                # Not a requested cancellation: the node is stopping. Another node goes on; this attempt counts.
                self._recorder.add(claim, expire(claim, self._clock.now()))
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            outcome = CANCELLED
        except NotSent:
            raise
        except Exception as error:  # noqa: BLE001 (it is an end of the attempt like any other, and logged)
            outcome = await self._failed(claim, error)
        crash_point("after_attempt")
        ended_at = self._clock.now()
        self._recorder.add(claim, conclude(claim, outcome, started_at, ended_at, self._jitter()))

    def drop(self, claim: Claim) -> None:
        """Records a claim that was cancelled before it started: nothing is sent."""
        now = self._clock.now()
        self._recorder.add(claim, conclude(claim, CANCELLED, now, now, 0.0))

    def _is_plain(self, claim: Claim) -> bool:
        """Returns whether the attempt is a request without secrets that is to be sent: nearly all of a burst are."""
        return (
            claim.spec.type is _WEBHOOK
            and not has_secrets(claim.spec.payload)
            and not claim.cancel_requested
            and claim.execution_id not in self._cancelled
            and not self._breaker.holds(claim)
        )

    async def _execute(self, claim: Claim) -> Outcome:
        if claim.cancel_requested or claim.execution_id in self._cancelled:
            return CANCELLED
        if self._breaker.holds(claim):
            circuit = await self._breaker.ask(claim)
            if circuit is not None:
                return Outcome(ErrorType.CIRCUIT_OPEN, explain_refusal(circuit))
        payload = claim.spec.payload
        redactor: Redactor | None = None
        printed: LogWriter = NO_LOG
        try:
            if has_secrets(payload):
                # The secrets are in plain text from here to the end of the attempt. They are redacted from the result.
                size = size_of_secrets(payload)
                payload = decrypt_payload(
                    payload, lambda encrypted: self._vault.decrypt(claim.tenant, claim.job_id, encrypted)
                )
                redactor = await self._redaction.build(claim.tenant, size, payload)
            if self._logs is not None and claim.spec.type not in _WITHOUT_LOG:
                printed = self._logs.open(claim.execution_id, claim.attempt, claim.tenant)
                if redactor is not None:
                    printed = RedactingLog(printed, redactor, self._redaction, claim.tenant)
            outcome = await self._executor.execute(Attempt(claim, payload, self._may_send, printed))
        except NotSent:
            raise
        except DecryptionFailed as error:
            return Outcome(ErrorType.INTERNAL_ERROR, f"{error}. Nothing was sent.")
        except Exception as error:  # noqa: BLE001 (the traceback may quote a secret, which only this method can redact)
            outcome = await self._failed(claim, error, redactor)
        finally:
            if printed is not NO_LOG:
                await printed.close()
        return outcome if redactor is None else await self._redacted(claim.tenant, outcome, redactor)

    async def _failed(self, claim: Claim, error: Exception, redactor: Redactor | None = None) -> Outcome:
        shown = await self._redaction.redact(claim.tenant, redactor, traceback.format_exc())
        log.error("an executor failed", execution_id=claim.execution_id, exception=shown)
        return Outcome(ErrorType.INTERNAL_ERROR, f"the executor failed: {type(error).__name__}: {error}")

    async def _redacted(self, tenant: str, outcome: Outcome, redactor: Redactor) -> Outcome:
        response, message = outcome.response, outcome.error_message
        if response:
            response = await self._redaction.redact(tenant, redactor, response)
        if message:
            message = await self._redaction.redact(tenant, redactor, message)
        return msgspec.structs.replace(outcome, response=response, error_message=message)
