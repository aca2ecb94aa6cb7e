"""The recorded scenario: one node, its clients and a worker send every kind of message once.

It leaves a database with jobs of each type, an execution in each state, keys, an audit and rows in every other
table. It polls the node directly: only messages of a client of Duetime are recorded.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from cluster.processes import Client as RawClient
from cluster.processes import Server, now_ms, wait_until
from compat.recording import Recording
from duetime.api.auth.tokens import sign
from duetime.client import Client, DuetimeError
from node_forks import end_with_parent, fork_server
from patience import PATIENCE_SECONDS
from served import target

TENANT = "acme"
NODE = "node-1"
JOBS = f"{Path(__file__).with_name('jobs.py')}:app"
# The same in every recording: a test can decrypt its secrets.
ENCRYPTION_KEY = f"k1:{b64encode(bytes(32)).decode()}"
SIGNING_SECRET = f"whsec_{b64encode(bytes(32)).decode()}"
OPEN = {"QUEUED", "RUNNING", "RETRYING"}
FAR = "2099-01-01T00:00:00Z"
LATER = {"max_retries": 1, "delays": [86_400]}
NEVER = {"max_retries": 0}
TOKEN = "Bearer of-the-target"


class Actors:
    """The users of the node, each through a proxy; `raw` is an admin whose requests are not recorded."""

    def __init__(self, server: Server, recording: Recording, jwt_secret: str, stack: ExitStack) -> None:
        self.server, self.recording, self._jwt_secret = server, recording, jwt_secret
        self.urls = {
            sender: stack.enter_context(recording.proxy(sender)) for sender in ("sdk", "cli", "worker", "http")
        }
        self.ada, self.ann = self.token("ada", "admin"), self.token("ann")
        self.sdk = stack.enter_context(Client(self.urls["sdk"], self.ada, retries=0))
        self.raw = Authorized(server.client.port, self.ada)
        self.http = Authorized(int(self.urls["http"].rpartition(":")[2]), self.ada)

    def token(self, user: str, role: str = "user", tier: str = "pro", **claims: Any) -> str:
        named = {"tenant": TENANT, "user_id": user, "role": role, "tier": tier, **claims}
        return sign(self._jwt_secret, "duetime", "duetime", named, now_ms(), 3600)

    def as_user(self, user: str, **claims: Any) -> Authorized:
        return Authorized(self.http.port, self.token(user, **claims))

    def cli(self, *arguments: str, code: int = 0, **environment: str) -> str:
        given = {"DUETIME_URL": self.urls["cli"], "DUETIME_TOKEN": self.ada, **environment}
        ended = fork_server.run(["duetime", *arguments], self.server.folder, os.environ | given)
        assert ended.returncode == code, (arguments, ended)
        return ended.stdout

    @contextmanager
    def worker(self) -> Iterator[None]:
        program = str(Path(sys.executable).with_name("duetime"))
        command = [program, "worker", JOBS, "--name", "worker-1", "--concurrency", "8", "--drain", "0"]
        given = {"DUETIME_URL": self.urls["worker"], "DUETIME_TOKEN": self.ada}
        with (self.server.folder / "worker.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | given, preexec_fn=end_with_parent
            )
        try:
            wait_until(lambda: self.raw.get("/workers").json()["workers"], 20, "the worker has joined")
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)

    def wait_for(self, job_id: str, *states: str) -> str:
        """The id of the job's latest execution, once it is in one of these states."""

        def reached() -> str | None:
            rows = self.raw.get(f"/jobs/{job_id}/executions").json()["executions"]
            if not rows or rows[0]["state"] in OPEN - {*states}:
                return None
            assert rows[0]["state"] in states, rows[0]
            return str(rows[0]["execution_id"])

        return wait_until(reached, 30, f"the latest execution of {job_id} is {states}") or ""


class Authorized(RawClient):
    def __init__(self, port: int, token: str) -> None:
        super().__init__(port)
        self.token = token

    def request(self, method: str, path: str, body: Any = None, headers: Any = None) -> Any:
        known = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return super().request(method, path, body, {**known, **(headers or {})})


@contextmanager
def played(folder: Path, database_url: str | None) -> Iterator[Actors]:
    """Plays the scenario. Inside the block the node still runs, and a worker with an execution."""
    jwt_secret = secrets.token_hex(30)
    settings = {"DATABASE_URL": database_url} if database_url else {}
    (folder / "sqlite").mkdir(parents=True)
    server = Server(
        folder, JWT_SECRET=jwt_secret, ENCRYPTION_KEYS=ENCRYPTION_KEY, SIGNING_SECRETS=SIGNING_SECRET,
        NODE_NAME=NODE, ALLOW_SCRIPTS="true", ALLOW_SQL="true", SQL_ALLOWED_HOSTS="127.0.0.0/8",
        SQL_SQLITE_FOLDER=str(folder / "sqlite"),
        CIRCUIT_BREAKER_THRESHOLD="2", CIRCUIT_BREAKER_COOLDOWN="1h", FREE_REQUESTS_PER_HOUR="3",
        FREE_JOBS_PER_DAY="1", QUEUE_MEMORY_LIMIT="200KB", WORKER_LEASE_SECONDS="60s", **settings,
    ).start()  # fmt: skip
    with ExitStack() as stack:
        stack.callback(server.close)
        recording = Recording(server.client.port)
        actors = Actors(server, recording, jwt_secret, stack)
        play = Play(actors, stack.enter_context(target()))
        play.follow_events()
        play.administration()
        play.definitions()
        with actors.worker():
            play.executions()
            play.functions()
            play.by_command_line()
            play.refusals()
            play.stop_following()
            play.reads()
            yield actors


class Play:
    """The steps of the scenario. Each method is one step and names it."""

    def __init__(self, actors: Actors, url: str) -> None:
        self.actors, self.sdk, self.url = actors, actors.sdk, url
        self.jobs: dict[str, str] = {}  # id by name
        self.has_followed = threading.Event()

    def step(self, name: str) -> None:
        self.actors.recording.step = name

    def create(self, name: str, payload: dict[str, Any], schedule: str = "immediate", **fields: Any) -> str:
        made = self.sdk.create_job({"name": name, "schedule": schedule, "payload": payload, **fields})
        self.jobs[name] = made.job_id
        return made.job_id

    def follow_events(self) -> None:
        """Follows the events in a thread, until `stop_following`."""
        begun = threading.Event()

        def follow() -> None:
            with closing(self.sdk.events(after=0)) as events:
                for _ in events:
                    begun.set()
                    if self.has_followed.is_set():
                        return

        self.step("events")
        threading.Thread(target=follow, daemon=True).start()
        self.create("first", {"url": f"{self.url}/ok"})
        assert begun.wait(PATIENCE_SECONDS)

    def stop_following(self) -> None:
        self.has_followed.set()
        self.actors.raw.patch(f"/jobs/{self.jobs['kept']}", {"priority": 2})  # an event, at which the client stops

        def is_recorded() -> bool:
            return any(one.path == "/api/v1/events" for one in self.actors.recording.exchanges)

        wait_until(is_recorded, 20, "the stream of events has ended")

    def administration(self) -> None:
        sdk = self.sdk
        self.step("administration")
        sdk.health()
        sdk.put_connection("books", "sqlite:///books.db?mode=rwc")
        sdk.put_connection("away", "postgresql://app:word@127.0.0.1:1/away")
        sdk.remove_connection("away")
        sdk.add_subscription(f"{self.url}/told", events=["execution.failed", "job.paused"])
        sdk.remove_subscription(sdk.add_subscription("http://127.0.0.1:1/gone").subscription_id)
        sdk.rotate_signing_key(overlap_seconds=3600)
        sdk.create_api_key("of the program")
        made = sdk.create_api_key(
            "of ann", user_id="ann", role="user", tier="pro", scopes=["read", "write", "run"], expires_in_days=3650
        )
        sdk.revoke_api_key(made.key_id)
        sdk.preview_schedule("0 9 * * MON-FRI", timezone="Europe/Berlin", dst={"gap": "skip"}, after=FAR, count=2)
        sdk.preview_schedule("every 1s")

    def definitions(self) -> None:
        sdk, url = self.sdk, self.url
        self.step("definitions")
        request = {
            "url": f"{url}/hourly", "method": "POST", "headers": {"Authorization": TOKEN}, "body": {"pin": 1, "n": [2]},
            "expect_status": [200, 204], "secret": ["/body/pin"],
        }  # fmt: skip
        self.create(
            "http", request, "0 * * * *", type="http_request", description="with every field", key="http",
            timezone="Europe/Berlin", timeout_seconds=5, priority=7, start_at="2026-01-01T00:00:00", end_at=FAR,
            max_runs=1000, catch_up={"policy": "all", "window_seconds": 7200, "max_runs": 5}, overlap="allow",
            retry_policy={"max_retries": 2, "backoff": "linear", "initial_delay_seconds": 1, "max_delay_seconds": 9},
            jitter_seconds=0.5, dst={"gap": "skip", "overlap": "both"},
            webhooks={"on_success": f"{url}/good", "on_failure": f"{url}/bad"}, tags={"team": "books"},
        )  # fmt: skip
        script = {"script": "echo $WHO", "interpreter": "/bin/sh", "env": {"WHO": "the script"}, "cwd": "/tmp"}
        self.create("script", script, "5 * * * *", type="script", delivery="at_most_once")
        self.create("argv", {"argv": ["/bin/echo", "one", "two"]}, FAR, type="script")
        query = {
            "connection": "books",
            "statement": "SELECT ? AS n",
            "parameters": ["pin"],
            "secret": ["/parameters/0"],
        }
        self.create("sql", query, "10 * * * *", type="sql_query")
        call = {"function": "greet", "args": ["ann"], "kwargs": {"mark": "?"}, "secret": ["/kwargs/mark"]}
        self.create("python", call, "15 * * * *", type="python")
        self.create("interval", {"url": f"{url}/interval"}, "every 30m", overlap="queue_one")
        self.create("chained", {"url": f"{url}/chained"}, "on_demand", after=["http", "not-there"], on="any")
        sdk.put_job_by_key("kept", {"name": "kept", "schedule": "@daily", "payload": {"url": f"{url}/kept"}})
        kept = sdk.put_job_by_key(
            "kept", {"name": "kept", "schedule": "@weekly", "payload": {"url": f"{url}/kept"}}, if_match=1
        )
        self.jobs["kept"] = kept.job_id
        sdk.change_job(kept.job_id, {"priority": 1, "tags": {"a": "b"}, "payload": {"method": "GET"}}, if_match=2)
        self.actors.http.put(f"/jobs/{kept.job_id}", {"description": "changed by PUT", "tags": {"a": None}})
        sdk.create_jobs(
            [
                {"name": "in a batch", "schedule": FAR, "payload": {"url": f"{url}/batch"}},
                {"name": "refused", "schedule": "never", "payload": {"url": f"{url}/batch"}},
            ]
        )
        lines = [b'{"name": "line", "schedule": "%s", "payload": {"url": "%s/line"}}' % (FAR.encode(), url.encode())]
        self.actors.http.request("POST", "/jobs:batch", b"\n".join(lines), {"content-type": "application/x-ndjson"})

    def executions(self) -> None:
        sdk, url, wait = self.sdk, self.url, self.actors.wait_for
        self.step("executions")
        sdk.run_job(self.jobs["http"])
        self.jobs["completed"] = self.jobs["http"]
        for name in ("script", "sql", "python"):
            sdk.run_job(self.jobs[name])
        for name in ("http", "script", "sql", "python"):
            wait(self.jobs[name], "COMPLETED")
        failed = [self.create(f"failed {n}", {"url": f"{url}/500"}, retry_policy=NEVER) for n in (1, 2)]
        dead = [wait(job_id, "FAILED") for job_id in failed]
        wait(self.create("skipped", {"url": f"{url}/500"}, retry_policy=NEVER), "SKIPPED")
        wait(self.create("not found", {"url": f"{url}/404"}, retry_policy=NEVER), "FAILED")
        wait(self.create("retrying", {"url": f"{url}/502"}, retry_policy=LATER), "RETRYING")
        sleep = {"argv": ["/bin/sleep", "60"]}
        wait(self.create("timeout", sleep, type="script", timeout_seconds=0.3, retry_policy=NEVER), "TIMEOUT")
        sdk.cancel_execution(wait(self.create("cancelled", sleep, type="script"), "RUNNING"))
        wait(self.jobs["cancelled"], "CANCELLED")
        bad = {"argv": ["/bin/sh", "-c", "echo out; echo err >&2; exit 3"]}
        bad_id = wait(self.create("exit 3", bad, type="script", retry_policy=NEVER), "FAILED")
        # Redriven, except for the function without a worker: the new execution stays in its state.
        sdk.redrive([dead[0]])
        sdk.redrive(http_status="4xx", limit=5, per_second=10)
        sdk.retry_execution(bad_id)
        wait(self.jobs["exit 3"], "FAILED")
        sdk.retry_job(self.jobs["exit 3"])
        wait(self.jobs["exit 3"], "FAILED")
        waiting = self.create("queued", {"function": "nobody"}, FAR, type="python", overlap="queue_all")
        sdk.run_job(waiting)
        sdk.run_job(waiting)  # held until the other has ended
        paused = self.create("paused", {"url": f"{url}/paused"}, "every 1s")
        sdk.pause_job(paused)
        time.sleep(2.5)  # instants pass, and are recorded as skipped
        sdk.resume_job(paused)
        sdk.pause_job(paused)
        sdk.cancel_job(self.create("ended", {"url": f"{url}/ended"}, FAR, key="ended"))
        sdk.purge_job(self.create("purged", {"url": f"{url}/purged"}, FAR))
        sdk.close_circuit(sdk.list_circuits().circuits[0].circuit)
        wait(self.create("open again", {"url": f"{url}/503"}, retry_policy=NEVER), "FAILED")
        for _ in sdk.follow_logs(bad_id):
            pass

    def functions(self) -> None:
        """The steps of a worker: worker-1 runs the app; then the test sends what a worker sends only after a fault."""
        self.step("functions")
        wait, http = self.actors.wait_for, self.actors.http
        ends = {"fail": "FAILED", "refuse": "FAILED", "later": "RETRYING"}
        for name in ends:
            self.create(
                f"function {name}", {"function": name}, type="python", retry_policy=LATER if name == "later" else NEVER
            )
        for name, state in ends.items():
            wait(self.jobs[f"function {name}"], state)
        # Cancelled while it runs: it can't be stopped in its thread, and its end is reported as cancelled.
        cancelled = wait(self.create("function cancelled", {"function": "hang"}, type="python"), "RUNNING")
        self.sdk.cancel_execution(cancelled)
        wait(self.jobs["function cancelled"], "CANCELLED")
        wait(self.create("running", {"function": "hang"}, type="python", timeout_seconds=86_400), "RUNNING")
        self.step("by hand")
        joined = http.post("/workers/join", {"name": "by hand", "functions": ["by_hand"], "slots": 2}).json()
        worker = joined["worker_id"]
        http.post("/workers/poll", {"worker_id": worker, "free": 1, "wait_seconds": 0})
        for number in (1, 2):
            self.create(f"by hand {number}", {"function": "by_hand", "args": [number]}, type="python")
        polled: list[dict[str, Any]] = []
        while len(polled) < 2:
            found = http.post("/workers/poll", {"worker_id": worker, "free": 2 - len(polled), "wait_seconds": 20})
            polled += found.json()["assignments"]
        claims = [{name: one[name] for name in ("execution_id", "attempt", "token")} for one in polled]
        stale = {**claims[0], "token": claims[0]["token"] + 1}
        times = {"started_at": now_ms(), "ended_at": now_ms()}
        http.post("/workers/report", {"worker_id": worker, "running": claims, "ended": [{**stale, **times}]})
        notes = [{**claims[0], "text": "from the function\n", "stream": "stderr", "progress": {"row": 7}}]
        http.post("/workers/report", {"worker_id": worker, "running": claims, "notes": notes})
        http.post("/workers/report", {"worker_id": worker, "running": claims[:1], "unbegun": claims[1:]})
        done = [{**claims[0], **times, "result": '{"n":1}'}]
        http.post("/workers/report", {"worker_id": worker, "running": [], "ended": done})
        http.post("/workers/leave", {"worker_id": worker})

    def by_command_line(self) -> None:
        cli = self.actors.cli
        self.step("command line")
        cli(
            "job", "create", "--name", "from the shell", "--schedule", "0 9 * * MON-FRI", "--timezone", "Europe/Berlin",
            "--url", f"{self.url}/cli", "--method", "POST", "--header", "X-Name: value", "--body", '{"a": 1}',
            "--retries", "3", "--timeout", "10", "--priority", "3", "--overlap", "skip", "--key", "cli", "--tag", "a=b",
        )  # fmt: skip
        cli("job", "change", "from the shell", "--priority", "4")
        lines = self.actors.server.folder / "lines.ndjson"
        lines.write_text(f'{{"name": "imported", "schedule": "{FAR}", "payload": {{"url": "{self.url}/x"}}}}\n')
        cli("job", "import", str(lines))
        for command in ("show", "run", "pause", "resume", "history", "why", "next"):
            cli("job", command, "from the shell")
        wait_until(lambda: self.actors.wait_for(self._id_of("from the shell"), "COMPLETED"), 20, "it ran")
        cli("job", "logs", "from the shell")
        cli("job", "list", "--status", "PENDING", "--name", "shell", "--tag", "a=b", "--sort", "name", "--order", "asc")
        cli("job", "cancel", "imported")
        for arguments in (
            ("execution", "list"), ("audit", "list"), ("circuits", "list"), ("connection", "list"), ("health",),
            ("cluster",), ("subscription", "list"), ("signing-key", "show"), ("dead-letters", "list"),
            ("token", "list"), ("cron", "next", "0 0 * * *"),
        ):  # fmt: skip
            cli(*arguments)

    def _id_of(self, name: str) -> str:
        jobs = self.actors.raw.get(f"/jobs?name={name.replace(' ', '%20')}").json()["jobs"]
        return str(jobs[0]["job_id"])

    def refusals(self) -> None:
        """One of each error that a test can bring about."""
        self.step("refusals")
        http, sdk = self.actors.http, self.sdk
        job = {"name": "x", "schedule": FAR, "payload": {"url": f"{self.url}/x"}}
        http.post("/jobs", {**job, "nmae": "x"})
        http.post("/jobs", {**job, "schedule": "sometimes"})
        http.post("/jobs", {**job, "name": "", "priority": 99})
        Authorized(http.port, "").get("/jobs")
        ann = self.actors.as_user("ann")
        ann.get(f"/jobs/{self.jobs['http']}")
        ann.get("/audit")
        http.get("/jobs/00000000-0000-7000-8000-000000000000")
        http.delete("/jobs")
        http.post("/jobs", {**job, "key": "http"})
        http.request("PATCH", f"/jobs/{self.jobs['http']}", {"priority": 1}, {"If-Match": '"99"'})
        http.post("/jobs", job, Idempotency_Key="once")
        http.post("/jobs", {**job, "name": "y"}, Idempotency_Key="once")
        http.post("/jobs", {**job, "payload": {"url": f"{self.url}/x", "body": "x" * 190_000}})
        http.post("/workers/poll", {"worker_id": 2**31 - 1, "free": 1})
        fay = self.actors.as_user("fay", tier="free")
        for _ in range(4):
            fay.post("/jobs", job)
        with suppress(DuetimeError):
            sdk.retry_job(self.jobs["http"])

    def reads(self) -> None:
        """Reads of the final state: a test repeats them on the same database with a later version."""
        sdk, jobs = self.sdk, self.jobs
        self.step("reads")
        sdk.list_jobs().page(100)
        sdk.list_jobs(status="PENDING", type="python", sort="next_run_time", order="asc").page(2)
        sdk.list_jobs(name="retry", tag="team=books", owner="ada").page(5, offset=0)
        for name in ("http", "script", "argv", "sql", "python", "chained", "kept", "paused", "interval"):
            sdk.get_job(jobs[name])
        for name in ("http", "paused", "retrying", "chained", "queued", "failed 2"):
            sdk.job_why(jobs[name])
            sdk.job_next(jobs[name], count=3)
            sdk.job_status(jobs[name])
            sdk.job_executions(jobs[name]).page(10)
        sdk.job_executions(jobs["http"], state="COMPLETED").page(1)
        for name in ("http", "script", "sql", "python", "failed 2", "timeout", "exit 3", "function later", "running"):
            page = sdk.job_executions(jobs[name]).page(1)
            sdk.get_execution(page.executions[0].execution_id)
        sdk.list_executions(since="2020-01-01T00:00:00Z", until=FAR).page(100)
        sdk.list_executions(state="SKIPPED").page(3)
        sdk.dead_letters(http_status="5xx", error_type="http_error").page(10)
        sdk.dead_letters(job_id=jobs["failed 2"]).page(10)
        sdk.audit().page(100)
        sdk.audit(actor="ada", action="job.create", resource=jobs["http"], since="2020-01-01T00:00:00Z").page(2)
        sdk.list_api_keys()
        sdk.list_connections()
        sdk.list_subscriptions()
        sdk.get_signing_key()
        sdk.list_circuits()
        self.step("state")  # of this process and this moment: not repeated
        sdk.list_workers()
        sdk.cluster()
        sdk.health(verbose=True)
        logged = sdk.job_executions(jobs["exit 3"]).page(1).executions[0].execution_id
        sdk.logs(logged)
        sdk.logs(logged, after=0, lines=1)
