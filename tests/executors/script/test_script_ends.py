"""Ends of scripts, and of their supervising processes: no process of a script is left."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

import duetime
from duetime.domain.execution import ErrorType
from duetime.domain.payloads import Script
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.request import ScriptLimits
from duetime.ports.executor import Attempt, Outcome
from executors.script.watching import Kept, alive, exists, on_linux, until, with_setsid

MakeAttempt = Callable[..., Attempt[Script]]

pytestmark = on_linux

# A child in the group, one in its own session, and one with an empty environment.
RUNAWAYS = "sleep {n} & setsid sleep {n} & (setsid env -i sleep {n} & wait) & "


def some_seconds() -> str:
    """Returns seconds to sleep: longer than any test waits, and not in the arguments of any other process."""
    return f"{random.randrange(100_000, 1_000_000)}.{random.randrange(100_000)}"


async def start(executor: ScriptExecutor, one: Attempt[Script], log: Kept, sign: str = "up") -> asyncio.Task[Outcome]:
    running = asyncio.create_task(executor.execute(one))
    await until(lambda: sign in log.text() or running.done())
    return running


@with_setsid
async def test_processes_that_a_script_leaves_behind_end_with_it(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path
):
    seconds, sign = some_seconds(), folder / "sign"
    one = attempt(f"{RUNAWAYS.format(n=seconds)} until [ -e {sign} ]; do sleep 0.01; done; echo done")
    running = asyncio.create_task(executor.execute(one))
    await until(lambda: len(alive(f"sleep\0{seconds}")) >= 3)
    sign.touch()
    outcome = await running
    assert outcome == Outcome(exit_code=0, response="done\n")
    assert alive(seconds, one.claim.execution_id) == []


async def test_a_script_that_takes_too_long_gets_sigterm_first(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept
):
    one = attempt("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done", timeout_seconds=3.5)
    outcome = await executor.execute(one)
    assert (outcome.error_type, outcome.exit_code, outcome.response) == (ErrorType.TIMEOUT, 7, "up\nbye\n")
    assert "longer than 3.5 s" in (outcome.error_message or "")
    assert alive(one.claim.execution_id) == []


async def test_the_whole_process_group_gets_the_grace_period(executor: ScriptExecutor, attempt: MakeAttempt):
    """The shell itself ends at once; its child cleans up first."""
    child = "(trap 'sleep 0.3; echo tidied; exit' TERM; echo up; while :; do sleep 0.01; done) & wait"
    outcome = await executor.execute(attempt(child, timeout_seconds=3))
    assert (outcome.error_type, outcome.exit_code, outcome.response) == (ErrorType.TIMEOUT, -15, "up\ntidied\n")


@with_setsid
async def test_a_script_that_ignores_sigterm_is_killed_2_seconds_later(executor: ScriptExecutor, attempt: MakeAttempt):
    seconds = some_seconds()
    one = attempt(f"trap '' TERM; {RUNAWAYS.format(n=seconds)} while :; do sleep 0.1; done", timeout_seconds=2)
    began = time.monotonic()
    outcome = await executor.execute(one)
    assert time.monotonic() - began >= 4
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.TIMEOUT, -9)
    assert alive(seconds, one.claim.execution_id) == []


@with_setsid
async def test_a_cancelled_script_has_ended_when_the_cancellation_is_raised(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    seconds = some_seconds()
    tidy = "trap 'echo asked; sleep 0.5; echo tidied; exit' TERM"
    one = attempt(f"{tidy}; {RUNAWAYS.format(n=seconds)} echo up; while :; do sleep 0.05; done")
    running = await start(executor, one, log)
    running.cancel()
    await until(lambda: "asked" in log.text())
    running.cancel()  # further cancellations have no effect
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(seconds, one.claim.execution_id) == []
    assert log.text().endswith("tidied\n")
    await until(lambda: os.listdir(folder) == [])


async def test_a_timeout_before_the_start_starts_nothing(executor: ScriptExecutor, attempt: MakeAttempt, log: Kept):
    outcome = await executor.execute(attempt("echo ran", timeout_seconds=0.001))
    assert outcome.error_type is ErrorType.TIMEOUT
    assert "nothing ran" in (outcome.error_message or "")
    assert log.written == []


@with_setsid
async def test_kill_9_of_the_node_leaves_no_orphan(folder: Path):
    seconds = some_seconds()
    node = _node(folder, f"{RUNAWAYS.format(n=seconds)} trap '' TERM; while :; do sleep 0.1; done")
    try:
        await until(lambda: len(alive(seconds)) >= 3)
    finally:
        node.kill()
        node.wait()
    await until(lambda: alive(seconds, str(folder)) == [])
    await until(lambda: os.listdir(folder) == [])  # its supervisor removes the folder when all have ended


@with_setsid
async def test_kill_9_of_node_and_fork_server_together_leaves_no_orphan(folder: Path):
    seconds = some_seconds()
    node = _node(folder, f"{RUNAWAYS.format(n=seconds)} wait")
    try:
        await until(lambda: len(alive(seconds)) >= 3)
        os.kill(int(node.stdout.readline()), signal.SIGKILL)
    finally:
        node.kill()
        node.wait()
    await until(lambda: alive(seconds, str(folder)) == [])
    await until(lambda: os.listdir(folder) == [])  # its supervisor removes the folder when all have ended


def _node(folder: Path, script: str) -> subprocess.Popen[str]:
    """A process that runs this one script without end, and prints the process id of its fork server."""
    program = f"""
import asyncio
from pathlib import Path
from duetime.domain.execution import Claim
from duetime.domain.job import ScriptJob
from duetime.domain.payloads import Script
from duetime.domain.states import Trigger
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.request import ScriptLimits
from duetime.ports.executor import Attempt

async def main():
    executor = ScriptExecutor(ScriptLimits(folder=Path({str(folder)!r})), allowed=True)
    job = ScriptJob(name="s", schedule="immediate", timeout_seconds=600, payload=Script(script={script!r}))
    claim = Claim("e", "j", "t", 0, Trigger.MANUAL, 5, 1, 1, 1, False, job)
    running = asyncio.create_task(executor.execute(Attempt(claim, job.payload)))
    while executor.link.pid is None:
        await asyncio.sleep(0)
    print(executor.link.pid, flush=True)
    await running

asyncio.run(main())
"""
    environment = os.environ | {"PYTHONPATH": str(Path(duetime.__file__).parents[1])}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, text=True)


async def test_a_script_outlives_its_fork_server_and_the_next_one_gets_another(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    sign = folder / "sign"
    running = await start(executor, attempt(f"echo up; until [ -e {sign} ]; do sleep 0.01; done"), log)
    fork_server = executor.link.pid
    assert fork_server is not None
    os.kill(fork_server, signal.SIGKILL)
    assert (await executor.execute(attempt("echo next"))).response == "next\n"
    assert executor.link.pid not in (None, fork_server)
    sign.touch()
    assert await running == Outcome(exit_code=0, response="up\n")


@with_setsid
async def test_a_script_whose_supervisor_is_killed_fails_and_leaves_nothing(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept
):
    seconds = some_seconds()
    one = attempt(f"{RUNAWAYS.format(n=seconds)} echo up $PPID; wait")
    running = await start(executor, one, log, sign="\n")
    await until(lambda: len(alive(seconds)) >= 3)
    other = asyncio.create_task(executor.execute(attempt("sleep 0.3; echo unharmed")))
    os.kill(int(log.text().split()[1]), signal.SIGKILL)
    outcome = await running
    assert outcome.error_type is ErrorType.INTERNAL_ERROR
    assert "watched over the script" in (outcome.error_message or "")
    await until(lambda: alive(seconds, one.claim.execution_id) == [])
    assert (await other).exit_code == 0


async def test_a_script_does_not_outlive_its_fork_server_and_supervisor(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept
):
    one = attempt("echo up $PPID; while :; do sleep 0.05; done")
    running = await start(executor, one, log, sign="\n")
    fork_server = executor.link.pid
    assert fork_server is not None
    os.kill(fork_server, signal.SIGKILL)
    os.kill(int(log.text().split()[1]), signal.SIGKILL)
    assert (await running).error_type is ErrorType.INTERNAL_ERROR
    await until(lambda: alive(one.claim.execution_id) == [])


async def test_a_fork_server_that_does_not_respond_is_replaced(
    executor: ScriptExecutor, attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("duetime.executors.script.run._READY_SECONDS", 2.0)
    await executor.execute(attempt("", "true"))
    fork_server = executor.link.pid
    assert fork_server is not None
    os.kill(fork_server, signal.SIGSTOP)
    assert (await executor.execute(attempt("echo next"))).response == "next\n"
    assert executor.link.pid != fork_server


def test_the_fork_server_loads_only_itself_and_the_standard_library():
    """It has to start fast, and its supervisors inherit everything that it loads."""
    root = str(Path(duetime.__file__).parents[1])
    program = (
        f"import sys; sys.path.append({root!r}); import duetime.executors.script.fork_server; "
        "print(*sorted({name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)));"
        "print(*(name for name in sys.modules if name.startswith('duetime') and '.script' not in name))"
    )
    completed = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.split("\n")[:2] == ["__main__ duetime", "duetime duetime.executors"]


async def test_the_fork_server_ends_when_the_executor_stops(executor: ScriptExecutor, attempt: MakeAttempt):
    await executor.execute(attempt("", "true"))
    fork_server = executor.link.pid
    await executor.stop()
    assert not exists(fork_server)
    assert executor.link.pid is None


async def test_an_interrupt_of_the_node_does_not_reach_its_scripts(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    """Ctrl-C goes to a whole process group; a service manager sends SIGTERM to the fork server, too."""
    sign = folder / "sign"
    running = await start(executor, attempt(f"echo up; until [ -e {sign} ]; do sleep 0.01; done"), log)
    fork_server = executor.link.pid
    assert fork_server is not None
    assert os.getsid(fork_server) == fork_server
    os.kill(fork_server, signal.SIGTERM)
    os.kill(fork_server, signal.SIGINT)
    sign.touch()
    assert (await running).exit_code == 0
    assert (await executor.execute(attempt("", "true"))).exit_code == 0
    assert executor.link.pid == fork_server


def test_scripts_end_the_same_way_on_uvloop(attempt: MakeAttempt, log: Kept, folder: Path):
    async def scenario() -> None:
        executor = ScriptExecutor(ScriptLimits(folder=folder), allowed=True)
        assert await executor.execute(attempt("echo hello")) == Outcome(exit_code=0, response="hello\n")
        late = await executor.execute(attempt("sleep 60", timeout_seconds=1))
        assert (late.error_type, late.exit_code) == (ErrorType.TIMEOUT, -15)
        one = attempt("echo up; sleep 60")
        running = await start(executor, one, log)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert alive(one.claim.execution_id) == []
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            await executor.execute(attempt("", "true"))
        assert len(os.listdir("/proc/self/fd")) == before
        await executor.stop()

    uvloop.run(scenario())
