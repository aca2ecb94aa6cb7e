"""The list of peers, and how each is started."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import msgspec

from bench.peers import setup
from bench.results import Skipped
from bench.scale import Scale


class Peer(msgspec.Struct, frozen=True):
    """`stores_per_second` is a low guess of how fast it takes jobs: the burst is set late enough for all of them."""

    name: str
    command: tuple[str, ...]  # the order follows as one more argument, then `flags`
    install: Callable[[], None]
    flags: tuple[str, ...] = ()
    stores_per_second: int = 5000
    burst: int = 0  # 0: as large as everybody's
    recurs: bool = False  # stores one job for all its instants
    slow: bool = False  # falls behind in W3, so a quick look leaves it out there
    needs_postgres: bool = False
    note: str = ""

    def burst_of(self, scale: Scale) -> int:
        return int(self.burst * scale.burst_share) if self.burst else scale.burst


def _python(module: str) -> tuple[str, ...]:
    return (str(setup.PYTHON), "-m", f"bench.peers.{module}")


def _redis() -> None:
    if shutil.which("redis-server") is None:
        raise Skipped("Celery needs a redis-server, which is not on this machine")
    setup.python_peers()


AHEAD = "in W3 each instant was stored ahead as a job of its own"

PEERS = (
    Peer(
        name="APScheduler 3, SQLite",
        command=_python("apscheduler3"),
        flags=("sqlite",),
        recurs=True,
        slow=True,
        install=setup.python_peers,
        stores_per_second=200,
        burst=5_000,
    ),
    Peer(
        name="APScheduler 3, SQLite with WAL",
        command=_python("apscheduler3"),
        flags=("sqlite-wal",),
        recurs=True,
        note="a journal mode that its documentation doesn't mention",
        install=setup.python_peers,
        stores_per_second=350,
        burst=5_000,
    ),
    Peer(
        name="APScheduler 3, in memory",
        command=_python("apscheduler3"),
        flags=("memory",),
        recurs=True,
        install=setup.python_peers,
    ),
    Peer(
        name="Procrastinate 3, PostgreSQL",
        command=_python("procrastinate3"),
        slow=True,
        install=setup.python_peers,
        needs_postgres=True,
        note=AHEAD,
    ),
    Peer(
        name="pg-boss 12, PostgreSQL",
        command=("node", str(setup.PGBOSS / "peer.js")),
        install=setup.pgboss,
        needs_postgres=True,
        note=AHEAD,
    ),
    Peer(
        name="Celery 5, Redis",
        command=_python("celery5"),
        install=_redis,
        stores_per_second=500,
    ),
)

FUNCTION_PEERS = (
    Peer(
        name="APScheduler 3, SQLite",
        command=_python("apscheduler3_functions"),
        flags=("sqlite",),
        install=setup.python_peers,
        stores_per_second=200,
        burst=5_000,
        note="fewer calls, for it takes them slowly; they run in two threads, which is quicker than two processes",
    ),
    Peer(
        name="APScheduler 3, SQLite with WAL",
        command=_python("apscheduler3_functions"),
        flags=("sqlite-wal",),
        install=setup.python_peers,
        stores_per_second=350,
        burst=5_000,
        note="the same, with a journal mode that its documentation doesn't mention",
    ),
    Peer(
        name="Celery 5, Redis",
        command=_python("celery5_functions"),
        install=_redis,
        stores_per_second=500,
        note="it keeps no results and acknowledges before the call; Duetime has every call's end on disk",
    ),
)
