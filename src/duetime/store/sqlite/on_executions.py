"""Commands on executions: claim, finish, release, cancel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from duetime.domain import commands as c
from duetime.domain.commands.executions import MOST_ENDPOINTS
from duetime.domain.errors import has_ended, no_execution
from duetime.domain.execution import AttemptEnd, Claim, without_retries
from duetime.domain.states import OPEN, State
from duetime.store.decoding import decode_held, given_up
from duetime.store.ended import uncounted
from duetime.store.sqlite.on_chains import Chains
from duetime.store.sqlite.statements import Statements, page

_tenant_and_state = attrgetter("tenant", "state")


class ExecutionCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements
        self._chains = Chains(statements)
        self._db.run("create_finishing")

    def claim_executions(self, command: c.ClaimExecutions) -> list[Claim]:
        self._db.check_node(command.node)
        claims: list[Claim] = []
        for tenant in command.tenants:
            if (limit := min(command.each, command.limit - len(claims))) > 0:
                claims += self._claim_of(command, tenant, limit)
        return claims

    def _claim_of(self, command: c.ClaimExecutions, tenant: str, limit: int) -> list[Claim]:
        values: dict[str, Any] = {"tenant": tenant, "now": command.now, "limit": limit, "bytes": command.bytes_each}
        if command.only:
            self._db.check_worker(command.node, tenant)
            row = self._db.row("list_claimable_only", **values, only=page(command.only))
        elif full := command.full_of(tenant):
            row = self._db.row("list_claimable_beside", **values, full=page(full), most=MOST_ENDPOINTS)
        else:
            row = self._db.row("list_claimable", **values)
        if row is None or row[0] is None:
            return []
        ids = row[0]
        before = self._db.states(ids)
        self._db.run("claim", ids=ids, node=command.node)
        self._db.count_change(before, self._db.states(ids))
        claimed = self._db.row("list_claimed", ids=ids)
        claims, apart = decode_held(Claim, claimed[0] if claimed else None)
        if apart:
            self.finish(c.Finish(command.node, command.now, tuple(given_up(row, command.now) for row in apart)))
        return claims

    def finish(self, command: c.Finish) -> list[str]:
        ends = self._without_retries_of_the_stopped(command.ends)
        refused: set[tuple[Any, ...]] = set()
        if not self._finish_executions(ends):
            refused = set(self._db.rows("finish_refused"))
            # By claim, not by id: a page may have a valid and a stale result of one execution, or the same one twice.
            by_claim = {(a.execution_id, a.attempt, a.token): a for a in ends}
            ends = tuple(end for claim, end in by_claim.items() if claim not in refused)
            self._finish_executions(ends)
        if ends:
            self._db.run("finish_attempts", node=command.node)
            self._db.count_completing()
            self._db.run("finish_timers")
            self._db.uncount(uncounted(ends))
            ended: Counter[tuple[str, str]] = Counter(map(_tenant_and_state, ends))
            moved = ended.copy()
            for (tenant, _), number in ended.items():
                moved[tenant, State.RUNNING] -= number
            self._db.count(moved)
            self._db.release_held(end.job_id for end in ends if end.state not in OPEN)
            self._chains.follow(ends, command.now)
        ids = [execution_id for execution_id, _, _ in refused]
        self._db.ended.add(ends, ids)
        return ids

    def _without_retries_of_the_stopped(self, ends: Sequence[AttemptEnd]) -> Sequence[AttemptEnd]:
        again = [end.execution_id for end in ends if end.state in OPEN]
        stopped = {row[0] for row in self._db.rows("list_to_stop", ids=page(again))} if again else None
        return without_retries(ends, stopped) if stopped else ends

    def _finish_executions(self, ends: Sequence[AttemptEnd]) -> bool:
        """Writes the ends. Returns False and writes none if one of them is refused."""
        self._db.run("clear_finishing")
        self._db.run("read_finishing", ends=page(ends))
        self._db.connection.execute("SAVEPOINT finishes")
        self._db.run("finish_executions")
        written = self._db.connection.changes() == len(ends)
        if not written:
            self._db.connection.execute("ROLLBACK TO finishes")
        self._db.connection.execute("RELEASE finishes")
        return written

    def release(self, command: c.Release) -> None:
        ids = page([claim.execution_id for claim in command.claims])
        before = self._db.states(ids)
        claims = page([(claim.execution_id, claim.attempt, claim.token) for claim in command.claims])
        self._db.run("release_claims", claims=claims, now=command.now)
        self._db.count_change(before, self._db.states(ids))

    def save_progress(self, command: c.SaveProgress) -> bool:
        claim = {"id": command.execution_id, "attempt": command.attempt, "token": command.token}
        if self._db.row("has_claim", **claim, tenant=command.tenant) is None:
            return False
        if command.value is None:
            self._db.run("clear_progress", id=command.execution_id)
        else:
            self._db.run("set_progress", id=command.execution_id, value=command.value)
        return True

    def cancel_execution(self, command: c.CancelExecution) -> State:
        row = self._db.row("get_execution_state", id=command.execution_id, tenant=command.tenant)
        if row is None:
            raise no_execution(command.execution_id)
        state, job_id = State(row[0]), row[1]
        if state not in OPEN:
            raise has_ended(command.execution_id, state)
        ids = page([command.execution_id])
        if state is State.RUNNING:
            self._db.run("request_cancel", ids=ids)
            self._db.note(command.audit, {"state": state}, {"state": state, "cancel_requested": True})
            return State.RUNNING
        self._db.run("cancel_waiting_by_id", ids=ids, reason="cancelled", now=command.now)
        self._db.count({(command.tenant, state): -1, (command.tenant, State.CANCELLED): 1})
        self._db.release_held([job_id])
        self._db.complete_jobs([job_id])
        self._db.note(command.audit, {"state": state}, {"state": State.CANCELLED})
        return State.CANCELLED
