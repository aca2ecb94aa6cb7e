"""Explains in sentences what a job will do next, and what holds it now. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from duetime.domain.breaker import Circuit, explain_open
from duetime.domain.instants import LATEST, format_instant
from duetime.domain.job import JobSpec, JobStatus, Overlap, PythonJob
from duetime.domain.states import State

_OVERLAP = {
    Overlap.SKIP: "the next instant is skipped if it is still open by then (overlap: skip)",
    Overlap.ALLOW: "the next instant runs all the same (overlap: allow)",
    Overlap.QUEUE_ONE: "one instant waits for it to end, further ones are skipped (overlap: queue_one)",
    Overlap.QUEUE_ALL: "coming instants wait for it to end (overlap: queue_all)",
    Overlap.CANCEL_RUNNING: "the next instant cancels it (overlap: cancel_running)",
}


def explain(
    status: JobStatus, due_at: int | None, paused_by: str | None, paused_at: int | None, pause_reason: str | None,
    spec: JobSpec, open_states: Sequence[State], now: int, circuit: Circuit | None = None,
    waiting_at: int | None = None, is_overlap: bool = True, has_worker: bool = True,
) -> tuple[str, list[str]]:  # fmt: skip
    """Returns (a sentence about the next run, sentences about what holds the job). `circuit`: of its target.

    `waiting_at`: when the first waiting execution may start. `is_overlap`: open executions count for its overlap
    policy. `has_worker`: a worker that has the job's function is running.
    """
    holds = []
    if status is JobStatus.PAUSED:
        since = format_instant(paused_at) if paused_at is not None else "some time ago"
        holds.append(f"paused by {paused_by} at {since}: {pause_reason}; resume it to go on")
    counts = Counter(open_states)
    for state, words in (
        (State.RUNNING, "running"), (State.RETRYING, "waiting to be tried again"), (State.QUEUED, "waiting to start")
    ):  # fmt: skip
        if counts[state]:
            noun = "execution is" if counts[state] == 1 else "executions are"
            holds.append(f"{counts[state]} {noun} {words}")
    if waiting_at is not None and waiting_at > now:
        holds.append(f"the next one that waits is due at {format_instant(waiting_at)}, in {_span(waiting_at - now)}")
    if open_states and is_overlap and due_at is not None:
        holds.append(_OVERLAP[spec.overlap])
    if not has_worker and isinstance(spec, PythonJob) and (open_states or due_at is not None):
        holds.append(
            f"no worker has the function '{spec.payload.function}': it waits until one joins that does "
            "(`duetime worker module:app`)"
        )
    if circuit is not None and circuit.opened_at is not None:
        holds.append(f"{explain_open(circuit)}; until it answers, runs are skipped (circuit_open)")
    return _summary(status, due_at, spec, bool(open_states), now), holds


def explain_failure(state: State, scheduled_at: int, attempt: int, message: str | None) -> str | None:
    """Returns how an execution failed that has ended or is tried again; None for any other."""
    if state is State.RETRYING:
        return f"Attempt {attempt} of the execution that is tried again failed: {message}"
    if state in (State.FAILED, State.TIMEOUT):
        return f"Its last execution, of {format_instant(scheduled_at)}, failed: {message}"
    return None


def _summary(status: JobStatus, due_at: int | None, spec: JobSpec, is_open: bool, now: int) -> str:
    if status is JobStatus.CANCELLED:
        return "It is cancelled and will not run again."
    if status is JobStatus.PAUSED:
        return "It will not run until it is resumed."
    if due_at == LATEST:
        after = ", ".join(f"'{key}'" for key in spec.after)
        ended = f"when {after} {'has' if len(spec.after) == 1 else 'have'} ended (on: {spec.on})"
        return f"It will run {ended if after else 'when it is requested'}."
    if due_at is None:
        return "Its last run is under way; none follows." if is_open else "It has no run left."
    if due_at <= now:
        return f"It is due since {format_instant(due_at)} and about to run."
    return f"It will run at {format_instant(due_at)}, in {_span(due_at - now)}."


def _span(milliseconds: int) -> str:
    seconds = milliseconds // 1000
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
