"""Hostile scripts on a real node: each ends within its limits, and other jobs are not affected."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from cluster.processes import Receiver, Server, wait_until
from executors.script.watching import alive, on_linux, python
from work.workers import Asker

pytestmark = [pytest.mark.slow, on_linux]

TIMEOUT_SECONDS = 4
END_SECONDS = 30.0  # the timeout, two seconds of grace, and more for a busy machine

FORKS = """
import os
while True:
    try:
        os.fork()
    except OSError:
        continue
"""
EATS = """
held = []
while True:
    held.append(bytearray(4 * 1024 * 1024))
    held[-1][::4096] = b"x" * len(held[-1][::4096])
"""
# (It starts no process: if a node is not root, its scripts share a user, and the bomb uses up all its processes.)
STAYS = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
while True:
    time.sleep(0.1)
"""
FLOODS = "exec yes 'a line of a flood'"

HOSTILE: dict[str, tuple[str, str, set[tuple[str, str]]]] = {
    "a fork bomb": (FORKS, "python", {("FAILED", "limit_exceeded")}),
    "one that eats memory": (EATS, "python", {("FAILED", "limit_exceeded"), ("FAILED", "exit_code")}),
    "one that ignores signals": (STAYS, "python", {("TIMEOUT", "timeout")}),
    "a flood of output": (FLOODS, "/bin/sh", {("TIMEOUT", "timeout")}),
}


def test_hostile_scripts_end_and_webhooks_go_on(server: Server, ask: Asker, receiver: Receiver) -> None:
    server.start(SCRIPT_MEMORY_LIMIT="96MB", SCRIPT_PROCESS_LIMIT="24")
    body = {"name": "beside", "schedule": "every 1s", "overlap": "allow", "payload": {"url": receiver.url()}}
    beside = server.client.post("/jobs", body).json()["job_id"]
    before = wait_until(lambda: len(runs(ask, beside)), 10, "the webhook is called")
    mark = f"MARK_{secrets.token_hex(8)}"
    started = {
        name: ask.script(
            text, python() if interpreter == "python" else interpreter, env={mark: "1"},
            timeout_seconds=TIMEOUT_SECONDS, retry_policy={"max_retries": 0},
        )
        for name, (text, interpreter, _) in HOSTILE.items()
    }  # fmt: skip
    for name, job_id in started.items():
        ended = ask.wait_for_end(job_id, END_SECONDS)
        assert (ended["state"], ended["error_type"]) in HOSTILE[name][2], (name, ended)
    wait_until(lambda: not alive(mark), 5, "nothing of them is left")
    assert len(runs(ask, beside)) >= before + TIMEOUT_SECONDS // 2, "it ran meanwhile"
    assert server.client.get(f"/jobs/{beside}/executions").json()["skipped"] == []
    assert server.returncode() is None


def runs(ask: Asker, job_id: str) -> list[dict[str, Any]]:
    return [row for row in ask.executions(job_id) if row["state"] == "COMPLETED"]
