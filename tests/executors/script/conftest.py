from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from duetime.domain.job import ScriptJob
from duetime.domain.payloads import Script
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.request import ScriptLimits
from duetime.ports.executor import Attempt
from executors.script.watching import Kept
from patience import PATIENCE_SECONDS
from samples import claim_of


@pytest.fixture
def folder() -> Iterator[Path]:
    """The folder of private folders; any user may enter it, unlike pytest's own."""
    path = Path(tempfile.mkdtemp(prefix="duetime-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def make_executor(folder: Path) -> AsyncIterator[Callable[..., ScriptExecutor]]:
    made: list[ScriptExecutor] = []

    def make(**limits: int) -> ScriptExecutor:
        made.append(ScriptExecutor(ScriptLimits(folder=folder, **limits), allowed=True))
        return made[-1]

    yield make
    for executor in made:
        await executor.stop()


@pytest.fixture
async def executor(
    make_executor: Callable[..., ScriptExecutor], attempt: Callable[..., Attempt[Script]]
) -> ScriptExecutor:
    """An executor whose fork server has started: on a busy machine that takes longer than some scripts here may."""
    made = make_executor()
    await made.execute(attempt("", "true"))
    return made


@pytest.fixture
def log() -> Kept:
    return Kept()


@pytest.fixture
def attempt(log: Kept) -> Callable[..., Attempt[Script]]:
    def make(
        script: str = "",
        *argv: str,
        timeout_seconds: float = PATIENCE_SECONDS,
        may_send: Callable[[], bool] = lambda: True,
        **more,
    ) -> Attempt[Script]:
        job = ScriptJob(
            name="report", schedule="every 1m", timeout_seconds=timeout_seconds,
            payload=Script(script=script, argv=argv, **more),
        )  # fmt: skip
        claim = claim_of(
            job, execution_id=str(uuid.uuid4()), job_id="01970c6e-0000-7000-8000-000000000001", tenant="default",
            scheduled_at=1_767_225_600_007, attempt=2, token=5,
        )  # fmt: skip
        return Attempt(claim, job.payload, may_send, log)

    return make
