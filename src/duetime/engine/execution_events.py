"""The events of executions, published a page at a time. In a burst, most of them are only counted."""

from __future__ import annotations

from collections.abc import Sequence

from duetime.domain.execution import AttemptEnd, Claim
from duetime.domain.instants import format_instant
from duetime.domain.plan import NewExecution, Skipped
from duetime.domain.states import State
from duetime.events import EventHub

STARTED = "execution.started"
SKIPPED = "execution.skipped"
CANCELLED = "execution.cancelled"
_KINDS = {state: f"execution.{state.lower()}" for state in State}


def publish_ends(events: EventHub, ends: Sequence[AttemptEnd]) -> None:
    """Publishes attempts whose ends were written."""
    states, tenants, kinds = [end.state for end in ends], [end.tenant for end in ends], _KINDS
    if ends and states.count(states[0]) == len(ends):  # nearly all pages
        events.publish_alike(kinds[states[0]], tenants, lambda place: _ended(ends[place]))
        return
    pairs = [(tenant, kinds[state]) for tenant, state in zip(tenants, states, strict=True)]
    events.publish_all(pairs, lambda place: _ended(ends[place]))


def _ended(end: AttemptEnd) -> tuple[int, dict[str, object]]:
    return end.ended_at, {
        "execution_id": end.execution_id,
        "job_id": end.job_id,
        "state": end.state,
        "attempt": end.attempt,
        "http_status": end.http_status,
        "error_type": end.error_type,
    }


def publish_started(events: EventHub, claims: Sequence[Claim], now: int) -> None:
    """Publishes executions that a node or a worker has claimed: it starts their attempts now."""

    def started(place: int) -> tuple[int, dict[str, object]]:
        claim = claims[place]
        return now, {
            "execution_id": claim.execution_id,
            "job_id": claim.job_id,
            "state": State.RUNNING,
            "attempt": claim.attempt,
            "scheduled_at": format_instant(claim.scheduled_at),
        }

    events.publish_alike(STARTED, [claim.tenant for claim in claims], started)


def publish_overlaps(events: EventHub, executions: Sequence[NewExecution], now: int) -> None:
    """Publishes executions that were skipped because an earlier one of their job is open."""

    def skipped(place: int) -> tuple[int, dict[str, object]]:
        one = executions[place]
        return now, {
            "execution_id": one.execution_id,
            "job_id": one.job_id,
            "state": State.SKIPPED,
            "reason": "overlap",
            "count": 1,
            "scheduled_at": format_instant(one.scheduled_at),
        }

    events.publish_all([(one.tenant, SKIPPED) for one in executions], skipped)


def publish_skips(events: EventHub, skips: Sequence[Skipped], now: int) -> None:
    """Publishes spans of instants that do not run: one event each."""
    events.publish_all([(skip.tenant, SKIPPED) for skip in skips], lambda place: (now, skips[place].as_event()))
