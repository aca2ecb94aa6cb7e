"""A user of the API: steps that many tests repeat, and the checks of every refusal."""

from __future__ import annotations

import uuid
from typing import Any

from cluster.processes import Answer, Client, Receiver, wait_until

FAR = "2099-01-01T00:00:00Z"
OPEN = ("QUEUED", "RUNNING", "RETRYING")


class Person:
    def __init__(self, client: Client, receiver: Receiver) -> None:
        self.client = client
        self.receiver = receiver
        self.name = f"test {uuid.uuid4()}"

    def body(self, schedule: str = FAR, path: str = "/ok", **fields: Any) -> dict[str, Any]:
        return {"name": self.name, "schedule": schedule, "payload": {"url": self.receiver.url(path)}, **fields}

    def create(self, schedule: str = FAR, path: str = "/ok", **fields: Any) -> str:
        answer = self.client.post("/jobs", self.body(schedule, path, **fields))
        assert answer.status == 201, answer
        job_id: str = answer.json()["job_id"]
        return job_id

    def job(self, job_id: str) -> dict[str, Any]:
        return self._read(f"/jobs/{job_id}")

    def executions(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._read(f"/jobs/{job_id}/executions")["executions"]
        return found

    def _read(self, path: str) -> dict[str, Any]:
        answer = self.client.get(path)
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    def wait_for_end(self, job_id: str, count: int = 1) -> list[dict[str, Any]]:
        """Returns the executions of a job once `count` of them have ended and none is open."""

        def ended() -> list[dict[str, Any]]:
            found = self.executions(job_id)
            return found if len(found) >= count and not any(row["state"] in OPEN for row in found) else []

        return wait_until(ended, 10, f"{count} executions have ended")

    def wait_for_execution(self, execution_id: str, state: str) -> None:
        """Waits until this execution has that state."""
        reached = lambda: self._read(f"/executions/{execution_id}")["execution"]["state"] == state  # noqa: E731
        wait_until(reached, 10, f"{execution_id} is {state}")

    def wait_for_state(self, job_id: str, state: str) -> dict[str, Any]:
        """Returns the only execution of a job once it has that state."""

        def reached() -> list[dict[str, Any]]:
            return [row for row in self.executions(job_id) if row["state"] == state]

        (found,) = wait_until(reached, 10, f"an execution is {state}")
        return found

    def fail(self, **fields: Any) -> tuple[str, str]:
        """Returns a job whose only execution is a dead letter, and that execution."""
        job_id = self.create("immediate", "/status/500", retry_policy={"max_retries": 0}, **fields)
        (execution,) = self.wait_for_end(job_id)
        assert execution["state"] == "FAILED"
        return job_id, execution["execution_id"]


def refused(answer: Answer, status: int, error: str, pointer: str | None = None) -> str:
    """Checks that the response is a problem as described in API.md. Returns its message."""
    assert answer.status == status, answer
    assert answer.headers["content-type"] == "application/problem+json", answer
    problem = answer.json()
    assert (problem["status"], problem["error"]) == (status, error), problem
    assert {"type", "title", "message"} <= problem.keys()
    if pointer is not None:
        assert pointer in [field["pointer"] for field in problem["errors"]], problem
    message: str = problem["message"]
    assert message
    return message
