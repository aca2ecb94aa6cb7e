"""The state machine of an execution, from its due instant to its terminal state.

    QUEUED ──► RUNNING ──► COMPLETED | FAILED | TIMEOUT | CANCELLED
      ▲           │  ▲
      │ (lease    ▼  │ (backoff over)
      └ expired) RETRYING
    SKIPPED: a due instant that does not run, with the reason.

Terminal states are final. Pure: time and jitter are arguments.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import msgspec

from duetime.domain.errors import InvalidRequest
from duetime.domain.held_specs import StoredSpec
from duetime.domain.ids import instant_of
from duetime.domain.instants import SECOND
from duetime.domain.job import Delivery, Overlap, PythonJob
from duetime.domain.payloads import PythonCall
from duetime.domain.retry import (
    LONGEST_RETRY_AFTER,
    LOST_ATTEMPTS,
    delay_seconds,
    is_retryable,
    longest_retry_after,
    max_attempts,
    own_delay_seconds,
)
from duetime.domain.schedule import timetable
from duetime.domain.states import OPEN, TERMINAL, ErrorType, State, Trigger

LONGEST_MESSAGE = 2000  # characters of an error message: the message of a defect in an executor may quote its input

__all__ = [
    "OPEN", "TERMINAL", "AttemptEnd", "Claim", "ErrorType", "Outcome", "State", "Trigger", "conclude", "expire",
    "unreadable", "without_retries",
]  # fmt: skip


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """The outcome of an attempt. `error_type` None means success."""

    error_type: ErrorType | None = None
    error_message: str | None = None
    http_status: int | None = None
    response: str | None = None  # at most 1,000 characters, no NUL, valid UTF-8
    retry_after_seconds: float | None = None  # as requested by the target, not yet clamped
    exit_code: int | None = None  # of a script; negative: the signal that ended it


class Claim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An execution that a node or a worker has claimed: attempt number `attempt`, fenced by `token`."""

    execution_id: str
    job_id: str
    tenant: str
    scheduled_at: int
    trigger: Trigger
    priority: int
    endpoint: int
    attempt: int
    token: int
    cancel_requested: bool
    spec: StoredSpec
    places: int = 1  # of the memory for claims (`domain.held_specs`)

    def without_arguments(self) -> Claim:
        """Returns what a node keeps of a function's claim that a worker has: no arguments, unless they mark secrets."""
        if self.places == 1 or not isinstance(self.spec, PythonJob) or self.spec.payload.secret:
            return self
        spec = msgspec.structs.replace(self.spec, payload=PythonCall(self.spec.payload.function))
        return msgspec.structs.replace(self, spec=spec, places=1)


class AttemptEnd(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of an attempt: the execution's next state, and what is stored of the attempt.

    A row of the Finish command. The store's SQL reads its fields in this order.
    """

    execution_id: str
    job_id: str
    tenant: str
    attempt: int
    token: int
    state: State
    due_at: int  # when the execution may run again, if its state is open
    started_at: int | None
    ended_at: int
    error_type: ErrorType | None
    error_message: str | None
    http_status: int | None
    response: str | None
    dead: bool  # no attempt is left, or another would only fail the same way
    exit_code: int | None = None
    reason: str | None = None  # why it was SKIPPED
    uncounted: bool = False  # the execution was counted towards `max_runs` of its timetable: that is undone
    or_due_at: int | None = None  # when its job is due next, if this was to be the last execution


def without_retries(ends: Sequence[AttemptEnd], stopped: Container[str]) -> Sequence[AttemptEnd]:
    """Returns the ends with the retries of `stopped` cancelled: these failed before a requested cancellation."""
    return tuple(
        msgspec.structs.replace(end, state=State.CANCELLED, due_at=end.ended_at)
        if end.state in OPEN and end.execution_id in stopped
        else end
        for end in ends
    )


def attempts_made(state: State, attempt: int) -> int:
    """Returns how many attempts were made. A SKIPPED execution may have been claimed, but was never attempted."""
    return 0 if state is State.SKIPPED else attempt


def conclude(claim: Claim, outcome: Outcome, started_at: int, ended_at: int, jitter: float) -> AttemptEnd:
    """Decide the execution's next state from an attempt's outcome.

    The wall clock may have been set back meanwhile: no attempt ends before it began, and no retry is due before the
    execution's scheduled instant.
    """
    ended_at = max(started_at, ended_at)
    if outcome.error_type is ErrorType.CIRCUIT_OPEN:
        return _not_sent(claim, outcome, ended_at)
    state, due_at, dead = State.COMPLETED, ended_at, False
    error_type = outcome.error_type
    if error_type is not None:
        due_at = max(ended_at, claim.scheduled_at)
        state, delay = _after_failure(claim, error_type, outcome, due_at, jitter)
        due_at += delay
        dead = state in (State.FAILED, State.TIMEOUT)
    message = outcome.error_message and outcome.error_message[:LONGEST_MESSAGE]
    return AttemptEnd(
        claim.execution_id, claim.job_id, claim.tenant, claim.attempt, claim.token, state, due_at, started_at, ended_at,
        error_type, message, outcome.http_status, outcome.response, dead, outcome.exit_code,
    )  # fmt: skip


def _not_sent(claim: Claim, outcome: Outcome, now: int) -> AttemptEnd:
    """Decide about an execution whose circuit is open: SKIPPED if it was never attempted, otherwise FAILED for good.

    A redriven execution is FAILED too: a dead letter stays a dead letter.
    """
    is_first = claim.attempt == 1 and claim.trigger is not Trigger.RETRY
    state = State.SKIPPED if is_first else State.FAILED
    uncounted = is_first and claim.trigger is not Trigger.MANUAL
    return AttemptEnd(
        claim.execution_id, claim.job_id, claim.tenant, claim.attempt, claim.token, state, now, None, now,
        outcome.error_type, outcome.error_message, None, None, not is_first,
        reason="circuit_open" if is_first else None, uncounted=uncounted,
        or_due_at=_next_due(claim, claim.scheduled_at) if uncounted and claim.spec.max_runs else None,
    )  # fmt: skip


def _next_due(claim: Claim, after: int) -> int | None:
    """Returns the first instant of the job's timetable after `after`; None if there is none, or it is unknown."""
    try:
        table = timetable(claim.spec, claim.job_id, instant_of(claim.job_id))  # an id begins with its creation time
    except InvalidRequest:  # such as a time zone that no longer exists; the timer pauses such a job, and says so
        return None
    return table.next_after(after) if table.recurs else None


def _after_failure(claim: Claim, error_type: ErrorType, outcome: Outcome, now: int, jitter: float) -> tuple[State, int]:
    if error_type is ErrorType.CANCELLED:
        return State.CANCELLED, 0
    policy = claim.spec.retry_policy
    if claim.spec.delivery is Delivery.AT_MOST_ONCE:
        return _given_up(error_type), 0
    if claim.attempt < max_attempts(claim.spec) and is_retryable(error_type, outcome.http_status):
        asked = outcome.retry_after_seconds
        if asked is not None and error_type is ErrorType.FUNCTION_ERROR:
            return State.RETRYING, int(own_delay_seconds(asked) * SECOND)
        longest = LONGEST_RETRY_AFTER if asked is None else longest_retry_after(policy, _held_up_in(claim, now))
        wait = delay_seconds(policy, claim.attempt, jitter, asked, longest)
        return State.RETRYING, int(wait * SECOND)
    return _given_up(error_type), 0


def _held_up_in(claim: Claim, now: int) -> float | None:
    """Returns the seconds until the job's next instant, which this execution delays while it waits; None if none."""
    if claim.spec.overlap == Overlap.ALLOW:
        return None
    next_due_at = _next_due(claim, now)
    return None if next_due_at is None else (next_due_at - now) / SECOND


def _given_up(error_type: ErrorType) -> State:
    return State.TIMEOUT if error_type is ErrorType.TIMEOUT else State.FAILED


def expire(claim: Claim, now: int) -> AttemptEnd:
    """Decide about an execution whose node or worker expired: QUEUED again, or FAILED after too many lost attempts.

    The lost attempt counts. It is unknown whether it reached its target. So even a job without retries gets another
    attempt: an execution runs at least once. With at-most-once delivery it gets none.
    """
    holder = "worker" if isinstance(claim.spec, PythonJob) else "node"
    if claim.cancel_requested:
        state, message = State.CANCELLED, f"cancelled while its {holder} was lost"
    elif claim.spec.delivery is Delivery.AT_MOST_ONCE:
        state = State.FAILED
        message = f"the {holder} that ran it was lost; it is unknown whether it ran, and it must run at most once"
    elif claim.attempt < max(LOST_ATTEMPTS, max_attempts(claim.spec)):
        state, message = State.QUEUED, f"the {holder} that ran this attempt was lost; it is tried again"
    else:
        state, message = State.FAILED, f"{claim.attempt} attempts were lost with their {holder}s; given up"
    # The expired node's clock may have been ahead: by this node's clock, the instant may lie in the future.
    due_at = max(now, claim.scheduled_at)
    return AttemptEnd(
        claim.execution_id, claim.job_id, claim.tenant, claim.attempt, claim.token, state, due_at, None, now,
        ErrorType.LEASE_LOST, message, None, None, state is State.FAILED,
    )  # fmt: skip


def unreadable(execution_id: str, job_id: str, tenant: str, attempt: int, token: int, why: str, now: int) -> AttemptEnd:
    """Returns the end of a claimed execution whose job's definition can't be read: a dead letter until it can be."""
    return AttemptEnd(
        execution_id, job_id, tenant, attempt, token, State.FAILED, now, None, now, ErrorType.INTERNAL_ERROR, why,
        None, None, True,
    )  # fmt: skip
