"""A server, a receiver and the acknowledged jobs: the steps of every test with crashes."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterable
from typing import Any

from cluster.checker import AcknowledgedJob, History, Objectives, Report, check, instant, shown
from cluster.processes import Answer, Receiver, Server, now_ms, slowness, wait_until

LOST_ATTEMPTS = 4  # executions that are lost with their nodes this often become dead letters

Body = dict[str, Any]


class Scenario:
    def __init__(self, server: Server, receiver: Receiver) -> None:
        self.server = server
        self.receiver = receiver
        self.jobs: list[AcknowledgedJob] = []
        self.crashes: list[int] = []  # their instants

    def body(self, schedule: str, path: str = "/ok", **fields: Any) -> Body:
        return {"name": "a job", "schedule": schedule, "payload": {"url": self.receiver.url(path)}, **fields}

    def lasting(self, ms: float) -> int:
        """Returns this many milliseconds, or more on a busy machine."""
        return round(ms * slowness.factor)

    def soon(self, ms: float) -> int:
        """Returns the instant this many milliseconds from now, or later on a busy machine."""
        return now_ms() + self.lasting(ms)

    def at(self, at: int, path: str = "/ok", **fields: Any) -> Body:
        return self.body(shown(at), path, **fields)

    # Actions of a client

    def create(self, body: Body) -> AcknowledgedJob:
        """Creates a job, and repeats the request with its key if the server dies during it."""
        answer = self.insist("/jobs", body, str(uuid.uuid4()))
        return self._acknowledge(body, answer)

    def create_for(self, ms: int, since: int, body: Body) -> AcknowledgedJob:
        """Creates a job that ends `ms` after `since`, or after now if that is later.

        If the server died during the request and serves again only after that end, the job gets a later end.
        """
        while True:
            ending = {**body, "end_at": shown(max(since, now_ms()) + ms)}
            answer = self.insist("/jobs", ending, str(uuid.uuid4()))
            if answer.status != 400 or "/end_at" not in str(answer.body):
                return self._acknowledge(ending, answer)

    def _acknowledge(self, body: Body, answer: Answer) -> AcknowledgedJob:
        assert answer.status == 201, answer
        job = acknowledged(body, answer.json())
        self.jobs.append(job)
        return job

    def insist(self, path: str, body: Body, key: str) -> Answer:
        while True:
            try:
                return self.server.client.post(path, body, idempotency_key=key)
            except ConnectionError:
                self.revive()

    def create_batch(self, bodies: list[Body]) -> None:
        """For one-off jobs only: the response has no instants of creation."""
        answer = self.server.client.post("/jobs:batch", bodies)
        assert answer.status == 200, answer
        assert answer.json()["refused"] == []
        made = zip(bodies, answer.json()["created"], strict=True)
        self.jobs += [acknowledged(body, {"job_id": job_id}) for body, job_id in made]

    # Faults of the server

    def revive(self) -> None:
        """Starts the server again after kill -9, or just before it, without a configured crash."""
        assert self.server.wait(10) == -signal.SIGKILL, self.server.errors()
        self.crashes.append(now_ms())
        self.server.start()

    def kill(self) -> None:
        self.server.kill()
        self.crashes.append(now_ms())

    def await_crash(self, seconds: float) -> None:
        if not self.crashes:
            wait_until(lambda: self.server.returncode() is not None, seconds, "the server dies at its crash point")
            self.revive()

    # Results

    def wait_for_quiet(self, seconds: float = 30.0) -> None:
        """No job has a run left and no execution is open."""
        wait_until(self._is_quiet, seconds, "quiet", 0.05)

    def _is_quiet(self) -> bool:
        client = self.server.client
        if client.get("/jobs?status=PENDING&limit=1").json()["total"]:
            return False
        states = ("QUEUED", "RUNNING", "RETRYING")
        return not any(client.get(f"/executions?state={state}&limit=1").json()["total"] for state in states)

    def history(self, jobs: Iterable[AcknowledgedJob] | None = None) -> History:
        client = self.server.client
        recurring = [job for job in self.jobs if not job.schedule[:4].isdigit() and job.schedule != "immediate"]
        return History(
            list(self.jobs if jobs is None else jobs),
            self.receiver.lines(),
            client.pages("/executions", "executions"),
            {job.job_id: client.get(f"/jobs/{job.job_id}/executions?limit=1").json()["skipped"] for job in recurring},
            frozenset(job["job_id"] for job in client.pages("/jobs", "jobs")),
            now_ms(),
            self.crashes,
        )

    def check(self, objectives: Objectives = Objectives()) -> Report:  # noqa: B008 (frozen)
        return check(self.history(), objectives)

    def assert_green(self, objectives: Objectives = Objectives()) -> Report:  # noqa: B008 (frozen)
        report = self.check(objectives)
        assert report.green, f"{report}\n{self.errors()}"
        return report

    def errors(self) -> str:
        return self.server.errors()[-2000:]


def acknowledged(body: Body, answer: dict[str, Any]) -> AcknowledgedJob:
    policy = body.get("retry_policy", {})
    retries = policy.get("max_retries", len(policy.get("delays", ())) or 3)
    bounds = {name: instant(body[name]) for name in ("start_at", "end_at") if name in body}
    return AcknowledgedJob(
        answer["job_id"],
        body["schedule"],
        instant(answer["created_at"]) if "created_at" in answer else 0,
        body.get("timezone", "UTC"),
        max_runs=body.get("max_runs"),
        most_attempts=max(LOST_ATTEMPTS, 1 + retries),
        **bounds,
    )
