"""Commands on executions: claim, finish, release, cancel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import asyncpg
import msgspec

from duetime.domain import commands as c
from duetime.domain.commands.executions import MOST_ENDPOINTS
from duetime.domain.errors import fenced, has_ended, no_execution
from duetime.domain.execution import AttemptEnd, Claim, without_retries
from duetime.domain.ids import instant_of
from duetime.domain.states import OPEN, State
from duetime.store.decoding import decode_held, given_up
from duetime.store.ended import uncounted
from duetime.store.postgres.columns import columns
from duetime.store.postgres.on_chains import Chains
from duetime.store.postgres.statements import SlowPathNeeded, Statements, day_of


class ExecutionCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements
        self._chains = Chains(statements)

    async def claim_executions(self, command: c.ClaimExecutions) -> list[Claim]:
        if not command.tenants:
            await self._db.check_node(command.node)
        crowded = {tenant for tenant, _ in command.full_endpoints}
        claims: list[Claim] = []
        if plain := [tenant for tenant in command.tenants if tenant not in crowded and not command.only]:
            claims += await self._claim(command, "claim", command.limit, tenants=plain, each=command.each)
        for tenant in command.tenants:
            limit = min(command.each, command.limit - len(claims))
            if limit <= 0:
                break
            if command.only:
                claims += await self._claim(command, "claim_only", limit, tenant=tenant, only=command.only)
            elif tenant in crowded:
                values = {"tenant": tenant, "full": command.full_of(tenant), "most": MOST_ENDPOINTS}
                claims += await self._claim(command, "claim_beside", limit, **values)
        return claims

    async def _claim(self, command: c.ClaimExecutions, block: str, limit: int, **values: Any) -> list[Claim]:
        row = await self._db.row(
            block, node=command.node, now=command.now, limit=limit, bytes=command.bytes_each, **values
        )
        assert row is not None
        if not row["is_alive"]:
            raise fenced(command.node)
        if row["claims"] is None:
            return []
        for tenant, was, day, number in msgspec.json.decode(row["was"]):
            self._db.moved[tenant, was, day] -= number
            self._db.moved[tenant, State.RUNNING, day] += number
        claims, apart = decode_held(Claim, row["claims"])
        if apart:
            await self.finish(c.Finish(command.node, command.now, tuple(given_up(row, command.now) for row in apart)))
        return claims

    async def finish(self, command: c.Finish) -> list[str]:
        if not command.ends:
            return []
        if self._db.on_slow_path:
            return await self._finish_on_slow_path(command)
        ends = command.ends
        ended: Sequence[AttemptEnd] = ends
        again: Sequence[AttemptEnd] = ()
        if any(end.state in OPEN for end in ends):
            ended = [end for end in ends if end.state not in OPEN]
            again = [end for end in ends if end.state in OPEN]
        await self._finish_page(command, ended, again)
        self._count(ends)
        self._db.pending.ended.add(ends, ())
        return []

    async def _finish_page(self, command: c.Finish, ended: Sequence[AttemptEnd], again: Sequence[AttemptEnd]) -> None:
        """Writes a page whose claims all hold, as in nearly every page. Otherwise raises SlowPathNeeded."""
        timers = _timers(ended, again)
        row = await self._db.row("finish_timers", **timers)
        assert row is not None
        is_good = row["counted"] == len(timers["jobs"])
        completed = row["completed"]
        has_held = has_followers = False
        try:
            if is_good and ended:
                values = _columns(ended)
                ids, jobs = values.pop("ids"), values.pop("jobs")
                row = await self._db.row(
                    "end_executions", any_completed=row["any_completed"], ids=ids, jobs=jobs, **columns(**values)
                )
                assert row is not None
                is_good = row["written"] == len(ended) and not row["goes_on"]
                has_held, has_followers = row["has_held"], row["has_followers"]
            if is_good and again:
                is_good = await self._db.value("retry_executions", **_columns(again)) == len(again)
        except asyncpg.UniqueViolationError:
            is_good = False
        if not is_good:
            raise SlowPathNeeded
        self._count_completed(completed)
        await self._db.uncount(uncounted(ended))
        if has_held:
            await self._db.run("release_held", jobs=sorted({end.job_id for end in ended}))
        if has_followers:
            await self._chains.follow(ended, command.now)

    async def _finish_on_slow_path(self, command: c.Finish) -> list[str]:
        await self._chains.lock(command.ends)
        ends, refused = await self._finish_executions(command)
        self._db.pending.ended.add(ends, refused)
        self._count(ends)
        ended = [end for end in ends if end.state not in OPEN]
        if ended:
            row = await self._db.row("finish_timers_on_slow_path", **_by_job(ended))
            assert row is not None
            self._count_completed(row["completed"])
            if row["has_held"]:
                await self._db.run("release_held", jobs=sorted({end.job_id for end in ended}))
            await self._db.uncount(uncounted(ended))
            await self._chains.follow(ended, command.now)
        return refused

    def _count_completed(self, by_tenant: str | None) -> None:
        if by_tenant is not None:
            self._db.count_completed(msgspec.json.decode(by_tenant, type=dict[str, int]))

    def _count(self, ends: Sequence[AttemptEnd]) -> None:
        if not ends:
            return
        ids = [end.execution_id for end in ends]
        day = day_of(min(ids))
        days = repeat(day) if day_of(max(ids)) == day else map(day_of, ids)  # ids sort by their instants
        moved = Counter(zip([a.tenant for a in ends], [a.state for a in ends], days, strict=False))
        for (tenant, state, day), number in moved.items():
            self._db.moved[tenant, state, day] += number
            self._db.moved[tenant, State.RUNNING, day] -= number

    async def _finish_executions(self, command: c.Finish) -> tuple[Sequence[AttemptEnd], list[str]]:
        """Returns the ends that were written, each once and as written, and the ids of the refused ones."""
        ends = command.ends
        row = await self._db.row(
            "finish_executions_on_slow_path", expected=len(ends), **_columns(ends),
            scheduled_ats=[instant_of(end.execution_id) for end in ends],
        )  # fmt: skip
        assert row is not None
        refused: list[str] = []
        written: Sequence[AttemptEnd] = ends
        if row["written"] is not None:
            # By claim, not by id: a page may have a valid and a stale result of one execution, or the same one twice.
            by_claim = {f"{a.execution_id} {a.attempt} {a.token}": a for a in ends}
            kept = set(row["written"])
            written = [end for claim, end in by_claim.items() if claim in kept]
            refused = [end.execution_id for claim, end in by_claim.items() if claim not in kept]
        if row["stopped"] is not None:
            written = without_retries(written, set(row["stopped"]))
        return written, refused

    async def release(self, command: c.Release) -> None:
        claims = command.claims
        for tenant, day, number in await self._db.rows(
            "release_claims", now=command.now, ids=[claim.execution_id for claim in claims],
            jobs=[claim.job_id for claim in claims], attempts=[claim.attempt for claim in claims],
            tokens=[claim.token for claim in claims],
        ):  # fmt: skip
            self._db.moved[tenant, State.RUNNING, day] -= number
            self._db.moved[tenant, State.QUEUED, day] += number

    async def save_progress(self, command: c.SaveProgress) -> bool:
        return bool(
            await self._db.value(
                "save_progress", id=command.execution_id, job=command.job_id, attempt=command.attempt,
                token=command.token, value=command.value, tenant=command.tenant,
            )
        )  # fmt: skip

    async def cancel_execution(self, command: c.CancelExecution) -> State:
        execution_id = command.execution_id
        row = await self._db.row(
            "get_execution_job", id=execution_id, at=instant_of(execution_id), tenant=command.tenant
        )
        if row is None:
            raise no_execution(execution_id)
        job_id = row["job"]
        await self._db.timer(command.tenant, job_id)
        state = await self._db.value("lock_open_execution", job=job_id, id=execution_id)
        if state is None:
            row = await self._db.row(
                "get_execution_job", id=execution_id, at=instant_of(execution_id), tenant=command.tenant
            )
            raise has_ended(execution_id, row["state"] if row is not None else "gone")
        if state == State.RUNNING:
            await self._db.run("request_cancel", jobs=[job_id], ids=[execution_id])
            self._db.note(command.audit, {"state": state}, {"state": state, "cancel_requested": True})
            return State.RUNNING
        await self._db.cancel_waiting([job_id], [execution_id], "cancelled", command.now)
        await self._db.release_held([job_id])
        await self._db.complete_jobs([job_id])
        self._db.note(command.audit, {"state": state}, {"state": State.CANCELLED})
        return State.CANCELLED


def _columns(ends: Sequence[AttemptEnd]) -> dict[str, list[Any]]:
    return {
        "ids": [a.execution_id for a in ends],
        "jobs": [a.job_id for a in ends],
        "attempts": [a.attempt for a in ends],
        "tokens": [a.token for a in ends],
        "states": [a.state for a in ends],
        "due_ats": [a.due_at for a in ends],
        "started_ats": [a.started_at for a in ends],
        "ended_ats": [a.ended_at for a in ends],
        "error_types": [a.error_type for a in ends],
        "error_messages": [a.error_message for a in ends],
        "http_statuses": [a.http_status for a in ends],
        "responses": [a.response for a in ends],
        "deads": [a.dead for a in ends],
        "exit_codes": [a.exit_code for a in ends],
        "reasons": [a.reason for a in ends],
    }


def _timers(ended: Sequence[AttemptEnd], again: Sequence[AttemptEnd]) -> dict[str, Any]:
    """Returns the changes to the jobs' timers, a row a job. A retry changes nothing, but locks its timer."""
    jobs = [a.job_id for a in ended]
    if not again and len(set(jobs)) == len(jobs):  # nearly always
        states = [a.state for a in ended]
        rows: dict[str, list[Any]] = {
            "runs": [0 if state is State.SKIPPED else 1 for state in states],
            "successes": [1 if state is State.COMPLETED else 0 for state in states],
            "failures": [1 if state in _FAILURES else 0 for state in states],
            "busy_ms": [_busy_ms(a) for a in ended],
            "last_run_ats": [a.ended_at for a in ended],
            "last_states": states,
        }
    else:
        rows = _by_job(ended)
        jobs = rows.pop("jobs")
        for job_id in {a.job_id for a in again} - set(jobs):
            for name, nothing in ("runs", 0), ("successes", 0), ("failures", 0), ("busy_ms", 0):
                rows[name].append(nothing)
            rows["last_run_ats"].append(None)
            rows["last_states"].append(None)
            jobs.append(job_id)
    return {"jobs": jobs, **columns(**rows)}


_FAILURES = (State.FAILED, State.TIMEOUT)


def _busy_ms(end: AttemptEnd) -> int:
    return 0 if end.started_at is None else max(end.ended_at - end.started_at, 0)


def _by_job(ended: Sequence[AttemptEnd]) -> dict[str, list[Any]]:
    """Returns what these ends add to their jobs' timers, a row a job. `last_…` is of the one that ended last."""
    names = ("jobs", "runs", "successes", "failures", "busy_ms", "last_run_ats", "last_states")
    rows: dict[str, tuple[Any, ...]] = {}
    for a in sorted(ended, key=lambda end: end.ended_at):
        _, runs, successes, failures, busy_ms, _, _ = rows.get(a.job_id, (None, 0, 0, 0, 0, None, None))
        rows[a.job_id] = (
            a.job_id, runs + (a.state is not State.SKIPPED), successes + (a.state is State.COMPLETED),
            failures + (a.state in _FAILURES), busy_ms + _busy_ms(a), a.ended_at, a.state,
        )  # fmt: skip
    return {name: [row[at] for row in rows.values()] for at, name in enumerate(names)}
