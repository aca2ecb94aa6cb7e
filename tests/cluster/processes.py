"""Real processes on loopback for tests: the server, the receiver, and a client that records its responses."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from node_forks import ForkedProcess, end_with_parent, fork_server
from patience import PATIENCE_SECONDS

T = TypeVar("T")

_ROOTS = ("/metrics", "/health", "/docs", "/openapi", "/_")
_SERVES = re.compile(r"http://127\.0\.0\.1:(\d+)")


def wait_until(condition: Callable[[], T], seconds: float, what: str, pause: float = 0.02) -> T:
    """Returns the first truthy result of `condition`. Raises AssertionError with `what` if there is none in time.

    `seconds` is the most that an idle machine needs. It bounds a hang and asserts no speed: a busy machine gets more.
    """
    seconds = max(seconds, PATIENCE_SECONDS)
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s still not: {what}")
        time.sleep(pause)


# The longest start of a server on an idle machine: as a program, and as a fork.
IDLE_START_SECONDS, IDLE_FORK_SECONDS = 1.5, 0.3
MOST_SLOWNESS = 6.0


class Slowness:
    """How much slower this machine currently is than an idle one: 1, unless the last start of a server took longer.

    Scenarios multiply their leads, spans and leases by this, so that their order of events is the same on a busy
    machine.
    """

    def __init__(self) -> None:
        self.factor = 1.0

    def started(self, seconds: float, idle_seconds: float) -> None:
        self.factor = min(max(1.0, seconds / idle_seconds), MOST_SLOWNESS)


slowness = Slowness()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Sends each request on a new connection: the server could close a kept one."""

    def __init__(self, port: int = 0, timeout: float = PATIENCE_SECONDS) -> None:
        self.port = port
        self.timeout = timeout

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Bytes are sent unchanged, anything else as JSON. Raises ConnectionError without a complete response."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        target = path if path.startswith(_ROOTS) else f"/api/v1{path}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self.timeout)
        try:
            connection.request(method, target, body, dict(headers or {}))
            response = connection.getresponse()
            content = response.read()
            return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionError(f"{method} {target}: {error!r}") from error
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, headers=_named(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("POST", path, body, _named(headers))

    def put(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("PUT", path, body, _named(headers))

    def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("PATCH", path, body, _named(headers))

    def delete(self, path: str, **headers: str) -> Answer:
        return self.request("DELETE", path, headers=_named(headers))

    def pages(self, path: str, field: str) -> list[dict[str, Any]]:
        """Returns all rows of a list, page by page with its cursor."""
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            separator = "&" if "?" in path else "?"
            answer = self.get(f"{path}{separator}limit=100{cursor}")
            assert answer.status == 200, answer
            page = answer.json()
            rows += page[field]
            if not page["has_more"]:
                return rows
            cursor = f"&cursor={page['next_cursor']}"


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class Server:
    """`duetime serve` on a data folder. It may be killed and started again, each time on a new port."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.client = Client()
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self._settings = {"ALLOW_PRIVATE_TARGETS": "true", "LOG_LEVEL": "warning", "METRICS_PORT": "0", **settings}
        # Tests share a receiver and fail on purpose: failures of one test must not skip executions of another.
        self._settings.setdefault("CIRCUIT_BREAKER_THRESHOLD", "1000")
        self._starts = 0
        self.port = 0  # a free port, unless a test restarts the server on the same one
        folder.mkdir(parents=True, exist_ok=True)

    def launch(self, environment: Mapping[str, str] | None = None, **settings: str) -> None:
        """Starts the process and returns at once; the extra settings apply to this start only."""
        self._starts += 1
        names = {f"DUETIME_{name}": value for name, value in {**self._settings, **settings}.items()}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
        program, port = Path(sys.executable).with_name("duetime"), str(self.port)
        command = [str(program), "serve", "--port", port, "--data", str(self.data)]
        with self._log("out").open("wb") as out, self._log("err").open("wb") as err:
            if environment:  # it may have variables that the interpreter reads at its start
                self.process = subprocess.Popen(
                    command, stdout=out, stderr=err, cwd=self.folder, env={**inherited, **names, **(environment or {})},
                    preexec_fn=end_with_parent,
                )  # fmt: skip
            else:
                self.process = fork_server.start(command, self.folder, {**inherited, **names}, out, err)

    def start(self, environment: Mapping[str, str] | None = None, **settings: str) -> Server:
        fork_server.prepare()
        begun = time.monotonic()
        self.launch(environment, **settings)
        self.client.port = int(wait_until(self._serves, PATIENCE_SECONDS, "the server serves", 0.005)[1])
        slowness.started(time.monotonic() - begun, IDLE_START_SECONDS if environment else IDLE_FORK_SECONDS)
        return self

    def _serves(self) -> re.Match[str] | None:
        if self.returncode() is not None:
            raise AssertionError(f"the server ended with {self.returncode()} as it started: {self.errors()}")
        return _SERVES.search(self._log("out").read_text())

    def _log(self, kind: str) -> Path:
        return self.folder / f"server-{self._starts}.{kind}"

    def errors(self) -> str:
        return self._log("err").read_text()

    def returncode(self) -> int | None:
        assert self.process is not None
        return self.process.poll()

    def wait(self, seconds: float) -> int:
        """Returns the exit code. `seconds` bounds a hang, as in `wait_until`."""
        assert self.process is not None
        return self.process.wait(max(seconds, PATIENCE_SECONDS))

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Receiver:
    """The receiver's process and its log."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "receiver.jsonl"
        self._log.touch()
        command = [sys.executable, str(Path(__file__).with_name("receiver.py")), str(self._log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=end_with_parent)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def url(self, path: str = "/ok") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def count(self) -> int:
        return self._log.read_bytes().count(b"\n")

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_bytes().splitlines()]

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()
