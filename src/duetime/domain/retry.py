"""The rules of retries: which errors may be retried, and the delays. `execution.conclude` decides by them.

Pure: jitter is an argument in [0, 1).
"""

from __future__ import annotations

from duetime.domain.defaults import retries_of
from duetime.domain.job import JobSpec, RetryPolicy
from duetime.domain.states import ErrorType

LOST_ATTEMPTS = 4  # each node lost during an attempt costs one; after this many the execution is given up as poison
LONGEST_RETRY_AFTER = 86_400.0  # seconds; a longer request of a target is cut to this
LONGEST_OWN_DELAY = 604_800.0  # seconds that a job's own function may request: as much as a retry policy's delays

_NEVER_AGAIN = frozenset({
    ErrorType.BLOCKED_TARGET, ErrorType.CANCELLED, ErrorType.CIRCUIT_OPEN, ErrorType.LIMIT_EXCEEDED, ErrorType.REJECTED,
    ErrorType.SQL_ERROR,
})  # fmt: skip


def max_attempts(spec: JobSpec) -> int:
    """Returns the number of attempts, the first included."""
    return 1 + retries_of(spec)


def is_retryable(error_type: ErrorType, http_status: int | None) -> bool:
    """Returns whether to retry: network errors, timeouts, 5xx and 429 may pass; other responses would only repeat."""
    if error_type is ErrorType.HTTP_ERROR and http_status is not None:
        return http_status == 429 or http_status >= 500
    return error_type not in _NEVER_AGAIN


def longest_retry_after(policy: RetryPolicy, next_due_seconds: float | None) -> float:
    """Returns the longest wait that a target's Retry-After may cause: a day at most.

    If the wait would delay the job's next instant, in `next_due_seconds`, the job's author decides and not the target:
    it lasts up to that instant, or up to the longest wait of the job's own policy if that is more.
    """
    if next_due_seconds is None:
        return LONGEST_RETRY_AFTER
    own = max(policy.delays) if policy.delays else policy.max_delay_seconds
    return min(max(own, next_due_seconds), LONGEST_RETRY_AFTER)


def delay_seconds(
    policy: RetryPolicy, attempt: int, jitter: float, retry_after: float | None = None,
    longest: float = LONGEST_RETRY_AFTER,
) -> float:  # fmt: skip
    """Returns the wait after the failed attempt number `attempt` (from 1).

    Computed backoff has full jitter, so that a thousand executions that failed together don't retry together. `delays`
    are used as they are. A target's Retry-After is honoured if it is longer than that, up to `longest`.
    """
    delays = policy.delays
    delay = delays[min(attempt, len(delays)) - 1] if delays else _backoff(policy, attempt) * jitter
    if retry_after is not None and retry_after > 0:
        return max(delay, min(retry_after, longest))
    return delay


def own_delay_seconds(asked: float) -> float:
    """Returns the wait that a job's function requested with Retry(after_seconds=…).

    It may be shorter or longer than the retry policy's: unlike a target, the function belongs to the job.
    """
    return min(max(0.0, asked), LONGEST_OWN_DELAY)  # in this order, the maximum of 0 and nan is 0


def _backoff(policy: RetryPolicy, attempt: int) -> float:
    first, ceiling = policy.initial_delay_seconds, policy.max_delay_seconds
    if policy.backoff == "fixed":
        return min(first, ceiling)
    if policy.backoff == "linear":
        return min(first * attempt, ceiling)
    # The exponent is capped: a factor of 100 to the power of 99 does not fit a float.
    return float(min(first * policy.backoff_factor ** min(attempt - 1, 64), ceiling))
