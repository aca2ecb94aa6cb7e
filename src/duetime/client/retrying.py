"""Decides which calls are retried, and when. Pure: the clients send and wait.

Retried are
- calls that may be repeated (Call.may_repeat), after a broken connection, or a 502 or 504 of a proxy;
- all calls that can't have had an effect: there was no connection, or Duetime responded 429 or 503;
- a create with its idempotency key, if the server is still busy with an earlier, interrupted try (409).
The client waits as long as the server asks (Retry-After). If that is too long, the error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from duetime.client.calls import IDEMPOTENCY_KEY, Answer, Call, read_problem
from duetime.client.errors import Problem, ServerAway

FIRST_WAIT_SECONDS = 0.25  # at most, and half of it at least; doubled with each try
LONGEST_WAIT_SECONDS = 30.0

_NOT_NOW = {"RATE_LIMIT_EXCEEDED", "QUOTA_EXCEEDED", "OVERLOADED"}
_UNDER_WAY = 409

Outcome = Answer | ServerAway


class Tries:
    """The tries of one call, or of one stream since its last chunk."""

    def __init__(self, retries: int, jitter: Callable[[], float]) -> None:
        self._retries = retries
        self._jitter = jitter
        self._failed = 0
        self._was_lost = False

    def start_over(self) -> None:
        """Resets the count of failures, after a success."""
        self._failed = 0

    def wait_after(self, call: Call[Any], outcome: Outcome) -> float | None:
        """Returns the seconds until the next try, or None if there is none."""
        wait = self._wait(outcome) if self._failed < self._retries and self._is_passing(call, outcome) else None
        self._failed += 1
        self._was_lost |= isinstance(outcome, ServerAway) and outcome.was_sent
        return wait

    def conclude(self, error: Exception) -> Exception:
        """Returns the error to raise, with a note if an earlier try may have been carried out."""
        if self._was_lost and isinstance(error, Problem):
            error.add_note("An earlier try of this call was interrupted, and may have been carried out.")
        return error

    def _wait(self, outcome: Outcome) -> float | None:
        asked = None if isinstance(outcome, ServerAway) else retry_after(outcome)
        if asked is not None:  # plus a little, so that clients do not retry together
            return asked + self._jitter() * FIRST_WAIT_SECONDS if asked <= LONGEST_WAIT_SECONDS else None
        most = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0**self._failed)
        return most / 2 + self._jitter() * most / 2

    def _is_passing(self, call: Call[Any], outcome: Outcome) -> bool:
        if isinstance(outcome, ServerAway):
            return call.may_repeat or not outcome.was_sent
        if call.accepts(outcome.status):
            return False
        if outcome.status == _UNDER_WAY:
            return self._was_lost and IDEMPOTENCY_KEY in call.headers
        if outcome.status in (429, 503):
            problem = read_problem(outcome)
            return call.may_repeat or (problem is not None and problem.error in _NOT_NOW)
        return outcome.status in (502, 504) and call.may_repeat


def retry_after(answer: Answer) -> float | None:
    """Returns the header Retry-After in seconds. A date, which only a proxy sends, is ignored."""
    said = answer.header("retry-after") or ""
    return float(said) if said.isascii() and said.isdigit() else None
