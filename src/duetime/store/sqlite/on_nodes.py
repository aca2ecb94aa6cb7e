"""Commands of nodes and workers: start, join, beat, fence, stop, end."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain.worker_limits import cost_of_join
from duetime.store.sqlite.statements import Statements, page


class NodeCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def start_node(self, command: c.StartNode) -> int:
        self._db.run("fence_namesakes", name=command.name, now=command.now)
        return int(self._db.value("start_node", name=command.name, now=command.now))

    def stop_node(self, command: c.StopNode) -> None:
        self._db.run("stop_node", node=command.node, now=command.now)
        self._db.run("remove_node_report", node=command.node)

    def fence_nodes(self, command: c.FenceNodes) -> list[int]:
        fenced = self._db.rows("fence_nodes", nodes=page(command.nodes), now=command.now)
        self._db.run("fence_workers", nodes=page(command.nodes))
        return sorted(row[0] for row in fenced)

    def fence_workers(self, command: c.FenceWorkers) -> list[int]:
        fenced = sorted(row[0] for row in self._db.rows("fence_silent_workers", workers=page(command.workers)))
        self._db.run("fence_nodes", nodes=page(fenced), now=command.now)
        return fenced

    def join_worker(self, command: c.JoinWorker) -> int:
        functions = page(command.functions)
        if command.limits is not None:
            more = len(functions.encode())
            ((workers, name_bytes),) = self._db.rows("count_workers", tenant=command.tenant)
            command.limits.check(workers, name_bytes, more)
            self._db.take_quota(command.limits.quota(command.tenant), cost_of_join(more), command.now)
        node = int(self._db.value("start_node", name=command.name, now=command.now))
        self._db.run("add_worker", **asdict(command) | {"functions": functions, "node": node})
        return node

    def beat_workers(self, command: c.BeatWorkers) -> list[int]:
        alive = {row[0] for row in self._db.rows("beat_workers", workers=page(command.workers), now=command.now)}
        return [worker for worker in command.workers if worker not in alive]

    def fence_shards(self, command: c.FenceShards) -> None:
        self._db.check_node(command.node)
        self._db.check_epochs("get_later_epoch", shards=page(command.shards), node=command.node)
        self._db.run("fence_shards", shards=page(command.shards), node=command.node)
