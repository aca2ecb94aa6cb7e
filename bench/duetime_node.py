"""Duetime itself as a process: started, spoken to over HTTP, measured from outside, stopped or killed."""

from __future__ import annotations

import http.client
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from bench import processes
from bench.results import Skipped

READY_TIMEOUT_SECONDS = 30.0


class DuetimeNode:
    """One node with a data folder of its own on loopback, open to local targets. A context manager.

    With a `database_url`, it keeps its data there. `settings` are more of its environment. `python` may be of another
    checkout.
    """

    def __init__(
        self,
        database_url: str | None = None,
        settings: Mapping[str, str] | None = None,
        python: str | Path = processes.PYTHON,
    ) -> None:
        self._program = Path(python).with_name("duetime")
        self.runs_in: list[str] = []  # a command that runs it, as valgrind does
        if not self._program.exists():
            raise Skipped("duetime is not installed in this environment: run `make setup`")
        self.folder = processes.scratch("duetime")
        self._storage = ["--database-url", database_url] if database_url else ["--data", self.folder / "data"]
        self._settings = settings or {}
        self.port = processes.free_port()
        self._log = (self.folder / "serve.log").open("ab")
        self.child: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> DuetimeNode:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.close()
        processes.remove(self.folder)

    def start(self) -> float:
        """Start and wait until it says that it is ready; answers with the seconds that took."""
        started = time.perf_counter()
        self.child = processes.start(
            [
                *(*self.runs_in, self._program, "serve", "--host", "127.0.0.1", "--port", str(self.port)),
                *self._storage,
            ],
            env={
                "DUETIME_ALLOW_PRIVATE_TARGETS": "true",
                "DUETIME_METRICS_PORT": str(processes.free_port()),
                **self._settings,
            },
            stdout=self._log,
            stderr=self._log,
        )
        while time.perf_counter() - started < READY_TIMEOUT_SECONDS:
            if self._is_ready():
                return time.perf_counter() - started
            if self.child.poll() is not None:
                break
            time.sleep(0.005)
        self.stop()
        raise Skipped(f"duetime serve did not become ready: {self._last_words()}")

    def stop(self) -> None:
        if self.child is not None:
            processes.stop(self.child, 40.0)
            self.child = None

    def kill(self) -> None:
        if self.child is not None:
            processes.kill(self.child)
            self.child = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start_workers(self, app: str, count: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """`duetime worker` with so many processes, once all of them have joined."""
        worker = processes.start(
            [self._program, "--url", self.url, "worker", app, "--processes", str(count)],
            env=environment,
            stdout=self._log,
            stderr=self._log,
        )
        deadline = time.monotonic() + READY_TIMEOUT_SECONDS
        while len(self.get("/api/v1/workers")["workers"]) < count:
            if worker.poll() is not None or time.monotonic() > deadline:
                processes.stop(worker)
                raise Skipped(f"duetime worker did not join: {self._last_words()}")
            time.sleep(0.05)
        return worker

    def cpu_seconds(self) -> float:
        assert self.child is not None
        return processes.group_cpu_seconds(self.child)

    def rss_bytes(self) -> int:
        assert self.child is not None
        return processes.group_rss_bytes(self.child)

    def add_job(self, job: dict[str, Any]) -> None:
        self._post("/api/v1/jobs", msgspec.json.encode(job), "application/json")

    def add_batch(self, body: bytes, expected: int, token: str | None = None) -> float:
        """Create jobs from NDJSON; answers with the seconds until the answer was in."""
        started = time.perf_counter()
        answer = self._post("/api/v1/jobs:batch", body, "application/x-ndjson", token)
        seconds = time.perf_counter() - started
        if len(answer["created"]) != expected:
            raise RuntimeError(f"{len(answer['refused'])} of {expected} jobs were refused: {answer['refused'][:1]}")
        return seconds

    def get(self, path: str) -> dict[str, Any]:
        return self._ask("GET", path, None, {})

    def _post(self, path: str, body: bytes, content_type: str, token: str | None = None) -> dict[str, Any]:
        credential = {} if token is None else {"authorization": f"Bearer {token}"}
        return self._ask("POST", path, body, {"content-type": content_type, **credential})

    def _ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise RuntimeError(f"{method} {path} answered {response.status}: {answer[:500].decode()}")
        decoded: dict[str, Any] = msgspec.json.decode(answer)
        return decoded

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _last_words(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")[-800:].strip()


def instant(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def webhook_job(number: int | str, url: str, schedule: str, **fields: Any) -> dict[str, Any]:
    payload = {"url": url, "method": "POST", "body": {"n": number}}
    return {"name": f"job-{number}", "type": "http_request", "schedule": schedule, "payload": payload, **fields}


def ndjson(jobs: Iterable[dict[str, Any]]) -> bytes:
    encode = msgspec.json.Encoder().encode
    return b"\n".join(encode(job) for job in jobs) + b"\n"


def pages(jobs: Sequence[dict[str, Any]], size: int = 100_000) -> Iterable[tuple[bytes, int]]:
    for at in range(0, len(jobs), size):
        page = jobs[at : at + size]
        yield ndjson(page), len(page)
