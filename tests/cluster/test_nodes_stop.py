"""An owner is stopped past its lease and goes on later, as after a long collection, a moved machine, or SIGSTOP.

What it comes back with is old: its shards have another owner, its runs were taken over. It must write nothing, join
anew, and get its share again. The last tests take the fence out, which must show.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.checker import Objectives
from cluster.cluster import Cluster
from cluster.processes import now_ms, wait_until
from cluster.test_planted_faults import faulty

pytestmark = pytest.mark.slow

LEASE = 2.0
MEASURING = 1.0


def rest(since: int, seconds: float) -> None:
    """The fault itself: it takes that long."""
    wait_until(lambda: now_ms() >= since + seconds * 1000, seconds + 5, "the pause is over", 0.01)


class TestAStoppedOwner:
    def test_is_replaced_and_comes_back_with_another_term(self, cluster: Cluster) -> None:
        cluster.start("a", "b")
        begin = now_ms() + 1500
        cluster.create_spread(700, begin, begin + 7000, "/slow/0.1")
        wait_until(lambda: now_ms() > begin + 500, 10, "the load has begun", 0.005)
        before, stopped_at = cluster.database.epochs(), now_ms()
        cluster.pause("a")
        took = cluster.seconds_until_owned("b", seconds=LEASE + 10)
        assert took < LEASE + MEASURING, f"the shards of the stopped were owned after {took:.2f} s"
        rest(stopped_at, 3 * LEASE)
        cluster.go_on("a")
        cluster.wait_for_shares("a", "b")
        assert all(now >= was for now, was in zip(cluster.database.epochs(), before, strict=True))
        assert "joining anew" in cluster.nodes["a"].errors()
        cluster.wait_for_quiet()
        cluster.assert_green(Objectives(lateness_most_ms=round((LEASE + MEASURING) * 1000)))

    def test_with_a_long_queue_in_memory_sends_none_of_it_when_it_comes_back(self, cluster: Cluster) -> None:
        """What it had claimed and not begun was given to others meanwhile."""
        cluster.start("a", "b")
        at = now_ms() + 2000
        cluster.create_spread(2000, at, at, "/slow/0.1")
        wait_until(lambda: cluster.receiver.count() > 300, 20, "the burst has begun", 0.002)
        cluster.pause("a")
        cluster.wait_for_quiet()  # the other has run all of it
        cluster.go_on("a")
        cluster.wait_for_shares("a", "b")
        cluster.wait_for_quiet()
        report = cluster.check()
        # What was on its way to a socket in that very moment still arrives: a request or two, not the queue.
        assert len(report.faults["STALE"]) <= 4, report
        assert not cluster.database.stale_writes()
        assert report.verdicts <= {"STALE"}, report


# Stopped between its look at the lease and its write: the worst moment there is.
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

# A successor that has sealed its shards and then hangs: nothing but the epoch stands between the old owner and a fire.
HANGS_AFTER_SEAL = """
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
Reconciler._end_nodes = held(Reconciler._end_nodes)
"""

NO_EPOCHS = """
from duetime.store.postgres.on_due import DueCommands
async def check_nothing(self, epochs):
    return
DueCommands._check_epochs = check_nothing
"""


def stop_between_look_and_write(cluster: Cluster, fence: str) -> None:
    """`a` owns all and stops just before it fires; `b` seals the shards; `a` goes on; then `b` does, too."""
    first, second = cluster.nodes["a"], cluster.add("b")
    first.start(faulty(first, STOP_BEFORE_FIRE + fence))
    cluster.database.watch_fires()
    cluster.wait_for_shares("a")
    at = now_ms() + 600
    cluster.create_batch([cluster.at(at) for _ in range(50)])
    wait_until(lambda: is_stopped(first.process.pid), 10, "it stops before it fires")  # type: ignore[union-attr]
    second.start(faulty(second, HANGS_AFTER_SEAL))
    cluster.server = second
    sealed = (
        "SELECT count(DISTINCT e.shard) FROM shard_epochs AS e JOIN leases AS l ON l.node = e.node WHERE l.name = 'b'"
    )
    wait_until(lambda: cluster.database.rows(sealed)[0][0] == 64, 15, "the other has sealed all shards")
    cluster.go_on("a")
    wait_until(lambda: "joining anew" in first.errors(), 15, "it learns that its lease is lost")
    cluster.wait_for_shares("a", "b")  # it is back: whatever it was about to write is written or refused
    (second.folder / "let-go").touch()
    cluster.wait_for_quiet()


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_an_owner_that_is_stopped_between_its_look_and_its_write_is_refused(cluster: Cluster) -> None:
    stop_between_look_and_write(cluster, fence="")
    said = cluster.nodes["a"].errors()
    assert "a fire was refused: another node owns the shard" in said
    report = cluster.assert_green(Objectives(most_repeated=0))
    assert report.counts["requests"] == 50


def test_without_the_fence_the_same_goes_red(cluster: Cluster) -> None:
    stop_between_look_and_write(cluster, fence=NO_EPOCHS)
    report = cluster.check()
    assert "STALE" in report.verdicts, report


# Stopped with a fire written and not committed: it holds locks on the shards, the timers and its own node.
STOP_BEFORE_COMMIT = """
import os, signal
from duetime.store.postgres import lane, on_due
whole, fires = on_due.DueCommands.fire, []
async def fire(self, command):
    fired = await whole(self, command)
    fires.append(command)
    return fired
def crash_point(name):
    if name == "before_commit" and len(fires) == 1:
        fires.append(None)
        os.kill(os.getpid(), signal.SIGSTOP)
on_due.DueCommands.fire, lane.crash_point = fire, crash_point
"""


def test_an_owner_that_is_stopped_in_its_transaction_holds_up_the_next_no_longer_than_its_lease(
    cluster: Cluster,
) -> None:
    """The database ends a transaction that it hears nothing more of."""
    first = cluster.nodes["a"]
    first.start(faulty(first, STOP_BEFORE_COMMIT))
    cluster.start("b")
    at = now_ms() + 800
    cluster.create_batch([cluster.at(at) for _ in range(200)])
    wait_until(lambda: is_stopped(first.process.pid), 10, "it stops in its transaction")  # type: ignore[union-attr]
    cluster.server = cluster.nodes["b"]
    cluster.crashes.append(now_ms())
    cluster.wait_for_quiet()
    cluster.go_on("a")
    cluster.wait_for_shares("a", "b")
    report = cluster.assert_green(Objectives(lateness_most_ms=round((LEASE + MEASURING) * 1000)))
    assert report.counts["requests"] == 200
