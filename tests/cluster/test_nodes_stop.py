"""An owner is suspended for longer than its lease and resumes later, as after a long collection or SIGSTOP.

Its state is old when it resumes: its shards have another owner, and its executions were taken over. It must write
nothing, join again, and get its share again. The last tests remove the fence, and the checker must report that.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.checker import Objectives
from cluster.cluster import Cluster
from cluster.processes import now_ms, wait_until
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow


def rest(since: int, seconds: float) -> None:
    """The fault: it takes this long."""
    wait_until(lambda: now_ms() >= since + seconds * 1000, seconds + 5, "the pause is over", 0.01)


class TestAStoppedOwner:
    def test_is_replaced_and_returns_with_another_term(self, cluster: Cluster) -> None:
        cluster.start("a", "b")
        begin = cluster.soon(1000)
        cluster.create_spread(400, begin, begin + cluster.lasting(4500), "/slow/0.1")
        wait_until(lambda: now_ms() > begin + 300, 10, "the load has begun", 0.005)
        before, stopped_at = cluster.database.epochs(), now_ms()
        cluster.pause("a")
        cluster.wait_for_shares("b")
        rest(stopped_at, 1.5 * cluster.lease)
        cluster.go_on("a")
        cluster.wait_for_shares("a", "b")
        assert all(now >= was for now, was in zip(cluster.database.epochs(), before, strict=True))
        assert "joins again" in cluster.nodes["a"].errors()
        cluster.wait_for_quiet()
        cluster.assert_green()

    def test_with_a_long_queue_in_memory_sends_nothing_when_it_resumes(self, cluster: Cluster) -> None:
        """Waits until other nodes have taken over the executions that it had claimed but not begun."""
        stop_in_a_burst(cluster, fault="")
        assert len(stale_requests(cluster)) <= BETWEEN_LOOK_AND_WRITE

    @pytest.mark.parametrize("moment", ["slots are open", "connecting"])
    def test_before_many_attempts_begin_sends_none_of_them(self, cluster: Cluster, moment: str) -> None:
        stop_in_a_burst(cluster, STOP_WHILE[moment])
        assert not stale_requests(cluster)

    def test_between_the_check_of_its_lease_and_a_write_sends_only_that_request(self, cluster: Cluster) -> None:
        stop_in_a_burst(cluster, STOP_WHILE["about to write"])
        assert len(stale_requests(cluster)) == BETWEEN_LOOK_AND_WRITE


# A node that is stopped for longer than its lease may send one request of all its claims when it resumes: the one that
# it was about to write after its check of the lease. One thread sends all requests, with a check before each; requests
# written before the stop are in the kernel, and arrived meanwhile. No process can check and write in one step: for
# that one request the target has the fencing token.
BETWEEN_LOOK_AND_WRITE = 1

STOPS = """
import os, signal
from duetime.engine.dispatcher import Dispatcher
from duetime.executors.connection import Connection
from duetime.executors.pool import ConnectionPool
stops = []
def stop():
    if not stops:
        stops.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)
"""
STOP_WHILE = {
    "slots are open": """
whole = Dispatcher._open_slots
def open_slots(self):
    before = len(self._slots)
    whole(self)
    if len(self._slots) >= before + 8:
        stop()
Dispatcher._open_slots = open_slots
""",
    "connecting": """
whole, opened = ConnectionPool._open, []
async def open_one(self, *arguments):
    opened.append(True)
    connection = await whole(self, *arguments)
    if len(opened) >= 16:
        stop()
    return connection
ConnectionPool._open = open_one
""",
    "about to write": """
whole, written = Connection.connection_made, []
class Transport:
    def __init__(self, transport):
        self.whole = transport
    def __getattr__(self, name):
        return getattr(self.whole, name)
    def write(self, request):
        written.append(True)
        if len(written) == 100:
            stop()
        self.whole.write(request)
Connection.connection_made = lambda self, transport: whole(self, Transport(transport))
""",
}


def stop_in_a_burst(cluster: Cluster, fault: str) -> None:
    """`a` stops at the point of the fault, or at any; `b` runs the whole burst; `a` resumes."""
    first = cluster.nodes["a"]
    first.start(faulty(first, STOPS + fault))
    cluster.start("b")
    at = cluster.soon(1500)
    cluster.create_spread(800, at, at, "/slow/0.1")
    if fault:
        wait_until(lambda: is_stopped(first.process.pid), 20, "it stops", 0.002)  # type: ignore[union-attr]
    else:
        wait_until(lambda: cluster.receiver.count() > 200, 20, "the burst has begun", 0.002)
    cluster.pause("a")
    cluster.wait_for_quiet()
    cluster.go_on("a")
    cluster.wait_for_shares("a", "b")
    cluster.wait_for_quiet()


def stale_requests(cluster: Cluster) -> set[str]:
    """Returns the executions that were requested although another node had them. Fails on any other fault."""
    report = cluster.check()
    assert report.verdicts <= {"STALE"}, report
    assert not cluster.database.stale_writes()
    return {sentence.split()[1] for sentence in report.faults["STALE"]}  # some have two sentences


# Stopped between its check of the lease and its write: the worst moment.
STOP_BEFORE_FIRE = """
import os, signal
from duetime.domain import commands
from duetime.store.postgres import PostgresStore
whole, fires = PostgresStore.apply, [0]
async def apply(self, commands_):
    if type(commands_[0]) is commands.Fire:
        fires[0] += 1
        if fires[0] == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
    return await whole(self, commands_)
PostgresStore.apply = apply
"""

# A successor that has fenced its shards and then hangs: only the epoch prevents a fire of the old owner.
HANGS_AFTER_FENCE = """
import asyncio, os
from duetime.engine.reconciler import Reconciler
from duetime.store.postgres import PostgresStore
async def let_go():
    while not os.path.exists("let-go"):
        await asyncio.sleep(0.01)
def held(method):
    async def wait(self, *arguments):
        await let_go()
        return await method(self, *arguments)
    return wait
PostgresStore.list_due_timers = held(PostgresStore.list_due_timers)
Reconciler._fence_nodes = held(Reconciler._fence_nodes)
"""

NO_EPOCHS = """
from duetime.store.postgres.on_due import DueCommands
async def check_nothing(self, epochs):
    return
DueCommands._check_epochs = check_nothing
"""


def stop_between_look_and_write(cluster: Cluster, fence: str) -> None:
    """`a` owns all shards and stops just before it fires; `b` fences the shards; `a` resumes; then `b` does too."""
    first, second = cluster.nodes["a"], cluster.add("b")
    first.start(faulty(first, STOP_BEFORE_FIRE + fence))
    cluster.database.watch_fires()
    cluster.wait_for_shares("a")
    at = cluster.soon(600)
    cluster.create_batch([cluster.at(at) for _ in range(50)])
    wait_until(lambda: is_stopped(first.process.pid), 10, "it stops before it fires")  # type: ignore[union-attr]
    second.start(faulty(second, HANGS_AFTER_FENCE))
    cluster.server = second
    fenced = (
        "SELECT count(DISTINCT e.shard) FROM shard_epochs AS e JOIN leases AS l ON l.node = e.node WHERE l.name = 'b'"
    )
    wait_until(lambda: cluster.database.rows(fenced)[0][0] == 64, 15, "the other has fenced all shards")
    cluster.go_on("a")
    wait_until(lambda: "joins again" in first.errors(), 15, "it detects that its lease is lost")
    cluster.wait_for_shares("a", "b")  # it has joined again: its pending write was applied or refused
    (second.folder / "let-go").touch()
    cluster.wait_for_quiet()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_the_write_of_an_owner_that_is_stopped_after_its_check_is_refused(cluster: Cluster) -> None:
    stop_between_look_and_write(cluster, fence="")
    said = cluster.nodes["a"].errors()
    assert "a fire was refused: another node owns the shard" in said
    report = cluster.assert_green(Objectives(most_repeated=0))
    assert report.counts["requests"] == 50


def test_without_the_fence_the_same_scenario_fails(cluster: Cluster) -> None:
    stop_between_look_and_write(cluster, fence=NO_EPOCHS)
    report = cluster.check()
    assert "STALE" in report.verdicts, report


# Stopped with an uncommitted fire: it holds locks on the shards, the timers and its own node.
STOP_BEFORE_COMMIT = """
import os, signal
from duetime.store.postgres import on_due, writer_connection
whole, fires = on_due.DueCommands.fire, []
async def fire(self, command):
    fired = await whole(self, command)
    fires.append(command)
    return fired
def crash_point(name):
    if name == "before_commit" and len(fires) == 1:
        fires.append(None)
        os.kill(os.getpid(), signal.SIGSTOP)
on_due.DueCommands.fire, writer_connection.crash_point = fire, crash_point
"""


def test_an_owner_that_is_stopped_in_its_transaction_does_not_block_the_next(
    cluster: Cluster,
) -> None:
    """The database ends a transaction whose client is silent."""
    first = cluster.nodes["a"]
    first.start(faulty(first, STOP_BEFORE_COMMIT))
    cluster.start("b")
    at = cluster.soon(800)
    cluster.create_batch([cluster.at(at) for _ in range(200)])
    wait_until(lambda: is_stopped(first.process.pid), 10, "it stops in its transaction")  # type: ignore[union-attr]
    cluster.server = cluster.nodes["b"]
    cluster.crashes.append(now_ms())
    cluster.wait_for_quiet()
    cluster.go_on("a")
    cluster.wait_for_shares("a", "b")
    report = cluster.assert_green()
    assert report.counts["requests"] == 200
