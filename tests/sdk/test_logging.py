"""Output of a program with an embedded app: failures of functions through `logging`, and nothing on stdout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from duetime import Duetime
from patience import PATIENCE_SECONDS
from sdk.conftest import until

ONCE = {"retry_policy": {"max_retries": 0}}

PROGRAM = """
import asyncio, logging, sys, threading
from duetime import Duetime, Reject, Retry
from duetime.client import operations
{configure}
app = Duetime("sqlite:///jobs")
log = logging.getLogger("shop")

@app.job(name="fails")
def fails(number: int) -> None:
    log.info("at info")
    raise KeyError(f"no {{number}}")

@app.job(name="tells")
def tells(customer: str, token: str) -> None:
    raise KeyError(f"{{customer}} has {{token}}")

@app.job(name="fails-later")
async def fails_later() -> None:
    raise KeyError("later")

@app.job(name="rejects")
def rejects() -> None:
    raise Reject("no such customer")

@app.job(name="retries")
def retries() -> None:
    raise Retry(after_seconds=3600, message="not yet")

def ended(job_id):
    found = app._ask().ask(operations.job_executions(job_id).page(1)).executions
    return found and found[0].state in ("FAILED", "RETRYING")

with app:
    once = {{"retry_policy": {{"max_retries": 0}}}}
    made = [app.enqueue(fails, 7, job=once), app.enqueue(fails_later, job=once), app.enqueue(rejects)]
    made += [app.enqueue(retries), app.enqueue(tells, "acme", token="correct-horse", secret="token", job=once)]
    waiting = threading.Event()
    while not all(ended(job.job_id) for job in made):
        waiting.wait(0.01)
    execution = app._ask().ask(operations.job_executions(made[0].job_id).page(1)).executions[0]
    logs = app._ask().ask(operations.logs(execution.execution_id)).logs
    assert "INFO at info" in logs, logs
    assert logging.root.level == logging.INFO, logging.root.level
assert logging.root.level == {after}, logging.root.level
"""


@pytest.mark.parametrize(
    ("configure", "after"),
    [("", "logging.WARNING"), ("logging.basicConfig(level=logging.INFO)", "logging.INFO")],
    ids=["logging left alone", "logging configured"],
)
def test_failures_of_functions_are_logged_by_the_program(tmp_path: Path, configure: str, after: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(configure=configure, after=after))
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
        check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert "fails: attempt 1 of execution" in ended.stderr
    assert "ended with function_error: KeyError: 'no 7'" in ended.stderr
    assert 'raise KeyError(f"no {number}")' in ended.stderr
    assert "KeyError: 'acme has ********'" in ended.stderr
    assert "correct-horse" not in ended.stderr, "a secret argument, of which the exception tells"
    assert "fails-later: attempt 1" in ended.stderr
    assert "ended with rejected: no such customer" in ended.stderr
    assert ("retries: attempt 1" in ended.stderr) == bool(configure), "what a function asks for is no error"
    assert ("at info" in ended.stderr) == bool(configure)


@pytest.mark.parametrize("is_async", [False, True], ids=["in a thread", "on the loop"])
def test_a_secret_argument_is_hidden_in_the_log_of_the_program(
    app: Duetime, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def log_in(user: str, password: str, more: dict[str, str]) -> None:
        raise ValueError(f"{user} can't log in with {password} and {more}")

    async def log_in_async(user: str, password: str, more: dict[str, str]) -> None:
        log_in(user, password, more)

    app.job(name="log_in")(log_in_async if is_async else log_in)
    with app:
        made = app.enqueue(
            "log_in", user="ann", password="correct horse", more={"pin": "battery staple"}, job=ONCE,
            secret=["password", "/kwargs/more/pin"],
        )  # fmt: skip
        until(app, made.job_id, lambda execution: execution.state == "FAILED")
    assert "ValueError: ann can't log in with ******** and {'pin': '********'}" in caplog.text
    assert "correct horse" not in caplog.text
    assert "battery staple" not in caplog.text
