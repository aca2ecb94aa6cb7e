"""`duetime worker` as a process of a test, with all its descendants."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.processes import Server, wait_until
from executors.script.watching import alive
from node_forks import end_with_parent
from patience import PATIENCE_SECONDS

APP = f"{Path(__file__).with_name('jobs.py')}:app"
OPEN = ("QUEUED", "RUNNING", "RETRYING")


class WorkerProcess:
    """A variable of the environment, which children inherit, identifies its processes."""

    def __init__(self, server: Server, folder: Path, *options: str, **environment: str) -> None:
        self.mark = f"MARK_{secrets.token_hex(8)}"
        self._log = folder / f"{self.mark}.err"
        command = [str(Path(sys.executable).with_name("duetime")), "worker", APP, *options]
        given = {"DUETIME_URL": f"http://127.0.0.1:{server.client.port}", self.mark: "1", **environment}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | given, preexec_fn=end_with_parent
            )

    def processes(self) -> list[int]:
        return alive(self.mark)

    def errors(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """Kills the started process with SIGKILL, and no other."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


class Asker:
    """Requests of these tests to a server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def create(self, type_: str, payload: dict[str, Any], **fields: Any) -> str:
        body = {"name": type_, "type": type_, "schedule": "immediate", "payload": payload, **fields}
        answer = self.server.client.post("/jobs", body)
        assert answer.status == 201, answer
        job_id: str = answer.json()["job_id"]
        return job_id

    def call(self, function: str, *args: Any, **fields: Any) -> str:
        return self.create("python", {"function": function, "args": list(args)}, **fields)

    def script(self, text: str, interpreter: str = "/bin/sh", env: dict[str, str] | None = None, **fields: Any) -> str:
        return self.create("script", {"script": text, "interpreter": interpreter, "env": env or {}}, **fields)

    def executions(self, job_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.client.get(f"/jobs/{job_id}/executions").json()["executions"]
        return found

    def execution(self, job_id: str) -> dict[str, Any]:
        (found,) = self.executions(job_id)
        return found

    def wait_for_run(self, job_id: str, seconds: float = 20.0) -> str:
        """Returns the id of the running execution."""
        row = wait_until(
            lambda: next((row for row in self.executions(job_id) if row["state"] == "RUNNING"), None),
            seconds, "it is running",
        )  # fmt: skip
        execution_id: str = row["execution_id"]
        return execution_id

    def wait_for_end(self, job_id: str, seconds: float = 30.0) -> dict[str, Any]:
        def ended() -> dict[str, Any] | None:
            rows = self.executions(job_id)
            return rows[0] if rows and rows[0]["state"] not in OPEN else None

        return wait_until(ended, seconds, f"the execution of {job_id} has ended: {self.executions(job_id)}")

    def attempts(self, execution_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.server.client.get(f"/executions/{execution_id}").json()["attempts"]
        return found

    def logs(self, execution_id: str) -> str:
        """Returns the whole log, read page by page."""
        found, after = "", 0
        while after is not None:
            page = self.server.client.get(f"/executions/{execution_id}/logs?after={after}").json()
            found, after = found + page["logs"], page["next_after"]
        return found

    def wait_for_workers(self, count: int) -> None:
        def joined() -> bool:
            return len(self.server.client.get("/workers").json()["workers"]) >= count

        wait_until(joined, 20, f"{count} workers have joined")
