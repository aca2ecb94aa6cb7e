"""The attempt runner runs one attempt of a claimed execution, and hands its outcome to the recorder."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Set
from typing import Any

import msgspec
import structlog

from duetime.domain.breaker import explain_refusal
from duetime.domain.defaults import timeout_of
from duetime.domain.execution import Outcome, Run, conclude, lapse
from duetime.domain.job import Delivery, JobType
from duetime.domain.redaction import Redactor, size_of_secrets
from duetime.domain.secrets import decrypt_payload, has_secrets
from duetime.domain.states import ErrorType
from duetime.engine.breaker import Breaker
from duetime.engine.recorder import Recorder
from duetime.engine.redaction import RedactingLog, Redaction
from duetime.ports.clock import Clock
from duetime.ports.executor import Executor, NotSent, Task
from duetime.ports.logs import NO_LOG, LogStore, LogWriter
from duetime.ports.vault import DecryptionFailed, Vault
from duetime.process.crash import crash_point

log = structlog.get_logger()

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

    async def attempt(self, run: Run) -> None:
        """Runs one attempt within its timeout, and records how it ends. A shutdown returns the execution.

        Raises NotSent, and records nothing, if the lease is in doubt when the first byte is about to be sent.
        """
        started_at = self._clock.now()
        crash_point("before_attempt")
        try:
            outcome = await self._execute(run)
        except asyncio.CancelledError:
            if run.execution_id not in self._cancelled:
                # Not a requested cancellation: the node is stopping. Another node goes on; this attempt counts.
                self._recorder.add(run, lapse(run, self._clock.now()))
                raise
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()
            outcome = CANCELLED
        crash_point("after_attempt")
        ended_at = self._clock.now()
        self._recorder.add(run, conclude(run, outcome, started_at, ended_at, self._jitter()))

    def drop(self, run: Run) -> None:
        """Records a claim that was cancelled before it started: nothing is sent."""
        now = self._clock.now()
        self._recorder.add(run, conclude(run, CANCELLED, now, now, 0.0))

    async def _execute(self, run: Run) -> Outcome:
        if run.cancel_requested or run.execution_id in self._cancelled:
            return CANCELLED
        if self._breaker.holds(run):
            circuit = await self._breaker.ask(run)
            if circuit is not None:
                return Outcome(ErrorType.CIRCUIT_OPEN, explain_refusal(circuit))
        payload = run.spec.payload
        redactor: Redactor | None = None
        printed: LogWriter = NO_LOG
        try:
            if has_secrets(payload):
                # The secrets are in plain text from here to the end of the attempt. They are redacted from the result.
                size = size_of_secrets(payload)
                payload = decrypt_payload(
                    payload, lambda encrypted: self._vault.decrypt(run.tenant, run.job_id, encrypted)
                )
                redactor = await self._redaction.build(run.tenant, size, payload)
            if self._logs is not None and run.spec.type is not JobType.HTTP_REQUEST:  # the response is its log
                printed = self._logs.open(run.execution_id, run.attempt, run.tenant)
                if redactor is not None:
                    printed = RedactingLog(printed, redactor, self._redaction, run.tenant)
            task = Task(
                run.execution_id, run.job_id, run.tenant, run.scheduled_at, run.attempt, run.token, run.trigger,
                timeout_of(run.spec), payload, self._may_send, printed,
                run.spec.delivery is not Delivery.AT_MOST_ONCE,
            )  # fmt: skip
            outcome = await self._executor.execute(task)
        except NotSent:
            raise
        except DecryptionFailed as error:
            return Outcome(ErrorType.INTERNAL_ERROR, f"{error}. Nothing was sent.")
        except Exception as error:  # noqa: BLE001 (it is an end of the attempt like any other, and logged)
            # The traceback may quote a secret.
            shown = await self._redaction.redact(run.tenant, redactor, traceback.format_exc())
            log.error("an executor failed", execution_id=run.execution_id, exception=shown)
            outcome = Outcome(ErrorType.INTERNAL_ERROR, f"the executor failed: {type(error).__name__}: {error}")
        finally:
            if printed is not NO_LOG:
                await printed.close()
        return outcome if redactor is None else await self._redacted(run.tenant, outcome, redactor)

    async def _redacted(self, tenant: str, outcome: Outcome, redactor: Redactor) -> Outcome:
        response, message = outcome.response, outcome.error_message
        if response:
            response = await self._redaction.redact(tenant, redactor, response)
        if message:
            message = await self._redaction.redact(tenant, redactor, message)
        return msgspec.structs.replace(outcome, response=response, error_message=message)
