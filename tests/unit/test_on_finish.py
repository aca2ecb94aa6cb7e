"""On-finish commands as pure rules. (The tests of the stores check that each is applied once, or not at all.)"""

from __future__ import annotations

import pytest

from duetime.domain.commands import CreateJobs, OnFinish, PauseJob
from duetime.domain.execution import Claim, Outcome, conclude, expire
from duetime.domain.ids import instant_of
from duetime.domain.job import RetryPolicy, Webhooks
from duetime.domain.on_finish import has_on_finish_commands, on_finish_commands
from duetime.domain.states import ErrorType, State, Trigger
from samples import NOW, TENANT, new_id, spec

RANDOM_BYTES = bytes(range(10))
GONE = Outcome(ErrorType.HTTP_ERROR, "gone", 410)


def claim_of(name: str = "report", retries: int = 0, webhooks: Webhooks | None = None) -> Claim:
    job = spec("every 1m", name=name, retry_policy=RetryPolicy(max_retries=retries), webhooks=webhooks or Webhooks())
    return Claim(new_id(), new_id(), TENANT, NOW, Trigger.SCHEDULE, 5, 1, 2, 3, False, job)


def follow(claim: Claim, outcome: Outcome) -> list[OnFinish]:
    end = conclude(claim, outcome, NOW, NOW + 5, 1.0)
    found = on_finish_commands(claim, end, NOW + 9, RANDOM_BYTES)
    assert has_on_finish_commands(claim, end) or not found, "what is not asked about would be lost"
    assert all((f.execution_id, f.attempt, f.token, f.state) == (claim.execution_id, 2, 3, end.state) for f in found)
    return found


def test_without_a_url_no_notification_is_sent():
    assert follow(claim_of(), Outcome(http_status=200)) == []
    assert follow(claim_of(webhooks=Webhooks(on_failure="https://b.example/")), Outcome(http_status=200)) == []
    assert follow(claim_of(webhooks=Webhooks(on_success="https://a.example/")), Outcome(ErrorType.TIMEOUT)) == []


def test_a_notification_is_a_job_due_now_without_notifications():
    (word,) = follow(claim_of(webhooks=Webhooks(on_success="https://a.example/")), Outcome(http_status=200))
    assert isinstance(word.command, CreateJobs)
    (job,) = word.command.jobs
    assert (job.tenant, job.key, job.owner, job.recurs, job.due_at) == (TENANT, None, "", False, NOW + 9)
    assert instant_of(job.job_id) == word.command.now == NOW + 9
    assert (job.spec.webhooks, job.spec.after, job.spec.priority) == (Webhooks(), (), 5)
    assert word.command.quota is None


def test_a_long_name_is_cut_to_the_limit_of_names():
    (word,) = follow(claim_of("n" * 255, webhooks=Webhooks(on_success="https://a.example/")), Outcome(http_status=200))
    assert isinstance(word.command, CreateJobs)
    assert word.command.jobs[0].spec.name == ("on_success of " + "n" * 255)[:255]


@pytest.mark.parametrize(
    "outcome", [Outcome(ErrorType.CANCELLED, "stopped"), Outcome(ErrorType.HTTP_ERROR, "503", 503)]
)
def test_neither_a_cancellation_nor_a_retried_attempt_sends_a_notification(outcome: Outcome):
    claim = claim_of(retries=5, webhooks=Webhooks("https://a.example/", "https://b.example/"))
    assert conclude(claim, outcome, NOW, NOW, 1.0).state in (State.CANCELLED, State.RETRYING)
    assert follow(claim, outcome) == []


def test_a_410_pauses_the_job_and_notifies():
    (pause,) = follow(claim_of(), GONE)
    assert isinstance(pause.command, PauseJob)
    assert follow(claim_of(), Outcome(ErrorType.HTTP_ERROR, "not found", 404)) == []
    word, pause = follow(claim_of(webhooks=Webhooks(on_failure="https://b.example/")), GONE)
    assert (type(word.command), type(pause.command)) == (CreateJobs, PauseJob)
    assert follow(claim_of(), Outcome(http_status=410)) == [], "it was expected"


def test_a_failed_execution_notifies_and_a_retried_one_does_not():
    claim = claim_of(webhooks=Webhooks(on_failure="https://b.example/"))
    assert on_finish_commands(claim, expire(claim, NOW), NOW, RANDOM_BYTES) == []
    lost = Claim(*(getattr(claim, name) if name != "attempt" else 99 for name in Claim.__struct_fields__))
    (word,) = on_finish_commands(lost, expire(lost, NOW), NOW, RANDOM_BYTES)
    assert (word.state, word.attempt) == (State.FAILED, 99)
