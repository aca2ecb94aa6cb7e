"""Checks of `duetime doctor`: judge measured values. Pure: values in, a status and sentences out.

These checks apply to every store. Checks of one store (its settings, its files) are in its own folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from duetime.domain.instants import MINUTE, SECOND
from duetime.domain.lease import ALERTS, TIMER, View

WORKER = "worker"
# Lateness beyond which a check warns, or reports a problem. A handover after a kill takes NODE_LEASE_SECONDS.
DUE_WARNING, DUE_PROBLEM = 2 * SECOND, MINUTE
WAITING_WARNING, WAITING_PROBLEM = 5 * SECOND, 5 * MINUTE
COUNTED = 10_000  # rows are counted up to here
SHOWN = 8  # items of a list in a sentence


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """`found`: a sentence about the state. `advice`: a sentence about what to do; empty if there is nothing to do."""

    check: str
    status: Status
    found: str
    advice: str = ""


def ok(check: str, found: str) -> Check:
    return Check(check, Status.OK, found)


def warning(check: str, found: str, advice: str) -> Check:
    return Check(check, Status.WARNING, found, advice)


def problem(check: str, found: str, advice: str) -> Check:
    return Check(check, Status.PROBLEM, found, advice)


def not_done(check: str, why: str, advice: str = "Solve this, and run the command again.") -> Check:
    """Returns the result of a check that could not be made. It counts as a problem."""
    return problem(check, f"This check could not be made: {why}.", advice)


def reason(error: BaseException) -> str:
    """Returns the error as part of a sentence."""
    lines = str(error).strip().splitlines()
    if lines:
        return lines[0].rstrip(".")
    return "there was no response in time" if isinstance(error, TimeoutError) else type(error).__name__


def has_problem(checks: Sequence[Check]) -> bool:
    return any(check.status is Status.PROBLEM for check in checks)


def schema(found: int, newest: int) -> Check:
    if found == newest:
        return ok("schema", f"The schema is {found}, the newest that this Duetime knows.")
    if found > newest:
        return problem(
            "schema", f"The schema is {found}, this Duetime knows {newest} at most: a newer one wrote it.",
            "Install that version here.",
        )  # fmt: skip
    if found == 0:
        return problem("schema", "Duetime has no tables here yet.", "Run `duetime migrate`, or start a node.")
    return warning(
        "schema", f"The schema is {found}, this Duetime brings {newest}.", "Run `duetime migrate`, or start a node."
    )


def due_timers(count: int, late: int) -> Check:
    """`count`: timers that are due in the past. `late`: by how many ms the earliest is."""
    if not count:
        return ok("due timers", "No timer is due in the past.")
    found = f"{how_many(count, 'timer')} due in the past, the earliest by {span(late)}."
    advice = "If it grows: is a node with the role timer alive, does each shard have an owner, are clocks right?"
    return _by_lateness("due timers", late, DUE_WARNING, DUE_PROBLEM, found, advice)


def waiting_executions(count: int, late: int) -> Check:
    """`count`: executions that could run and wait. `late`: for how many ms the earliest has waited."""
    if not count:
        return ok("waiting executions", "No execution waits for a worker.")
    found = f"{how_many(count, 'execution', 'waits', 'wait')} for a worker, the earliest for {span(late)}."
    advice = "Start more nodes with the role worker, or raise DISPATCHER_WORKERS or ENDPOINT_CONCURRENCY."
    return _by_lateness("waiting executions", late, WAITING_WARNING, WAITING_PROBLEM, found, advice)


def waiting_functions(count: int, late: int, workers: int, missing: Sequence[str] = ()) -> Check:
    """`count`: executions of Python functions that wait. `late`: for how many ms the earliest has waited.

    `missing`: names of functions that no worker has, up to SHOWN + 1.
    """
    if not count:
        joined = how_many(workers, "worker", "has", "have")
        return ok("waiting functions", f"No function waits for a worker; {joined} joined.")
    found = f"{how_many(count, 'function', 'waits', 'wait')} for a worker, the earliest for {span(late)}."
    if missing:
        more = ", …" if len(missing) > SHOWN else ""
        found += f" No worker has {', '.join(missing[:SHOWN])}{more}."
    advice = "Start workers that know them (`duetime worker module:app`), or raise their --concurrency."
    return _by_lateness("waiting functions", late, WAITING_WARNING, WAITING_PROBLEM, found, advice)


def lost_executions(count: int, since: int | None, reconcile_seconds: float) -> Check:
    """`count`: executions that are RUNNING on ended nodes. `since`: how many ms ago the first of these nodes ended."""
    if not count:
        return ok("lost executions", "No execution is held by a node that has ended.")
    found = f"{how_many(count, 'execution')} held by nodes that have ended."
    if since is not None and since > 2 * reconcile_seconds * SECOND:
        return problem(
            "lost executions", f"{found} The earliest ended {span(since)} ago.",
            "The reconciler should have returned them to the queue: see the log of the node that runs housekeeping.",
        )  # fmt: skip
    advice = "They run again when a node finds them: at its start, and after each RECONCILE_INTERVAL."
    return warning("lost executions", found, advice)


def nodes(view: View) -> Check:
    if not view.members:
        return problem("nodes", "No node is alive: nothing runs.", "Start one: `duetime serve --database-url …`.")
    listed = [
        f"{member.name} (id {member.node}; {', '.join(sorted(member.roles))}; "
        f"{len(view.held_by(member.node))} shards; lease ends in {span(max(0, member.expires_at - view.now))})"
        for member in view.members[:SHOWN]
    ]
    more = [f"and {len(view.members) - SHOWN} more"] if len(view.members) > SHOWN else []
    found = f"{how_many(len(view.members), 'node', 'lives', 'live')}: {', '.join([*listed, *more])}."
    for role, consequence in ((TIMER, "nothing falls due"), (WORKER, "nothing runs"), (ALERTS, "no alert is found")):
        if not any(role in member.roles for member in view.members):
            return problem("nodes", f"{found} None has the role {role}: {consequence}.", f"Start one with {role}.")
    return ok("nodes", found)


def unowned(view: View) -> tuple[int, ...]:
    """Returns the shards that no living node owns."""
    alive = {member.node for member in view.members}
    return tuple(shard for shard, holding in enumerate(view.shards) if holding.owner not in alive)


def shards(view: View) -> Check:
    free = unowned(view)
    if not free:
        return ok("shards", f"Each of the {len(view.shards)} shards has a living owner.")
    which = "all" if len(free) == len(view.shards) else some(free)
    return problem(
        "shards", f"{len(free)} of {len(view.shards)} shards have no living owner ({which}): their jobs don't fire.",
        "If it lasts longer than NODE_LEASE_SECONDS, start a node with the role timer, or see the nodes' logs.",
    )  # fmt: skip


def epochs(view: View, fenced: Mapping[int, tuple[int, int]]) -> Check:
    """Compares the epochs fenced in the store (shard: epoch, node) with those of the registry.

    The store refuses a node whose epoch is older than the fenced one. So after the registry was restored from a backup,
    for example, no node can fire with the epochs that it returns.
    """
    alive = {member.node for member in view.members}
    behind, open_ = [], []
    for shard, holding in enumerate(view.shards):
        epoch, node = fenced.get(shard, (0, 0))
        if epoch > holding.epoch or (epoch == holding.epoch and holding.owner not in (None, node)):
            behind.append(shard)
        elif epoch < holding.epoch and holding.owner in alive:
            open_.append(shard)
    if behind:
        return problem(
            "epochs", f"For shards {some(behind)} the registry is behind the store: their owners' fires are refused.",
            "Stop all nodes; UPDATE shards AS r SET epoch = s.epoch FROM shard_epochs AS s "
            "WHERE s.shard = r.shard AND s.epoch > r.epoch; start them again.",
        )  # fmt: skip
    if open_:
        return warning(
            "epochs", f"The owners of shards {some(open_)} have not fenced their epoch in the store yet.",
            "It takes a moment after a handover. If it lasts, see their logs.",
        )  # fmt: skip
    return ok("epochs", "The epochs fenced in the store are those of the registry.")


def how_many(count: int, what: str, verb: str = "is", verb_for_many: str = "are") -> str:
    number = f"{count:,}" if count <= COUNTED else f"More than {COUNTED:,}"
    return f"{number} {what} {verb}" if count == 1 else f"{number} {what}s {verb_for_many}"


def some(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers[:SHOWN]))
    return f"{listed}, … ({len(numbers)} in all)" if len(numbers) > SHOWN else listed


def span(ms: float) -> str:
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if ms >= 2 * size:
            return f"{ms / size:.0f} {unit}"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"


def size(count: float) -> str:
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= limit:
            return f"{count / limit:,.1f} {unit}"
    return f"{count:.0f} bytes"


def _by_lateness(check: str, late: int, bound: int, limit: int, found: str, advice: str) -> Check:
    if late <= bound:
        return ok(check, found)
    return (warning if late <= limit else problem)(check, found, advice)
