"""Faults around a node: the disk is full, the file is damaged, two servers share a folder, a target hangs."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.checker import Objectives, instant
from cluster.processes import Answer, Receiver, Server, now_ms, wait_until
from cluster.scenario import Scenario, acknowledged
from patience import PATIENCE_SECONDS

FAR = "2099-01-01T00:00:00Z"
KILOBYTE = 1024


def limit_file_size(server: Server, size: int) -> None:
    assert server.process is not None
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def fill(scenario: Scenario) -> Answer:
    """Creates jobs until one is refused, and records the acknowledged ones."""
    for _ in range(2000):
        body = scenario.body(FAR, description="x" * 2000)
        answer = scenario.server.client.post("/jobs", body)
        if answer.status != 201:
            return answer
        scenario.jobs.append(acknowledged(body, answer.json()))
    raise AssertionError("the disk was never full")


def assert_refused_for_now(answer: Answer) -> None:
    assert answer.status == 503, answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"] == "OVERLOADED"
    assert "nothing was" in answer.json()["message"]


def assert_heals(scenario: Scenario) -> None:
    client = scenario.server.client

    def created() -> bool:
        body = scenario.body(FAR)
        answer = client.post("/jobs", body)
        if answer.status == 201:
            scenario.jobs.append(acknowledged(body, answer.json()))
        return answer.status == 201

    wait_until(created, 15, "creates are taken again")
    wait_until(lambda: client.get("/health").status == 200, 15, "it is healthy again")


def stored_jobs(scenario: Scenario) -> set[str]:
    return {job["job_id"] for job in scenario.server.client.pages("/jobs", "jobs")}


class TestDiskFull:
    @pytest.mark.slow
    def test_a_create_on_a_full_disk_is_refused_and_accepted_when_there_is_room(self, scenario: Scenario) -> None:
        scenario.server.start()
        limit_file_size(scenario.server, 600 * KILOBYTE)

        def health_when_full() -> Answer | None:
            """Between a create that does not fit and the check, something smaller may have fitted."""
            assert_refused_for_now(fill(scenario))
            health = scenario.server.client.get("/health?verbose=true")
            return health if health.status == 503 else None

        health = wait_until(health_when_full, PATIENCE_SECONDS, "it says that the disk is full").json()
        assert health["status"] == "unhealthy"
        assert "unhealthy" in health["components"]["database"]
        limit_file_size(scenario.server, resource.RLIM_INFINITY)
        assert_heals(scenario)
        scenario.kill()
        scenario.server.start()
        assert stored_jobs(scenario) == {job.job_id for job in scenario.jobs}

    @pytest.mark.slow
    def test_executions_that_end_on_a_full_disk_are_late_and_not_lost(self, scenario: Scenario) -> None:
        server = scenario.server.start()
        slow = f"/slow/{scenario.lasting(1500) / 1000}"  # none has ended before the disk is full
        scenario.create_batch([scenario.at(scenario.soon(300), slow) for _ in range(20)])
        running = "/executions?state=RUNNING&limit=1"
        wait_until(lambda: server.client.get(running).json()["total"] == 20, 10, "all are running")
        limit_file_size(server, 1)
        wait_until(lambda: scenario.receiver.count() == 20, 10, "all were answered")
        wait_until(lambda: server.client.get("/health").status == 503, 10, "their results don't fit")
        limit_file_size(server, resource.RLIM_INFINITY)
        scenario.wait_for_quiet()
        report = scenario.assert_green(Objectives(most_repeated=0))
        assert report.counts["requests"] == 20

    @pytest.mark.slow
    def test_nothing_is_lost_on_a_small_file_system(self, receiver: Receiver, small_disk: Path) -> None:
        server = Server(small_disk / "server")
        scenario = Scenario(server, receiver)
        try:
            server.start()
            ballast = small_disk / "ballast"
            room = os.statvfs(small_disk)
            ballast.write_bytes(bytes(max(0, room.f_bavail * room.f_frsize - 400 * KILOBYTE)))
            assert_refused_for_now(fill(scenario))
            assert "the disk is full" in server.client.post("/jobs", scenario.body(FAR)).json()["message"]
            ballast.unlink()
            assert_heals(scenario)
            assert stored_jobs(scenario) == {job.job_id for job in scenario.jobs}
        finally:
            server.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True, check=False
        ).returncode
    )
    if not mounted:
        pytest.skip("only root may mount a small file system; the limit on file sizes tests the same path")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)


class TestDamage:
    def stop_with_jobs(self, scenario: Scenario) -> Path:
        scenario.server.start()
        scenario.create_batch([scenario.body(FAR, name=f"job {number}") for number in range(500)])
        scenario.server.process.terminate()  # type: ignore[union-attr]
        assert scenario.server.wait(10) == 0
        return scenario.server.data / "duetime.db"

    def assert_stops_loudly(self, server: Server, *words: str) -> None:
        server.launch()
        assert server.wait(15) == 1, server.errors()
        said = " ".join(server.errors().split())
        assert "duetime:" in said
        for word in words:
            assert word in said
        assert "Traceback" not in said

    def test_a_damaged_page_stops_the_start_with_an_error(self, scenario: Scenario) -> None:
        file = self.stop_with_jobs(scenario)
        content = bytearray(file.read_bytes())
        for page in range(2, len(content) // 4096, 3):
            content[page * 4096 : page * 4096 + 64] = os.urandom(64)
        file.write_bytes(content)
        self.assert_stops_loudly(scenario.server, "damaged", "Restore", "backup")
        assert file.read_bytes() == content  # nothing was changed

    def test_a_file_that_is_not_a_database_stops_the_start_with_an_error(self, scenario: Scenario) -> None:
        file = self.stop_with_jobs(scenario)
        file.write_bytes(b"This was a database once." * 1000)
        self.assert_stops_loudly(scenario.server, "damaged")

    def test_a_database_of_a_newer_version_stops_the_start_with_an_error(self, scenario: Scenario) -> None:
        file = self.stop_with_jobs(scenario)
        content = bytearray(file.read_bytes())
        content[60:64] = (9999).to_bytes(4, "big")  # PRAGMA user_version
        file.write_bytes(content)
        self.assert_stops_loudly(scenario.server, "schema 9999", "newer")

    def test_a_wal_cut_off_in_the_middle_loses_no_commit_before_the_cut(self, scenario: Scenario) -> None:
        """The end of the write-ahead log never reached the disk. Everything that was synced before it stays."""
        scenario.server.start()
        scenario.create(scenario.body(FAR, name="before"))
        wal = scenario.server.data / "duetime.db-wal"
        synced = wal.stat().st_size
        scenario.server.client.post("/jobs", scenario.body(FAR, name="after"))
        scenario.kill()
        content = wal.read_bytes()
        wal.write_bytes(content[: synced + (len(content) - synced) // 2])
        scenario.server.start()
        assert [job.job_id for job in scenario.jobs] == [
            job["job_id"] for job in scenario.server.client.get("/jobs").json()["jobs"]
        ]


class TestTwoServers:
    def test_a_second_server_on_the_same_folder_stops_with_an_error(self, scenario: Scenario) -> None:
        first = scenario.server.start()
        second = Server(first.folder.parent / "second")
        second.data = first.data
        second.launch()
        assert second.wait(15) == 1
        said = " ".join(second.errors().split())
        assert "in use by another Duetime" in said
        assert str(first.process.pid) in said  # type: ignore[union-attr]
        assert first.client.get("/health").status == 200

    def test_a_used_port_stops_the_start_with_an_error(self, scenario: Scenario) -> None:
        first = scenario.server.start()
        second = Server(first.folder.parent / "second")
        command = [*first.process.args, "--port", str(first.client.port)]  # type: ignore[union-attr, misc]
        command[command.index(str(first.data))] = str(second.data)
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False, cwd=second.folder
        )
        assert ended.returncode == 1
        assert "duetime:" in ended.stderr
        assert "Traceback" not in ended.stderr


class TestHostileTarget:
    @pytest.mark.slow
    def test_a_target_that_hangs_does_not_delay_the_jobs_of_another(self, scenario: Scenario, tmp_path: Path) -> None:
        (tmp_path / "hostile").mkdir()
        hostile = Receiver(tmp_path / "hostile")
        try:
            server = scenario.server.start()
            for _ in range(3):  # hundreds that hang, the first ones long before the healthy jobs are due
                bodies = [
                    {**scenario.body("immediate", timeout_seconds=600), "payload": {"url": hostile.url("/hang")}}
                    for _ in range(200)
                ]
                assert server.client.post("/jobs:batch", bodies).json()["created_count"] == 200
            running = "/executions?state=RUNNING&limit=1"
            wait_until(lambda: server.client.get(running).json()["total"] >= 64, 10, "the target hangs")
            end_at = scenario.at(scenario.soon(3500))["schedule"]
            healthy = {scenario.create(scenario.body("every 1s", end_at=end_at)).job_id for _ in range(50)}
            wait_until(lambda: scenario.receiver.count() >= 100, 15, "the healthy jobs run")
            wait_until(lambda: now_ms() > instant(end_at) + 500, 10, "their time is over")
            assert {line["job_id"] for line in scenario.receiver.lines()} == healthy
            assert server.client.get(running).json()["total"] >= 64, "the target hangs all the while"
        finally:
            hostile.close()
