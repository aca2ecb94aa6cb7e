"""Several nodes on one database, a receiver, and the jobs that were acknowledged."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

from cluster.checker import AcknowledgedJob, History, Objectives, Report
from cluster.database import Database
from cluster.processes import Answer, Receiver, Server, now_ms, wait_until
from cluster.scenario import Body, Scenario
from patience import PATIENCE_SECONDS

SHARDS = 64
BATCH = 1000
FAR_SECONDS = 3600  # tests do not wait for jobs that are due later than that


class Cluster(Scenario):
    """`server` is the node that the test uses: always a running one."""

    def __init__(self, folder: Path, receiver: Receiver, database: Database, **settings: str) -> None:
        self.database = database
        self.nodes: dict[str, Server] = {}
        self._folder = folder
        self._settings = {"DATABASE_URL": database.url, "LOG_LEVEL": "info", **settings}
        super().__init__(self.add("a"), receiver)

    @property
    def lease(self) -> float:
        """Seconds."""
        return float(self._settings["NODE_LEASE_SECONDS"].rstrip("s"))

    def add(self, name: str, **settings: str) -> Server:
        """Returns a node that is not started yet."""
        node = Server(self._folder / name, **{**self._settings, "NODE_NAME": name, **settings})
        self.nodes[name] = node
        return node

    def start(self, *names: str, **settings: str) -> None:
        """Starts these nodes, and waits until the shards are spread over all running nodes."""
        for name in names:
            node = self.nodes.get(name) or self.add(name)
            node.start(**settings)
        if not self.database.rows("SELECT FROM pg_tables WHERE tablename = 'stale_fires'"):
            self.database.watch_fires()
        self.server = self.nodes[self.up()[0]]
        self.wait_for_shares(*self.up())

    def up(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.process is not None and node.returncode() is None]

    def wait_for_shares(self, *names: str, seconds: float = 15.0) -> None:
        """Waits until these nodes own all shards, evenly."""

        def spread() -> bool:
            shares = self.database.shards()
            even = max(shares.values(), default=0) - min(shares.values(), default=0) <= 1
            return set(shares) == set(names) and sum(shares.values()) == SHARDS and even

        wait_until(spread, seconds, f"the shards are spread over {', '.join(names)}")

    def seconds_until_owned(self, *names: str, seconds: float) -> float:
        """Returns how long it takes until these own all shards; measured from outside, so slightly too long."""
        begin = time.monotonic()
        self.wait_for_shares(*names, seconds=seconds)
        return time.monotonic() - begin

    # Faults of nodes

    def kill_node(self, name: str) -> None:
        """kill -9."""
        self.nodes[name].kill()
        self.crashes.append(now_ms())
        self._lean_on_another(name)

    def terminate(self, name: str) -> None:
        self.nodes[name].signal(signal.SIGTERM)
        self._lean_on_another(name)

    def pause(self, name: str) -> None:
        self.nodes[name].signal(signal.SIGSTOP)
        self.crashes.append(now_ms())  # results that it had not written are retried, as after a crash
        self._lean_on_another(name)

    def go_on(self, name: str) -> None:
        self.nodes[name].signal(signal.SIGCONT)

    def _lean_on_another(self, name: str) -> None:
        self.server = next((self.nodes[other] for other in self.up() if other != name), self.server)

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    # Actions of a client

    def insist(self, path: str, body: Body, key: str) -> Answer:
        """Sends a request to one node after the other, with the same key, until one has accepted it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            for name in list(self.nodes):
                try:
                    answer = self.nodes[name].client.post(path, body, idempotency_key=key)
                except ConnectionError:
                    continue
                if answer.status not in (409, 503):
                    return answer
            time.sleep(0.01)
        raise AssertionError(f"no node took {key} for a minute")

    def create_spread(self, count: int, first_at: int, last_at: int, path: str = "/ok", **fields: Any) -> None:
        """Creates one-off jobs at even intervals, in pages."""
        step = (last_at - first_at) / max(1, count - 1)
        bodies = [self.at(first_at + round(number * step), path, **fields) for number in range(count)]
        for begin in range(0, count, BATCH):
            self.create_batch(bodies[begin : begin + BATCH])

    @contextmanager
    def steady_load(self, path: str) -> Iterator[None]:
        """Jobs are created and due during the whole block; no node may be stopped by SIGSTOP meanwhile."""
        over = Event()

        def create() -> None:
            while not over.wait(0.01):
                for body in (self.body("immediate", path), self.at(self.soon(1000), path)):
                    answer = self.insist("/jobs", body, str(uuid.uuid4()))
                    if answer.status != 400:  # otherwise no node accepted it before it was due
                        self._acknowledge(body, answer)

        with ThreadPoolExecutor(1) as pool:
            creating = pool.submit(create)
            try:
                yield
            finally:
                over.set()
            creating.result()

    def wait_for_requests(self, more: int) -> None:
        """Waits for this many more requests than the receiver has now."""
        wanted = self.receiver.count() + more
        wait_until(lambda: self.receiver.count() >= wanted, 60, f"{more} more requests", 0.005)

    # Results

    def _is_quiet(self) -> bool:
        """Reads all states in one query: an execution that changes between two queries would be in neither."""
        far = now_ms() + FAR_SECONDS * 1000
        (row,) = self.database.rows(
            "SELECT (SELECT count(*) FROM open_runs) AS open, "
            f"(SELECT count(*) FROM timers WHERE due_at < {far}) AS coming"
        )
        return not row["open"] and not row["coming"]

    def assert_green(self, objectives: Objectives = Objectives()) -> Report:  # noqa: B008 (frozen)
        """The totals of the API are counters: they must be correct after all faults."""
        report = super().assert_green(objectives)
        total = lambda query: self.server.client.get(f"/executions?limit=1{query}").json()["total"]  # noqa: E731
        assert [total(f"&state={state}") for state in ("QUEUED", "RUNNING", "RETRYING")] == [0, 0, 0]
        assert total("") == report.counts["executions"]
        return report

    def history(self, jobs: Iterable[AcknowledgedJob] | None = None) -> History:
        return replace(super().history(jobs), stale_writes=self.database.stale_writes())

    def errors(self) -> str:
        return "\n".join(f"--- {name}\n{node.errors()[-3000:]}" for name, node in self.nodes.items())
