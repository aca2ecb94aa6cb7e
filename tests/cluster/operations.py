"""A cluster as an operator has it: identity, tenants, a slow target, a flood, failing jobs, and a real Prometheus.

`python tests/cluster/operations.py` starts it and prints how to ask it, until its standard input ends.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

from cluster.cluster import BATCH, Cluster
from cluster.database import Database
from cluster.processes import Answer, Client, Receiver, Server, now_ms
from cluster.scenario import shown
from duetime.api.auth.tokens import sign
from node_forks import end_with_parent
from patience import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
OPERATOR, FLOOD, SLOW, FAILING, STEADY = "ops", "flood", "slowpoke", "broken", "steady"
SECRET = secrets.token_hex(32)
FLOOD_JOBS = 20_000


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def token(tenant: str, role: str = "admin", hours: int = 1) -> str:
    claims = {"tenant": tenant, "user_id": "someone", "role": role, "tier": "enterprise"}
    return sign(SECRET, "duetime", "duetime", claims, now_ms(), 3600 * hours)


class As(Client):
    """A client with the token of a tenant's admin."""

    def __init__(self, port: int, tenant: str) -> None:
        super().__init__(port)
        self.tenant = tenant
        self._token = token(tenant)

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        return super().request(method, path, body, {"Authorization": f"Bearer {self._token}", **(headers or {})})


class Prometheus:
    """The real one, which reads the nodes every second and has the rules that come with Duetime."""

    def __init__(self, folder: Path, ports: Mapping[str, int]) -> None:
        folder.mkdir()
        self.port = free_port()
        targets = [f"127.0.0.1:{port}" for port in ports.values()]
        scrape = {"job_name": "duetime", "scrape_interval": "1s", "static_configs": [{"targets": targets}]}
        config = {
            "global": {"evaluation_interval": "1s"}, "rule_files": [str(RULES)], "scrape_configs": [scrape],
        }  # fmt: skip
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            "prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/tsdb",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=dict(os.environ), preexec_fn=end_with_parent
            )

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Returns the answer now; empty if there is none, or Prometheus is not up yet."""
        found: list[dict[str, Any]] = self._get(f"query?{urllib.parse.urlencode({'query': query})}")["result"]
        return [one for one in found if one["value"][1] != "NaN"]

    def alerts(self) -> dict[str, str]:
        """Returns the states of the alerts that are pending or firing, by name."""
        return {one["labels"]["alertname"]: one["state"] for one in self._get("alerts")["alerts"]}

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}", timeout=PATIENCE_SECONDS) as it:
                return json.load(it)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.read().decode()}") from error
        except OSError:
            return {"result": [], "alerts": []}

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)


class Operations:
    """The cluster of two nodes, its tenants and what they have made."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.folder = folder
        self.fast, self.slow = Receiver(_made(folder / "fast")), Receiver(_made(folder / "slow"))
        self.metrics_ports = {name: free_port() for name in "ab"}
        key = b64encode(secrets.token_bytes(32)).decode()
        self.cluster = Cluster(
            folder, self.fast, database, NODE_LEASE_SECONDS="3s", JWT_SECRET=SECRET, OPERATOR_TENANT=OPERATOR,
            ENCRYPTION_KEYS=f"k1:{key}", CIRCUIT_BREAKER_THRESHOLD="5",
        )  # fmt: skip
        self.jobs: dict[str, str] = {}
        self._over = Event()
        self._steady = Thread(target=self._flow, daemon=True)

    def start(self) -> None:
        for name, port in self.metrics_ports.items():
            self.cluster.add(name, METRICS_PORT=str(port))
        self.cluster.start("a", "b")

    def node(self, name: str) -> Server:
        return self.cluster.nodes[name]

    def on(self, name: str, tenant: str = OPERATOR) -> As:
        return As(self.node(name).client.port, tenant)

    def load(self) -> None:
        """A target that hangs, jobs that fail, some that go well, and a flood of jobs that are due at once."""
        self._create(OPERATOR, "ops-report", "every 1s", self.fast.url("/ok"))
        channel = self.on("a").put("/alert-channels/pager", {"url": self.fast.url("/ok?notices")})
        assert channel.status == 200, channel
        self._create(STEADY, "steady-report", "every 1s", self.fast.url("/ok"))
        self._create(FAILING, "refused-order", "every 1s", self.fast.url("/status/404"), max_retries=0)
        self._create(FAILING, "broken-import", "every 1s", self.fast.url("/status/503"), max_retries=2)
        hang = self.slow.url("/slow/20")
        self._create_many(SLOW, [_job("slow-export", shown(now_ms() + 2000), hang, timeout_seconds=60)] * 600)
        at = shown(now_ms() + 8000)
        wave = [_job("flood", at, self.fast.url("/slow/0.5"), timeout_seconds=60)]
        self._create_many(FLOOD, wave * FLOOD_JOBS)
        self._steady.start()

    def _flow(self) -> None:
        """The flood goes on."""
        while not self._over.wait(1):
            client = self.on(self.cluster.up()[0], FLOOD)
            try:
                client.post("/jobs:batch", [_job("flood", "immediate", self.fast.url("/slow/0.5"))] * 500)
            except ConnectionError:
                continue  # its node was killed

    def _create(self, tenant: str, name: str, schedule: str, url: str, **retries: int) -> None:
        fields = {"retry_policy": {**retries, "initial_delay_seconds": 1}} if retries else {}
        answer = self.on("a", tenant).post("/jobs", _job(name, schedule, url, **fields))
        assert answer.status == 201, answer
        self.jobs[name] = answer.json()["job_id"]

    def _create_many(self, tenant: str, bodies: list[dict[str, Any]]) -> None:
        client = self.on("a", tenant)
        for begin in range(0, len(bodies), BATCH):
            answer = client.post("/jobs:batch", bodies[begin : begin + BATCH])
            assert answer.status == 200, answer
            assert answer.json()["refused"] == []

    def duetime(self, node: str, *words: str, tenant: str = OPERATOR) -> str:
        """Returns what the command line prints."""
        program = Path(sys.executable).with_name("duetime")
        url = f"http://127.0.0.1:{self.node(node).client.port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
        done = subprocess.run(
            [str(program), *words], env={**kept, "DUETIME_URL": url, "DUETIME_TOKEN": token(tenant), "COLUMNS": "140"},
            capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kinds_of_events(self, node: str, last: str, tenant: str = OPERATOR) -> set[str]:
        """Returns the kinds of the events that are kept, up to the first one of the kind `last`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.node(node).client.port, timeout=PATIENCE_SECONDS)
        headers = {"Authorization": f"Bearer {token(tenant)}", "Last-Event-ID": "0"}
        connection.request("GET", "/api/v1/events", headers=headers)
        kinds: set[str] = set()
        try:
            response = connection.getresponse()
            while last not in kinds and (line := response.readline()):
                if line.startswith(b"event: "):
                    kinds.add(line.decode().removeprefix("event: ").strip())
        finally:
            connection.close()
        return kinds

    def close(self) -> None:
        self._over.set()
        if self._steady.is_alive():
            self._steady.join(PATIENCE_SECONDS)
        self.cluster.close()
        self.fast.close()
        self.slow.close()


@contextmanager
def operations(folder: Path, database: Database) -> Iterator[Operations]:
    made = Operations(folder, database)
    try:
        made.start()
        yield made
    finally:
        made.close()


def _job(name: str, schedule: str, url: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "schedule": schedule, "payload": {"url": url}, **fields}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
