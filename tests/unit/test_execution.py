"""The state machine: the effect of an attempt's outcome, or of the loss of its node, on its execution."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from duetime.domain.endpoints import endpoint_of_url
from duetime.domain.execution import OPEN, TERMINAL, AttemptEnd, Claim, Outcome, conclude, expire
from duetime.domain.instants import DAY
from duetime.domain.job import Delivery, PythonJob, RetryPolicy
from duetime.domain.payloads import PythonCall
from duetime.domain.retry import LOST_ATTEMPTS
from duetime.domain.states import ErrorType, State, Trigger
from samples import NOW, TENANT, URL, new_id, spec

FAILURE = Outcome(ErrorType.HTTP_ERROR, "the target answered 500", 500, "oops")


def make_claim(attempt: int = 1, retry_policy: RetryPolicy | None = None, **fields: Any) -> Claim:
    job = spec(retry_policy=retry_policy or RetryPolicy())
    made = Claim(
        new_id(), new_id(), TENANT, NOW - 5, Trigger.SCHEDULE, 5, endpoint_of_url(URL), attempt, attempt + 3, False, job
    )
    return msgspec.structs.replace(made, **fields)


def decide(claim: Claim, outcome: Outcome, jitter: float = 1.0) -> AttemptEnd:
    return conclude(claim, outcome, NOW, NOW + 40, jitter)


def test_every_state_is_either_open_or_terminal():
    assert set(State) == OPEN | TERMINAL
    assert not OPEN & TERMINAL


def test_a_success_completes_the_execution_and_stores_the_response():
    claim = make_claim()
    assert decide(claim, Outcome(http_status=201, response="made")) == AttemptEnd(
        claim.execution_id, claim.job_id, TENANT, 1, 4, State.COMPLETED, NOW + 40, NOW, NOW + 40, None, None, 201,
        "made", False,
    )  # fmt: skip


def test_a_temporary_failure_is_retried_after_its_wait():
    claim = make_claim()
    assert decide(claim, FAILURE) == AttemptEnd(
        claim.execution_id, claim.job_id, TENANT, 1, 4, State.RETRYING, NOW + 40 + 10_000, NOW, NOW + 40,
        ErrorType.HTTP_ERROR, "the target answered 500", 500, "oops", False,
    )  # fmt: skip


def test_an_attempt_never_ends_before_its_start_although_the_clock_was_set_back():
    end = conclude(make_claim(), FAILURE, NOW, NOW - 5000, 0.0)
    assert (end.started_at, end.ended_at, end.due_at) == (NOW, NOW, NOW)


def test_a_retry_is_never_due_before_its_attempt_ended():
    assert decide(make_claim(), FAILURE, jitter=0.0).due_at == NOW + 40


def test_a_retry_waits_as_long_as_the_target_requests():
    outcome = Outcome(ErrorType.HTTP_ERROR, "slow down", 429, retry_after_seconds=120)
    assert decide(make_claim(), outcome, jitter=0.0).due_at == NOW + 40 + 120_000


@pytest.mark.parametrize("asked", [0, 1, 7200, 500_000])
def test_a_retry_waits_exactly_as_long_as_the_function_requests(asked: int):
    for policy in (RetryPolicy(), RetryPolicy(delays=(60, 60))):
        call = PythonJob(name="f", schedule="every 1m", payload=PythonCall("f"), retry_policy=policy)
        outcome = Outcome(ErrorType.FUNCTION_ERROR, "not yet", retry_after_seconds=asked)
        assert decide(make_claim(spec=call), outcome).due_at == NOW + 40 + 1000 * asked


def test_a_wait_requested_by_a_function_is_limited_to_a_week():
    outcome = Outcome(ErrorType.FUNCTION_ERROR, "not yet", retry_after_seconds=1e12)
    assert decide(make_claim(), outcome).due_at == NOW + 40 + 7 * DAY


@pytest.mark.parametrize(
    ("error", "state"), [(ErrorType.CONNECTION_ERROR, State.FAILED), (ErrorType.TIMEOUT, State.TIMEOUT)]
)
def test_the_last_failed_attempt_makes_a_dead_letter_with_the_reason(error: ErrorType, state: State):
    policy = RetryPolicy(max_retries=2)
    assert decide(make_claim(2, policy), Outcome(error)).state is State.RETRYING
    last = decide(make_claim(3, policy), Outcome(error))
    assert (last.state, last.dead, last.due_at) == (state, True, NOW + 40)


@pytest.mark.parametrize("outcome", [Outcome(ErrorType.HTTP_ERROR, http_status=404), Outcome(ErrorType.BLOCKED_TARGET)])
def test_a_permanent_failure_makes_a_dead_letter_at_once(outcome: Outcome):
    end = decide(make_claim(), outcome)
    assert (end.state, end.dead) == (State.FAILED, True)


def test_a_cancelled_execution_is_no_dead_letter():
    end = decide(make_claim(), Outcome(ErrorType.CANCELLED, "cancelled on request"))
    assert (end.state, end.dead) == (State.CANCELLED, False)


def test_a_lost_execution_is_queued_again_and_its_attempt_counts():
    claim = make_claim(retry_policy=RetryPolicy(max_retries=0))
    lost = expire(claim, NOW)
    assert (lost.state, lost.due_at, lost.attempt, lost.token, lost.dead) == (State.QUEUED, NOW, 1, 4, False)
    assert (lost.started_at, lost.ended_at, lost.error_type) == (None, NOW, ErrorType.LEASE_LOST)


@pytest.mark.parametrize(
    ("policy", "bound"), [(RetryPolicy(max_retries=0), LOST_ATTEMPTS), (RetryPolicy(max_retries=9), 10)]
)
def test_an_execution_that_loses_its_node_repeatedly_becomes_a_dead_letter(policy: RetryPolicy, bound: int):
    states = [expire(make_claim(attempt, policy), NOW).state for attempt in range(1, bound + 2)]
    assert states == [State.QUEUED] * (bound - 1) + [State.FAILED] * 2
    assert expire(make_claim(bound, policy), NOW).dead


def test_a_lost_execution_with_a_requested_cancellation_is_cancelled():
    lost = expire(make_claim(cancel_requested=True), NOW)
    assert (lost.state, lost.dead) == (State.CANCELLED, False)


# How long a target may delay its job


def asked(seconds: float, schedule: str, **fields: Any) -> float:
    """Returns the seconds that the retry waits, if the target requested this many."""
    fields = {"retry_policy": RetryPolicy(delays=(5,) * 3)} | fields
    claim = make_claim(spec=spec(schedule, **fields))
    end = decide(claim, Outcome(ErrorType.HTTP_ERROR, "slow down", 429, retry_after_seconds=seconds))
    assert end.state is State.RETRYING
    return (end.due_at - end.ended_at) / 1000


@pytest.mark.parametrize("overlap", ["skip", "queue_one", "queue_all", "cancel_running"])
def test_a_retry_after_beyond_the_next_instant_of_a_recurring_job_is_shortened_to_it(overlap: str):
    assert asked(86_400, "every 1h", overlap=overlap) == 3600 - 0.04
    assert asked(86_400, "30 * * * *", overlap=overlap) == 1800 - 0.04
    assert asked(1200, "every 1h", overlap=overlap) == 1200, "what ends before it is honoured"


def test_a_retry_after_is_honoured_up_to_the_longest_wait_of_the_jobs_own_policy():
    backoff = RetryPolicy(max_delay_seconds=600)
    assert asked(86_400, "every 1m", retry_policy=backoff) == 600
    assert asked(120, "every 1m", retry_policy=backoff) == 120
    assert asked(86_400, "every 1m", retry_policy=RetryPolicy(delays=(5, 200))) == 200
    assert asked(86_400, "every 1m") == 60 - 0.04


@pytest.mark.parametrize(
    ("schedule", "fields"),
    [
        ("immediate", {}),
        ("2026-01-01T00:00:00Z", {}),
        ("on_demand", {}),
        ("every 1m", {"overlap": "allow"}),
        ("every 1m", {"end_at": "2026-01-01T00:00:30Z"}),
    ],
)
def test_a_retry_after_that_delays_no_later_instant_is_honoured_up_to_a_day(schedule: str, fields: dict[str, Any]):
    assert asked(86_000, schedule, **fields) == 86_000
    assert asked(864_000, schedule, **fields) == 86_400


def test_the_wait_of_the_policy_is_never_shortened():
    assert asked(10, "every 1m", retry_policy=RetryPolicy(delays=(7200,))) == 7200
    assert asked(86_400, "every 1m", retry_policy=RetryPolicy(delays=(7200,))) == 7200


# Executions that were counted as a run and then not sent

NOT_SENT = Outcome(ErrorType.CIRCUIT_OPEN, "the circuit is open")


@pytest.mark.parametrize("trigger", [Trigger.SCHEDULE, Trigger.CATCH_UP, Trigger.AFTER])
def test_an_execution_that_is_not_sent_does_not_count_and_its_job_continues_at_the_next_instant(trigger: Trigger):
    claim = make_claim(spec=spec("every 1m", max_runs=1), scheduled_at=NOW + 60_000, trigger=trigger)
    found = decide(claim, NOT_SENT)
    assert (found.state, found.uncounted, found.or_due_at) == (State.SKIPPED, True, NOW + 120_000)


@pytest.mark.parametrize(
    "fields",
    [{"trigger": Trigger.MANUAL}, {"trigger": Trigger.RETRY}, {"attempt": 2}],
)
def test_executions_that_were_not_counted_or_failed_return_no_run(fields: dict[str, Any]):
    found = decide(make_claim(spec=spec("every 1m", max_runs=1), **fields), NOT_SENT)
    assert (found.uncounted, found.or_due_at) == (False, None)


@pytest.mark.parametrize("job", [spec("immediate"), spec("every 1m", max_runs=1, timezone="Gone/Zone")])
def test_a_job_with_an_unknown_next_instant_does_not_continue(job: Any):
    found = decide(make_claim(spec=job), NOT_SENT)
    assert (found.uncounted, found.or_due_at) == (True, None)


def test_only_the_beginning_of_a_long_error_is_stored():
    made = decide(make_claim(), Outcome(ErrorType.INTERNAL_ERROR, "x" * 100_000))
    assert made.error_message == "x" * 2000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "the worker that ran this attempt was lost; it is tried again"),
        ({"attempt": 4}, "4 attempts were lost with their workers; given up"),
        ({"cancel_requested": True}, "cancelled while its worker was lost"),
    ],
)
def test_the_error_of_an_execution_lost_with_a_worker_says_so(fields: dict[str, Any], message: str):
    call = PythonJob(name="f", schedule="every 1m", payload=PythonCall("f"))
    assert expire(make_claim(**{"spec": call, **fields}), NOW).error_message == message
    once = msgspec.structs.replace(call, delivery=Delivery.AT_MOST_ONCE)
    assert str(expire(make_claim(spec=once), NOW).error_message).startswith("the worker that ran it was lost")
    assert "worker" not in str(expire(make_claim(), NOW).error_message)
