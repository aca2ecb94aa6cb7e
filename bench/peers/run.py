"""Measures one peer: give it the order, see that all was stored before the due instant, and read the sink."""

from __future__ import annotations

import contextlib
import select
import subprocess
import time
from collections.abc import Iterator

import msgspec

from bench import processes
from bench.arrivals import Arrival, Arrivals, Sink, burst_figures, recurring_figures
from bench.peers import setup
from bench.peers.catalogue import Peer
from bench.peers.order import Order
from bench.results import Skipped

IDLE_SECONDS = 20.0  # no arrival for this long after the last due instant: it has given up
STORE_TIMEOUT_SECONDS = 120.0


def burst(peer: Peer, sink: Arrivals, count: int) -> dict[str, float]:
    """Webhooks into the sink, or functions that note their call in the tally."""
    due_at, arrivals = _measure(peer, sink, "w2", count, 1)
    return burst_figures(arrivals, count, due_at)


def every_second(peer: Peer, sink: Sink, jobs: int, seconds: int) -> dict[str, float]:
    first_at, arrivals = _measure(peer, sink, "w3", jobs, seconds)
    return recurring_figures(arrivals, jobs, [first_at + number for number in range(seconds)])


def _measure(peer: Peer, sink: Arrivals, run: str, jobs: int, seconds: int) -> tuple[float, list[Arrival]]:
    """The first due instant and what arrived. A peer that was still storing by then gets a second, later instant."""
    peer.install()
    rows = jobs if peer.recurs else jobs * seconds
    lead_seconds = 3 + rows / peer.stores_per_second
    for _ in range(2):
        sink.reset()
        first_at = float(int(time.time() + lead_seconds) + 1)
        with _started(peer, sink, run, jobs, first_at, seconds) as stored_at:
            if stored_at < first_at - 0.5:
                last_at = first_at + seconds - 1
                sink.wait_for(jobs * seconds, idle_seconds=IDLE_SECONDS, until=last_at)
                return first_at, sink.arrivals(run)
        lead_seconds *= 3
    raise Skipped(f"{peer.name} could not store {rows} jobs in {lead_seconds / 3:.0f} s")


@contextlib.contextmanager
def _started(peer: Peer, sink: Arrivals, run: str, jobs: int, first_at: float, seconds: int) -> Iterator[float]:
    """The peer at work; yields when it had stored everything."""
    folder = processes.scratch("peer")
    instants = [int((first_at + number) * 1000) for number in range(seconds)]
    order = Order(run=run, jobs=jobs, instants=instants, folder=str(folder), **sink.where())
    with contextlib.ExitStack() as stack:
        stack.callback(processes.remove, folder)
        if peer.needs_postgres:
            order = msgspec.structs.replace(order, postgres=stack.enter_context(_postgres()))
        argument = msgspec.json.encode(order).decode()
        child = processes.start([*peer.command, argument, *peer.flags], stdout=subprocess.PIPE)
        stack.callback(processes.stop, child, 5.0)
        yield _wait_until_stored(peer, child)


def _wait_until_stored(peer: Peer, child: subprocess.Popen[bytes]) -> float:
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], STORE_TIMEOUT_SECONDS)
    if not ready or child.stdout.readline().strip() != b"stored":
        raise Skipped(f"{peer.name} did not store its jobs; its errors are above")
    return time.time()


@contextlib.contextmanager
def _postgres() -> Iterator[dict[str, str]]:
    """A fresh PostgreSQL for one measurement, so that no peer pays for another's dead rows."""
    setup.python_peers()
    folder = processes.scratch("postgres")
    folder.chmod(0o755)  # as root, the server runs as a user of its own
    child = processes.start(
        [setup.PYTHON, "-W", "ignore", "-m", "bench.peers.postgres", folder / "data"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        socket_folder = child.stdout.readline().decode().strip()
        if not socket_folder:
            raise Skipped("the bundled PostgreSQL did not start; its errors are above")
        yield {"host": socket_folder, "user": "postgres", "database": "postgres"}
    finally:
        assert child.stdin is not None
        child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(20)
        processes.stop(child)
        processes.remove(folder)
