"""The default timeout and number of retries of a job."""

from __future__ import annotations

import msgspec
import pytest

from duetime.domain.defaults import OperatorDefaults, explain_attempts, policy_of, retries_of, timeout_of
from duetime.domain.execution import Claim, Outcome, conclude
from duetime.domain.job import Delivery, HttpJob, JobSpec, PythonJob, RetryPolicy, ScriptJob, SqlJob
from duetime.domain.payloads import HttpRequest, PythonCall, Script, SqlQuery
from duetime.domain.states import ErrorType, State, Trigger
from samples import NOW, TENANT, URL, new_id

HTTP = HttpJob("hook", "immediate", payload=HttpRequest(URL))
SCRIPT = ScriptJob("backup", "immediate", payload=Script(argv=("backup",)))
SQL = SqlJob("totals", "immediate", payload=SqlQuery("main", "SELECT 1"))
FUNCTION = PythonJob("report", "immediate", payload=PythonCall("report"))
ALL = (HTTP, SCRIPT, SQL, FUNCTION)


@pytest.mark.parametrize(
    ("job", "seconds", "retries"), [(HTTP, 30, 3), (SCRIPT, 3600, 0), (SQL, 300, 3), (FUNCTION, 3600, 3)]
)
def test_each_type_of_job_has_its_own_defaults(job: JobSpec, seconds: float, retries: int):
    assert (timeout_of(job), retries_of(job)) == (seconds, retries)
    assert policy_of(job) == RetryPolicy(max_retries=retries)


def test_a_backup_script_has_an_hour_and_one_attempt():
    claim = Claim(new_id(), new_id(), TENANT, NOW, Trigger.SCHEDULE, 5, 1, 1, 1, False, SCRIPT)
    assert timeout_of(claim.spec) == 3600
    assert conclude(claim, Outcome(ErrorType.TIMEOUT, "too long"), NOW, NOW, 1.0).state is State.TIMEOUT
    assert conclude(claim, Outcome(ErrorType.EXIT_CODE, "failed"), NOW, NOW, 1.0).state is State.FAILED


@pytest.mark.parametrize("job", ALL)
def test_limits_of_the_job_take_precedence(job: JobSpec):
    said = msgspec.structs.replace(job, timeout_seconds=7.0, retry_policy=RetryPolicy(max_retries=5))
    assert (timeout_of(said), retries_of(said)) == (7.0, 5)
    waits = msgspec.structs.replace(job, retry_policy=RetryPolicy(delays=(1, 2)))
    assert retries_of(waits) == 2
    once = msgspec.structs.replace(job, delivery=Delivery.AT_MOST_ONCE)
    assert retries_of(once) == 0
    assert OperatorDefaults(60, 9).fill(said) == said
    assert OperatorDefaults(None, 9).fill(waits) == waits
    assert OperatorDefaults(None, 9).fill(once) == once


@pytest.mark.parametrize("job", ALL)
def test_limits_of_the_operator_apply_to_jobs_without_their_own(job: JobSpec):
    assert OperatorDefaults().fill(job) is job
    filled = OperatorDefaults(90.0, 3).fill(job)
    assert (filled.timeout_seconds, filled.retry_policy) == (90.0, RetryPolicy(max_retries=2))
    assert OperatorDefaults(90.0, 3).fill(filled) == filled


def test_the_default_timeout_of_a_request_stays_within_its_maximum():
    assert OperatorDefaults(7200.0).fill(HTTP).timeout_seconds == 3600
    assert OperatorDefaults(7200.0).fill(SCRIPT).timeout_seconds == 7200


@pytest.mark.parametrize(
    ("job", "fields", "sentence"),
    [
        (HTTP, {}, "An attempt may take 30 s (timeout_seconds), and one that fails is tried again up to 3 times"),
        (SCRIPT, {}, "An attempt may take 1 h (timeout_seconds), and one that fails is not tried again"),
        (SQL, {"retry_policy": RetryPolicy(max_retries=1)}, "An attempt may take 5 min (timeout_seconds), and one that "
         "fails is tried again up to 1 time"),
        (FUNCTION, {"timeout_seconds": 90.5, "delivery": Delivery.AT_MOST_ONCE}, "An attempt may take 90.5 s "
         "(timeout_seconds), and is made once at most"),
    ],
)  # fmt: skip
def test_defaults_are_explained_in_a_sentence(job: JobSpec, fields: dict[str, object], sentence: str):
    assert explain_attempts(msgspec.structs.replace(job, **fields)) == f"{sentence} (retry_policy)."
