"""Attempts of jobs with encrypted secrets: only the target gets the secrets."""

from __future__ import annotations

import base64
import json

import pytest
from structlog.testing import capture_logs

from duetime.domain import commands as c
from duetime.domain.execution import Outcome
from duetime.domain.http_rules import HIDDEN
from duetime.domain.job import RetryPolicy
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import encrypt_job
from duetime.domain.states import ErrorType, State
from duetime.ports.executor import Attempt
from duetime.testing import ScriptedExecutor
from duetime.vault.aes import AesVault
from duetime.vault.key_file import make_key
from engine.stage import Stage
from samples import NOW, URL, new_job, spec

TOKEN = "s3cret-of-ann-0815"
PAYLOAD = HttpRequest(
    URL, headers={"Authorization": f"Bearer {TOKEN}"}, body={"pin": 471147, "n": 1}, secret=("/body/pin",)
)


@pytest.fixture
def vault(stage: Stage) -> AesVault:
    made = AesVault((make_key(),))
    stage.vault = made
    return made


async def run_encrypted(stage: Stage, vault: AesVault, **fields: object) -> str:
    """Runs a job with encrypted secrets that is due now. Returns its id."""
    await stage.join()
    job = encrypt_job(new_job(spec("immediate", payload=PAYLOAD, **fields), now=NOW), vault)
    assert await stage.apply(c.CreateJobs(NOW, (job,))) is None
    stage.engine.term.timer.hint(job.due_at)
    await stage.tick()
    return job.job_id


async def kept(stage: Stage, job_id: str) -> str:
    """Returns everything that the store has of a job and its executions, as text."""
    executions = await stage.executions(job_id)
    attempts = [await stage.store.list_attempts(e.execution_id) for e in executions]
    return repr((await stage.job(job_id), executions, attempts))


async def test_the_target_gets_the_plain_secret_that_the_store_does_not_have(
    stage: Stage, executor: ScriptedExecutor, vault: AesVault
):
    job_id = await run_encrypted(stage, vault)
    assert [attempt.payload for attempt in executor.attempts] == [PAYLOAD]
    assert await stage.states(job_id) == [State.COMPLETED]
    text = await kept(stage, job_id)
    assert TOKEN not in text
    assert "471147" not in text


async def test_a_secret_is_redacted_from_a_response_that_echoes_it(
    stage: Stage, executor: ScriptedExecutor, vault: AesVault
):
    def echo(attempt: Attempt) -> Outcome:
        said = json.dumps(
            [attempt.payload.headers, attempt.payload.body, base64.b64encode(f"ann:{TOKEN}".encode()).decode()]
        )
        return Outcome(ErrorType.HTTP_ERROR, f"answered 400 to {TOKEN}", 400, said)

    executor.answer(echo)
    job_id = await run_encrypted(stage, vault)
    (failed,) = await stage.executions(job_id)
    assert failed.error_message == f"answered 400 to {HIDDEN}"
    assert failed.response is not None
    headers, body, basic = json.loads(failed.response.replace(f'"pin": {HIDDEN}', f'"pin": "{HIDDEN}"'))
    assert (headers, body) == ({"Authorization": f"Bearer {HIDDEN}"}, {"pin": HIDDEN, "n": 1})
    assert HIDDEN in basic
    text = await kept(stage, job_id)
    assert TOKEN not in text
    assert "471147" not in text


async def test_an_exception_of_an_executor_reveals_no_secret(stage: Stage, executor: ScriptedExecutor, vault: AesVault):
    def broken(attempt: Attempt) -> Outcome:
        raise ValueError(f"can't send {attempt.payload}")

    executor.answer(broken)
    with capture_logs() as logs:
        job_id = await run_encrypted(stage, vault)
    assert [log["event"] for log in logs] == ["an executor failed"]
    assert "ValueError" in str(logs)
    (failed,) = await stage.executions(job_id)
    assert "can't send HttpRequest" in (failed.error_message or "")
    for text in (str(logs), await kept(stage, job_id)):
        assert TOKEN not in text
        assert "471147" not in text


async def test_an_attempt_without_its_key_sends_nothing_and_is_retried(
    stage: Stage, executor: ScriptedExecutor, vault: AesVault
):
    stage.vault = AesVault((make_key(),))
    job_id = await run_encrypted(stage, vault, retry_policy=RetryPolicy(delays=(5,)))
    assert executor.attempts == []
    (waiting,) = await stage.executions(job_id)
    assert (waiting.state, waiting.error_type) == (State.RETRYING, ErrorType.INTERNAL_ERROR)
    assert f"encrypted with the key {vault.key_id}, which this node does not have" in (waiting.error_message or "")
    assert (waiting.error_message or "").endswith("Nothing was sent.")


async def test_a_secret_of_another_job_is_not_sent(stage: Stage, executor: ScriptedExecutor, vault: AesVault):
    """An attacker who can write to the database can't send the secret of another job to an own target."""
    await stage.join()
    victim = encrypt_job(new_job(spec("immediate", payload=PAYLOAD), now=NOW), vault)
    thief = new_job(spec("immediate", payload=victim.spec.payload), now=NOW)
    assert await stage.apply(c.CreateJobs(NOW, (thief,))) is None
    stage.engine.term.timer.hint(thief.due_at)
    await stage.tick()
    assert executor.attempts == []
    (failed,) = await stage.executions(thief.job_id)
    assert "does not belong to this job" in (failed.error_message or "")


async def test_plain_headers_of_an_earlier_version_are_sent_also_without_keys(stage: Stage, executor: ScriptedExecutor):
    await stage.join()
    await stage.add_job(spec("immediate", payload=PAYLOAD))
    await stage.tick()
    assert [attempt.payload for attempt in executor.attempts] == [PAYLOAD]
