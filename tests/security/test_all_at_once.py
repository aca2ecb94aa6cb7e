"""Two hostile tenants run all attacks at once, and a third one's jobs run on time: none is missing or doubled."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from api.people import Known, token
from cluster.processes import Server, wait_until
from node_forks import end_with_parent
from patience import PATIENCE_SECONDS
from security.inbox import Inbox, inbox
from security.nodes import STORES, nodes
from security.raw import MEGABYTE, peak_memory

ROOT = Path(__file__).parents[2]
INSTANTS = 4  # of the victim's job, under attack
MOST_GROWN = 250 * MEGABYTE  # a busy machine queues more; the benchmark measures the bound of an idle one


@contextmanager
def attacked(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """When the block begins, all attacks have begun."""
    tokens = [token(tenant, "mallory", "admin") for tenant in ("evil-1", "evil-2")]
    command = [sys.executable, "-m", "bench.attackers", str(port), *tokens]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, preexec_fn=end_with_parent) as attackers:
        try:
            assert attackers.stdout is not None
            assert attackers.stdout.readline() == b"ready\n"
            yield attackers
        finally:
            attackers.kill()


def seconds_served(box: Inbox) -> Counter[int]:
    """How often the victim's job ran for each of its instants."""
    instants = (one.headers["duetime-scheduled-at"] for one in box.at("/victim"))
    return Counter(round(datetime.fromisoformat(instant).timestamp()) for instant in instants)


@pytest.mark.parametrize("store", [STORES[0], pytest.param(STORES[1], marks=pytest.mark.slow)])
def test_a_victims_job_runs_every_second_under_all_attacks_at_once(store: str, tmp_path: Path) -> None:
    with inbox() as box, nodes(store, tmp_path) as servers:
        node: Server = servers[0]
        victim = Known(node.client.port, {"Authorization": f"Bearer {token('victim', 'ann')}"})
        catch_up = {"policy": "all", "window_seconds": 3600}
        victim.create("* * * * * *", box.url("/victim"), overlap="allow", catch_up=catch_up)
        wait_until(lambda: seconds_served(box), PATIENCE_SECONDS, "the victim's job has run")
        assert node.process is not None
        memory = peak_memory(node.process.pid)
        with attacked(node.client.port) as attackers:
            begun = len(seconds_served(box))
            wait_until(
                lambda: len(seconds_served(box)) >= begun + INSTANTS, PATIENCE_SECONDS, "it has run under attack"
            )
            assert victim.get("/jobs").status == 200
            assert attackers.poll() is None, "the attacks ended on their own"
        served = seconds_served(box)
        assert sorted(served) == list(range(min(served), max(served) + 1)), "an instant is missing"
        assert set(served.values()) == {1}, "an instant was served twice"
        assert peak_memory(node.process.pid) - memory < MOST_GROWN
