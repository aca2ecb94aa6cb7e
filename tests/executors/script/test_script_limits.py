"""Scripts that exceed their limits are ended with a message, and do not affect others."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from duetime.domain.execution import ErrorType
from duetime.domain.payloads import Script
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.outcome import outcome_of
from duetime.executors.script.request import ScriptLimits
from duetime.executors.script.wire import Ended
from duetime.ports.executor import Attempt
from duetime.ports.logs import Stream
from executors.script.watching import alive, on_linux, python, resident_bytes, with_setsid

MakeAttempt = Callable[..., Attempt[Script]]
MakeExecutor = Callable[..., ScriptExecutor]

pytestmark = on_linux
MIB = 1024 * 1024


class Counting:
    """A log writer that counts, and measures our memory meanwhile."""

    def __init__(self) -> None:
        self.characters = 0
        self.most_bytes = 0

    def write(self, stream: Stream, text: str) -> None:
        self.characters += len(text)
        self.most_bytes = max(self.most_bytes, resident_bytes())

    async def close(self) -> None:
        return


FORK_FOR_EVER = """
import os, signal
while True:
    try:
        os.fork() or {escape}
    except OSError:
        continue
"""


@pytest.mark.parametrize(
    "escape",
    [
        pytest.param("None", id="in its group"),
        pytest.param("os.setsid()", id="in new sessions"),
        pytest.param("signal.signal(signal.SIGTERM, signal.SIG_IGN)", id="deaf"),
    ],
)
async def test_a_fork_bomb_is_ended_and_others_finish_meanwhile(
    make_executor: MakeExecutor, attempt: MakeAttempt, folder: Path, escape: str
):
    executor = make_executor(processes=30)
    running = asyncio.create_task(executor.execute(attempt(FORK_FOR_EVER.format(escape=escape), interpreter=python())))
    other = await executor.execute(attempt("echo fine"))
    outcome = await running
    assert other.response == "fine\n"
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.LIMIT_EXCEEDED, -signal.SIGKILL)
    assert "more than 30 processes" in (outcome.error_message or "")
    assert alive(str(folder)) == []


@pytest.mark.parametrize(
    "bomb",
    [
        pytest.param("b() { b | b & }; b", id="in its group"),
        pytest.param('setsid env -i sh "$0" & setsid env -i sh "$0" &', id="in new sessions", marks=with_setsid),
    ],
)
async def test_a_fork_bomb_ends_with_a_script_that_ends_at_once(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path, bomb: str
):
    one = attempt(bomb)
    await executor.execute(one)
    assert alive(one.claim.execution_id, str(folder)) == []


async def test_between_two_checks_the_kernel_limits_the_processes(make_executor: MakeExecutor, attempt: MakeAttempt):
    outcome = await make_executor(processes=10).execute(attempt("", "grep", "Max processes", "/proc/self/limits"))
    bound = int(str(outcome.response).split()[2])
    if os.geteuid() == 0:
        assert bound == 20
    else:
        assert 20 < bound < 32_768


async def test_one_process_cant_exceed_the_memory_limit(make_executor: MakeExecutor, attempt: MakeAttempt):
    executor = make_executor(memory_bytes=100 * MIB)
    outcome = await executor.execute(attempt("b = bytearray(200 << 20)", interpreter=python()))
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.EXIT_CODE, 1)
    outcome = await executor.execute(attempt("", "tail", "/dev/zero"))
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.EXIT_CODE, 1)


async def test_many_processes_together_cant_exceed_the_memory_limit(make_executor: MakeExecutor, attempt: MakeAttempt):
    """Each of them holds twenty million zeros in a variable, and sleeps."""
    executor = make_executor(memory_bytes=60 * MIB)
    one = attempt("for i in 1 2 3 4; do (x=$(printf %020000000d 0); sleep 60; echo $x) & done; wait")
    outcome = await executor.execute(one)
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.LIMIT_EXCEEDED, -signal.SIGKILL)
    assert "more than 60 MiB of memory" in (outcome.error_message or "")
    assert alive(one.claim.execution_id) == []


@pytest.mark.skipif(not os.access("/proc/self/smaps_rollup", os.R_OK), reason="the kernel does not tell shared memory")
async def test_memory_that_processes_share_counts_once(make_executor: MakeExecutor, attempt: MakeAttempt):
    executor = make_executor(memory_bytes=150 * MIB)
    script = (
        "import os, time\nheld = bytearray(80 << 20)\nfor _ in range(4):\n  os.fork() or time.sleep(0.5) or os._exit(0)"
    )
    outcome = await executor.execute(attempt(script + "\nfor _ in range(4): os.wait()", interpreter=python()))
    assert (outcome.error_type, outcome.exit_code) == (None, 0)


async def test_the_outcome_names_the_limit_on_processor_time(make_executor: MakeExecutor, attempt: MakeAttempt):
    outcome = await make_executor(cpu_seconds=1).execute(attempt("while :; do :; done"))
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.LIMIT_EXCEEDED, -signal.SIGXCPU)
    assert "more than 1 s of processor time" in (outcome.error_message or "")


async def test_the_outcome_names_the_limit_on_file_size(make_executor: MakeExecutor, attempt: MakeAttempt):
    outcome = await make_executor(file_bytes=MIB).execute(
        attempt("", "dd", "if=/dev/zero", "of=x", "bs=64k", "count=32")
    )
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.LIMIT_EXCEEDED, -signal.SIGXFSZ)
    assert "a file of more than 1 MiB" in (outcome.error_message or "")


@pytest.mark.parametrize(
    ("status", "cpu_seconds", "is_limit"),
    [
        (signal.SIGXCPU, 5.0, True),
        ((128 + signal.SIGXCPU) << 8, 0.1, True),  # a shell whose command was ended by the limit
        (signal.SIGKILL, 5.5, True),  # it ignored the signal
        (signal.SIGKILL, 4.5, False),  # another process sent the signal
        ((128 + signal.SIGKILL) << 8, 0.1, False),
        ((128 + signal.SIGXFSZ) << 8, 0.1, True),
        (1 << 8, 9.0, False),
    ],
)
def test_the_end_by_a_limit_is_distinguished_from_other_ends(status: int, cpu_seconds: float, is_limit: bool):
    outcome = outcome_of(Ended(status, cpu_seconds, ""), ScriptLimits(cpu_seconds=5), None)
    assert outcome.error_type is (ErrorType.LIMIT_EXCEEDED if is_limit else ErrorType.EXIT_CODE)


def test_without_a_limit_on_processor_time_the_outcome_names_none():
    assert outcome_of(Ended(signal.SIGKILL, 9.0, ""), ScriptLimits(), None).error_type is ErrorType.EXIT_CODE
    assert outcome_of(Ended(signal.SIGXCPU, 9.0, ""), ScriptLimits(), None).error_type is ErrorType.EXIT_CODE


async def test_a_flood_of_output_is_read_to_the_end_in_little_memory(executor: ScriptExecutor, attempt: MakeAttempt):
    log = Counting()
    before = resident_bytes()
    one = attempt("", "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x")
    outcome = await executor.execute(_with_log(one, log))
    assert (outcome.exit_code, outcome.response) == (0, "x" * 1000)
    assert log.characters == 100_000_000
    assert log.most_bytes - before < 50 * MIB


async def test_endless_output_ends_at_the_timeout(executor: ScriptExecutor, attempt: MakeAttempt):
    log = Counting()
    outcome = await executor.execute(_with_log(attempt("", "yes", timeout_seconds=1), log))
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.TIMEOUT, -signal.SIGTERM)
    assert log.characters > MIB


def _with_log(one: Attempt[Script], log: Counting) -> Attempt[Script]:
    return msgspec.structs.replace(one, log=log)
