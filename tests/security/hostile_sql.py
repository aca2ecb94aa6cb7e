"""A node that lets tenants run SQL, and a tenant's admin who attacks with it."""

from __future__ import annotations

import secrets
import socket
import threading
from pathlib import Path
from typing import Any

from cluster.processes import Client, Server, now_ms, wait_until
from duetime.api.auth.tokens import sign

_JWT_SECRET = f"jwt/{secrets.token_hex(30)}"
OPEN = ("QUEUED", "RUNNING", "RETRYING")


def node(folder: Path, **settings: str) -> Server:
    """A node that is not started yet. Its webhooks may call any address; that must not apply to SQL."""
    return Server(folder, JWT_SECRET=_JWT_SECRET, **{"ALLOW_SQL": "true", **settings})


class Admin(Client):
    """An admin of a tenant."""

    def __init__(self, server: Server, tenant: str) -> None:
        super().__init__(server.client.port)
        claims = {"tenant": tenant, "user_id": "eve", "role": "admin", "tier": "enterprise"}
        self._token = sign(_JWT_SECRET, "duetime", "duetime", claims, now_ms(), 3600)

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        return super().request(method, path, body, {"Authorization": f"Bearer {self._token}", **(headers or {})})

    def begin(self, url: str, statement: str, **fields: Any) -> str | None:
        """Returns the job that runs a statement at once; None if the connection or the job was refused with a 400."""
        name = secrets.token_hex(6)
        answer = self.put(f"/connections/{name}", {"url": url})
        assert answer.status in (200, 400), answer
        if answer.status == 400:
            return None
        body = {
            "name": name, "type": "sql_query", "schedule": "immediate", "retry_policy": {"max_retries": 0},
            "payload": {"connection": name, "statement": statement}, **fields,
        }  # fmt: skip
        answer = self.post("/jobs", body)
        assert answer.status in (201, 400), answer
        return str(answer.json()["job_id"]) if answer.status == 201 else None

    def ended(self, job_id: str) -> dict[str, Any]:
        """Returns the job's one execution once it has ended."""

        def over() -> dict[str, Any] | None:
            rows: list[dict[str, Any]] = self.get(f"/jobs/{job_id}/executions").json()["executions"]
            return rows[0] if rows and rows[0]["state"] not in OPEN else None

        execution_id = wait_until(over, 30, f"the execution of {job_id} has ended", 0.1)["execution_id"]
        found: dict[str, Any] = self.get(f"/executions/{execution_id}").json()["execution"]
        return found

    def run(self, url: str, statement: str, **fields: Any) -> dict[str, Any] | None:
        """Returns how the statement ended; None if it was refused before it could run."""
        job_id = self.begin(url, statement, **fields)
        return None if job_id is None else self.ended(job_id)


class Canary:
    """A port on loopback that counts connections, and sends nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.calls = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self.calls += 1
            caller.close()

    def close(self) -> None:
        self._listener.close()


def peak_bytes(server: Server) -> int:
    """The most memory that a node has held so far."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found
