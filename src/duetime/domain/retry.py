"""Whether, and how long after, a failed attempt is tried again. Pure: jitter is an argument in [0, 1)."""

from __future__ import annotations

from duetime.domain.defaults import retries_of
from duetime.domain.job import JobSpec, RetryPolicy
from duetime.domain.states import ErrorType

LOST_ATTEMPTS = 4  # a node that dies under a run costs it an attempt; this many, and the run is given up as poison
LONGEST_RETRY_AFTER = 86_400.0  # seconds; a target may ask for more, and does not get more
LONGEST_OWN_DELAY = 604_800.0  # seconds, that a job's own function may ask for: as much as a retry policy's delays

_NEVER_AGAIN = frozenset(
    {
        ErrorType.BLOCKED_TARGET,
        ErrorType.CANCELLED,
        ErrorType.CIRCUIT_OPEN,
        ErrorType.LIMIT_EXCEEDED,
        ErrorType.REJECTED,
        ErrorType.SQL_ERROR,
    }
)


def max_attempts(spec: JobSpec) -> int:
    """All tries together, the first included."""
    return 1 + retries_of(spec)


def is_retryable(error_type: ErrorType, http_status: int | None) -> bool:
    """Network errors, timeouts, 5xx and 429 pass; any other answer would only be repeated."""
    if error_type is ErrorType.HTTP_ERROR and http_status is not None:
        return http_status == 429 or http_status >= 500
    return error_type not in _NEVER_AGAIN


def longest_retry_after(policy: RetryPolicy, next_due_seconds: float | None) -> float:
    """How long a target may have a job wait by its Retry-After.

    A day at most. Where the job's next instant, so many seconds ahead, would be held up, its author decides and not the
    target: up to that instant, or up to the longest wait of the job's own policy if that is more.
    """
    if next_due_seconds is None:
        return LONGEST_RETRY_AFTER
    own = max(policy.delays) if policy.delays else policy.max_delay_seconds
    return min(max(own, next_due_seconds), LONGEST_RETRY_AFTER)


def delay_seconds(
    policy: RetryPolicy, attempt: int, jitter: float, retry_after: float | None = None,
    longest: float = LONGEST_RETRY_AFTER,
) -> float:  # fmt: skip
    """The wait after the failed attempt number `attempt` (from 1).

    Computed backoff has full jitter, so that a thousand runs that failed together don't come back together. `delays`
    is taken at its word. A target's Retry-After is honoured when it is longer than that, up to `longest`.
    """
    delays = policy.delays
    delay = delays[min(attempt, len(delays)) - 1] if delays else _backoff(policy, attempt) * jitter
    if retry_after is not None and retry_after > 0:
        return max(delay, min(retry_after, longest))
    return delay


def own_delay_seconds(asked: float) -> float:
    """The wait that a job's own function asked for by Retry(after_seconds=…).

    It is taken at its word, be it shorter or longer than the retry policy's: unlike a target, the function is the
    job's own.
    """
    return min(max(0.0, asked), LONGEST_OWN_DELAY)  # in this order: of 0 and nan, it is 0


def _backoff(policy: RetryPolicy, attempt: int) -> float:
    first, ceiling = policy.initial_delay_seconds, policy.max_delay_seconds
    if policy.backoff == "fixed":
        return min(first, ceiling)
    if policy.backoff == "linear":
        return min(first * attempt, ceiling)
    # The exponent is capped: a factor of 100 to the power of 99 does not fit a float.
    return float(min(first * policy.backoff_factor ** min(attempt - 1, 64), ceiling))
