"""Defaults by type of job: how long an attempt may take, and how often a failed execution is tried again.

A webhook responds within seconds, and its receiver recognizes a repeat by its id. A script may be a long backup, and
only its author can decide that it may run twice, as with cron. A statement that took too long was rolled back. A
function may take long, and is written to be tried again. A notice is tried for three hours: nobody reads of an alert
otherwise.
"""

from __future__ import annotations

import msgspec

from duetime.domain.http_rules import LONGEST_REQUEST_SECONDS
from duetime.domain.job import Delivery, JobSpec, JobType, RetryPolicy

TIMEOUT_SECONDS = {
    JobType.HTTP_REQUEST: 30.0, JobType.SCRIPT: 3600.0, JobType.SQL_QUERY: 300.0, JobType.PYTHON: 3600.0,
    JobType.NOTICE: 30.0,
}  # fmt: skip
RETRIES = {JobType.HTTP_REQUEST: 3, JobType.SCRIPT: 0, JobType.SQL_QUERY: 3, JobType.PYTHON: 3, JobType.NOTICE: 8}


def timeout_of(spec: JobSpec) -> float:
    """Returns the seconds that one attempt may take."""
    given = spec.timeout_seconds
    return TIMEOUT_SECONDS[spec.type] if given is None else given


def retries_of(spec: JobSpec) -> int:
    """Returns how often a failed execution is tried again."""
    policy = spec.retry_policy
    if spec.delivery is Delivery.AT_MOST_ONCE:
        return 0
    if policy.max_retries is not None:
        return policy.max_retries
    return len(policy.delays) if policy.delays else RETRIES[spec.type]


def policy_of(spec: JobSpec) -> RetryPolicy:
    """Returns the retry policy with the number of retries that applies."""
    return msgspec.structs.replace(spec.retry_policy, max_retries=retries_of(spec))


class OperatorDefaults(msgspec.Struct, frozen=True):
    """The operator's defaults for jobs that name no value; None: the default of the type.

    They are written into a job when it is created or changed, so that the job shows them, and all nodes agree.
    """

    timeout_seconds: float | None = None
    attempts: int | None = None

    def fill(self, spec: JobSpec) -> JobSpec:
        if self.timeout_seconds is not None and spec.timeout_seconds is None:
            is_request = spec.type is JobType.HTTP_REQUEST
            most = LONGEST_REQUEST_SECONDS if is_request else self.timeout_seconds
            spec = msgspec.structs.replace(spec, timeout_seconds=min(self.timeout_seconds, most))
        if self.attempts is not None and _names_no_retries(spec):
            policy = msgspec.structs.replace(spec.retry_policy, max_retries=self.attempts - 1)
            spec = msgspec.structs.replace(spec, retry_policy=policy)
        return spec


def _names_no_retries(spec: JobSpec) -> bool:
    policy = spec.retry_policy
    return policy.max_retries is None and not policy.delays and spec.delivery is not Delivery.AT_MOST_ONCE


def explain_attempts(spec: JobSpec) -> str:
    """Returns a sentence: how long an attempt may take, and what follows a failure."""
    retries, length = retries_of(spec), _length(timeout_of(spec))
    if spec.delivery is Delivery.AT_MOST_ONCE:
        again = "and is made once at most"
    elif retries == 0:
        again = "and one that fails is not tried again"
    else:
        again = f"and one that fails is tried again up to {retries} time{'' if retries == 1 else 's'}"
    return f"An attempt may take {length} (timeout_seconds), {again} (retry_policy)."


def _length(seconds: float) -> str:
    for size, unit in ((3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
