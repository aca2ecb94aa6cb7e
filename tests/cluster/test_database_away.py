"""The database crashes, is unreachable, or has no connection left: the API reports it, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import asyncpg
import pytest

from cluster.cluster import Cluster
from cluster.processes import Client, now_ms, wait_until
from cluster.scenario import acknowledged
from patience import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

FAR = "2099-01-01T00:00:00Z"
CONNECTIONS = 18  # two nodes of the smallest size may have eight each, and the test needs some


class Asked(NamedTuple):
    what: str
    status: int
    retry_after: str | None


class Callers(threading.Thread):
    """A client that keeps reading and creating, and records each response."""

    def __init__(self, cluster: Cluster, client: Client) -> None:
        super().__init__()
        self._cluster = cluster
        self._client = client
        self._over = threading.Event()
        self.answers: list[Asked] = []

    def run(self) -> None:
        while not self._over.is_set():
            self._ask("GET", "/jobs?limit=1")
            self._ask("POST", "/jobs")
            self._ask("GET", "/health")
            self._over.wait(0.05)

    def _ask(self, method: str, path: str) -> None:
        body = self._cluster.body(FAR) if method == "POST" else None
        answer = self._client.request(method, path, body)
        self.answers.append(Asked(f"{method} {path}", answer.status, answer.headers.get("retry-after")))
        if answer.status == 201:
            self._cluster.jobs.append(acknowledged(body, answer.json()))  # type: ignore[arg-type]

    def end(self) -> list[Asked]:
        self._over.set()
        self.join(PATIENCE_SECONDS)
        return self.answers


@contextmanager
def people_who_ask(cluster: Cluster) -> Iterator[list[Callers]]:
    callers = [Callers(cluster, node.client) for node in cluster.nodes.values()]
    for caller in callers:
        caller.start()
    try:
        yield callers
    finally:
        for caller in callers:
            caller.end()


def assert_answered(callers: list[Callers], refused: bool) -> None:
    for caller in callers:
        assert {answer.status for answer in caller.answers} <= {200, 201, 503}, caller.answers
        for answer in caller.answers:
            if answer.status == 503 and answer.what != "GET /health":
                assert answer.retry_after is not None, answer
                assert int(answer.retry_after) >= 1, answer
        if refused:
            assert was_refused(caller), caller.answers


def was_refused(caller: Callers) -> bool:
    """Returns whether every kind of request got a 503 at least once."""
    answers = list(caller.answers)
    refused = {answer.what for answer in answers if answer.status == 503}
    return bool(refused) and refused == {answer.what for answer in answers}


def assert_heals(cluster: Cluster) -> None:
    for name, node in cluster.nodes.items():
        healthy = lambda client=node.client: client.get("/health").status == 200  # noqa: E731
        wait_until(healthy, 20, f"{name} is healthy again")
    cluster.wait_for_shares(*cluster.nodes)


def test_a_crash_of_the_database_in_the_middle_of_a_burst_loses_and_doubles_nothing(cluster: Cluster) -> None:
    cluster.start("a", "b")
    at = cluster.soon(1500)
    cluster.create_spread(1000, at, at, "/slow/0.1")
    with people_who_ask(cluster) as callers:
        wait_until(lambda: cluster.receiver.count() > 150, 20, "the burst has begun", 0.002)
        crashed_at = now_ms()
        cluster.database.server.restart("immediate")
        cluster.crashes += [crashed_at, now_ms()]
        cluster.wait_for_quiet(60)
    assert_answered(callers, refused=False)
    assert_heals(cluster)
    report = cluster.assert_green()
    assert report.counts["executions"] == 1000


def stay_away(cluster: Cluster, seconds: float) -> None:
    """The database is away during a burst; jobs are due all the time."""
    cluster.start("a", "b")
    seconds = cluster.lasting(seconds * 1000) / 1000
    begin = cluster.soon(1500)
    end = begin + round((seconds + 2) * 1000)
    cluster.create_spread(500, begin, begin, "/slow/0.05")
    cluster.create_spread(500, begin + 1, end)
    with people_who_ask(cluster) as before:
        wait_until(lambda: cluster.receiver.count() > 100, 20, "the burst has begun", 0.002)
        cluster.crashes.append(now_ms())
        cluster.database.server.stop("immediate")
    with people_who_ask(cluster) as meanwhile:
        gone_at = now_ms()
        wait_until(lambda: now_ms() > gone_at + seconds * 1000, seconds + 5, "it was away long enough")
    cluster.crashes.append(now_ms())
    cluster.database.server.start()
    assert_answered(before, refused=False)
    assert_answered(meanwhile, refused=True)
    assert not any(answer.status == 201 for caller in meanwhile for answer in caller.answers)
    assert_heals(cluster)
    cluster.wait_for_quiet(60)
    report = cluster.assert_green()
    assert report.counts["executions"] == 1000


def test_during_an_outage_requests_are_refused_in_time_and_due_executions_run_afterwards(cluster: Cluster) -> None:
    stay_away(cluster, 4)


@pytest.mark.soak
def test_an_outage_of_half_a_minute_loses_and_doubles_nothing(cluster: Cluster) -> None:
    stay_away(cluster, 30)


END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE backend_type = 'client backend' AND application_name <> 'hoard'"
)


class Hoard:
    """Other clients that take all connections, including those of the nodes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._full = threading.Event()
        self.trouble = ""
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold()), daemon=True)

    async def _hold(self) -> None:
        held: list[asyncpg.Connection] = []
        while not self._over.is_set():
            if len(held) == CONNECTIONS:
                self._full.set()
                await asyncio.sleep(0.02)
                continue
            try:
                if held:
                    await held[0].fetch(END_OTHERS)
                hoarded = {"application_name": "hoard"}
                held.append(await asyncpg.connect(self._url, timeout=2, server_settings=hoarded))
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                self.trouble = f"{len(held)} held: {error!r}"
        for connection in held:
            await connection.close()

    def __enter__(self) -> Hoard:
        self._thread.start()
        assert self._full.wait(PATIENCE_SECONDS), f"not all connections could be had: {self.trouble}"
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)


def test_a_node_recovers_by_itself_after_the_database_had_no_connections_left(cluster: Cluster) -> None:
    server = cluster.database.server
    server.restart(
        max_connections=str(CONNECTIONS), superuser_reserved_connections="0", max_wal_senders="0",
    )  # fmt: skip
    for name in ("a", "b"):
        cluster.add(name, DB_MAX_OPEN_CONNS="6")
    cluster.start("a", "b")
    begin = cluster.soon(1000)
    cluster.create_spread(400, begin, begin + cluster.lasting(5000))
    wait_until(lambda: now_ms() > begin + 300, 10, "the load has begun", 0.005)
    with people_who_ask(cluster) as callers:
        cluster.crashes.append(now_ms())
        with Hoard(cluster.database.url):
            emptied_at = now_ms()
            held_ms = 1.5 * cluster.lease * 1000
            wait_until(lambda: now_ms() > emptied_at + held_ms, 10, "they hold them for longer than a lease")
            wait_until(lambda: all(map(was_refused, callers)), 60, "each kind of request was refused")
        cluster.crashes.append(now_ms())
        assert_heals(cluster)
    cluster.wait_for_quiet(60)
    assert_answered(callers, refused=True)
    cluster.assert_green()
