"""Commands of nodes and workers: start, join, beat, fence, stop, end."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.errors import StaleEpoch
from duetime.domain.worker_limits import cost_of_join
from duetime.store.postgres.statements import Statements, text_of


class NodeCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def start_node(self, command: c.StartNode) -> int:
        return int(await self._db.value("start_node", name=command.name, now=command.now))

    async def stop_node(self, command: c.StopNode) -> None:
        await self.fence_nodes(c.FenceNodes(command.now, (command.node,)))
        await self._db.run("remove_node_report", node=command.node)

    async def fence_nodes(self, command: c.FenceNodes) -> list[int]:
        rows = await self._db.rows("fence_nodes", nodes=command.nodes, now=command.now)
        return sorted(row[0] for row in rows)

    async def fence_workers(self, command: c.FenceWorkers) -> list[int]:
        beats = dict(command.workers)
        rows = await self._db.rows("fence_workers", workers=list(beats), beats=list(beats.values()), now=command.now)
        return sorted(row[0] for row in rows)

    async def join_worker(self, command: c.JoinWorker) -> int:
        functions = text_of(command.functions)
        if command.limits is not None:
            more = len(functions.encode())
            ((workers, name_bytes),) = await self._db.rows("count_workers", tenant=command.tenant)
            command.limits.check(workers, name_bytes, more)
            self._db.take_quota(command.limits.quota(command.tenant), cost_of_join(more), command.now)
        return int(await self._db.value("join_worker", **asdict(command) | {"functions": functions}))

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
