"""Commands of nodes, and housekeeping: start, stop, end, fence, prune."""

from __future__ import annotations

import msgspec

from duetime.domain import commands as c
from duetime.domain.errors import StaleEpoch
from duetime.domain.instants import DAY
from duetime.domain.worker_limits import cost_of_join
from duetime.store.postgres.partitions import drop_day, list_days
from duetime.store.postgres.statements import Statements


class NodeCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def start_node(self, command: c.StartNode) -> int:
        return int(await self._db.value("start_node", name=command.name, now=command.now))

    async def stop_node(self, command: c.StopNode) -> None:
        await self.end_nodes(c.EndNodes(command.now, (command.node,)))

    async def end_nodes(self, command: c.EndNodes) -> None:
        await self._db.run("end_nodes", nodes=command.nodes, now=command.now)

    async def end_workers(self, command: c.EndWorkers) -> list[int]:
        beats = dict(command.workers)
        rows = await self._db.rows("end_workers", workers=list(beats), beats=list(beats.values()), now=command.now)
        return sorted(row[0] for row in rows)

    async def join_worker(self, command: c.JoinWorker) -> int:
        functions = msgspec.json.encode(command.functions)
        if command.limits is not None:
            ((workers, name_bytes),) = await self._db.rows("count_workers", tenant=command.tenant)
            command.limits.check(workers, name_bytes, len(functions))
            self._db.take_quota(command.limits.quota(command.tenant), cost_of_join(len(functions)), command.now)
        return int(
            await self._db.value(
                "join_worker", name=command.name, now=command.now, tenant=command.tenant, user_id=command.user_id,
                functions=functions.decode(), slots=command.slots,
            )
        )  # fmt: skip

    async def beat_workers(self, command: c.BeatWorkers) -> list[int]:
        rows = await self._db.rows("beat_workers", workers=command.workers, now=command.now)
        alive = {row[0] for row in rows}
        return [worker for worker in command.workers if worker not in alive]

    async def fence_shards(self, command: c.FenceShards) -> None:
        await self._db.check_node(command.node)
        epochs = dict(command.shards)
        rows = await self._db.rows("fence_shards", node=command.node, shards=list(epochs), epochs=list(epochs.values()))
        for shard in sorted(epochs.keys() - {row[0] for row in rows}):
            raise StaleEpoch(shard, epochs[shard], await self._db.value("get_epoch", shard=shard))

    async def prune(self, command: c.Prune) -> int:
        by_age = min(command.before, command.skips_before)
        count = await drop_day(self._db, by_age)
        if not count:
            count = await self._prune_page(await self._row_by_row_before(command.before, by_age), command.limit)
        others = {
            "prune_skips": command.skips_before,
            "prune_idempotency_keys": command.keys_before,
            "prune_circuits": command.circuits_before,
            "prune_nodes": command.nodes_before if count < command.limit else 0,
            "prune_api_keys": command.revoked_before,
        }
        removed = [await self._db.remove(block, before=at, limit=command.limit) for block, at in others.items()]
        await self._db.run("prune_commits", limit=command.limit)
        return max(count, *removed)

    async def _row_by_row_before(self, before: int, by_age: int) -> int:
        """Returns the instant before which rows are removed one by one; spares a day that is soon dropped whole."""
        if before > by_age:  # by size: only the oldest rows go
            return before
        today = by_age // DAY
        return today * DAY if today in await list_days(self._db.connection) else before

    async def _prune_page(self, before: int, limit: int) -> int:
        count = 0
        for tenant, state, day, number in await self._db.rows("prune_executions", before=before, limit=limit):
            self._db.moved[tenant, state, day] -= number
            count += number
        return count
