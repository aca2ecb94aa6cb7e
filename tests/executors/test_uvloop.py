"""uvloop, which production uses, closes and fails differently from asyncio: tests of these cases."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from duetime.domain.execution import ErrorType
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt, Outcome
from executors.conftest import LOOPBACK
from executors.hostile import Hostile
from patience import PATIENCE_SECONDS

MakeAttempt = Callable[..., Attempt]


async def _lookup(host: str) -> list[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize(
    ("path", "error_type", "status"),
    [
        ("/ok", None, 200),
        ("/endless", None, 200),
        ("/raw/close", None, 200),
        ("/hang", ErrorType.TIMEOUT, None),
        ("/drip/body", ErrorType.TIMEOUT, None),
        ("/giant/line", ErrorType.CONNECTION_ERROR, None),
        ("/raw/garbage", ErrorType.CONNECTION_ERROR, None),
        ("/raw/short", ErrorType.CONNECTION_ERROR, None),
        ("/raw/reset", ErrorType.CONNECTION_ERROR, None),
    ],
)
def test_a_hostile_target_has_the_same_outcome_on_uvloop(
    attempt: MakeAttempt, path: str, error_type: ErrorType | None, status: int | None
):
    async def scenario() -> Outcome:
        async with Hostile() as target:
            executor = HttpExecutor(allow=LOOPBACK)
            timeout_seconds = 0.3 if error_type is ErrorType.TIMEOUT else 30
            outcome = await executor.execute(attempt(target.url(path), timeout_seconds=timeout_seconds))
            await executor.stop()
            await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)
            return outcome

    outcome = uvloop.run(scenario())
    assert (outcome.error_type, outcome.http_status) == (error_type, status)


def test_cancelling_cuts_the_connection_on_uvloop(attempt: MakeAttempt):
    async def scenario() -> None:
        async with Hostile() as target:
            executor = HttpExecutor(allow=LOOPBACK)
            running = asyncio.create_task(executor.execute(attempt(target.url("/hang"), timeout_seconds=60)))
            await target.reached.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)
            await executor.stop()

    uvloop.run(scenario())


def test_tls_is_verified_on_uvloop(attempt: MakeAttempt, certificate: tuple[Path, Path]):
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*certificate)

    async def scenario(host: str) -> Outcome:
        async with Hostile(tls=server_side) as target:
            trusting = ssl.create_default_context(cafile=str(certificate[0]))
            executor = HttpExecutor(allow=LOOPBACK, lookup=_lookup, tls=trusting)
            outcome = await executor.execute(attempt(target.url(host=host)))
            await executor.stop()
            return outcome

    assert uvloop.run(scenario("hook.example")).http_status == 200
    assert uvloop.run(scenario("other.example")).error_type is ErrorType.TLS_ERROR
