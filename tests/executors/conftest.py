from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from ipaddress import ip_network
from pathlib import Path

import pytest

from duetime.domain.job import Delivery, HttpJob
from duetime.domain.payloads import HttpRequest
from duetime.executors.http import HttpExecutor
from duetime.ports.executor import Attempt
from executors.hostile import Hostile
from patience import PATIENCE_SECONDS
from samples import claim_of

LOOPBACK = (ip_network("127.0.0.0/8"),)


@pytest.fixture
async def target() -> AsyncIterator[Hostile]:
    async with Hostile() as server:
        yield server


@pytest.fixture
async def executor() -> AsyncIterator[HttpExecutor]:
    """An executor that may call loopback, and resolves no names."""

    async def no_names(host: str) -> list[str]:
        raise AssertionError(f"{host} was looked up")

    made = HttpExecutor(allow=LOOPBACK, lookup=no_names, clock=lambda: 1_445_412_420.0)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def attempt() -> Callable[..., Attempt]:
    def make(
        url: str, timeout_seconds: float = 5.0, *, tenant: str = "default",
        delivery: Delivery = Delivery.AT_LEAST_ONCE, **payload: object,
    ) -> Attempt:  # fmt: skip
        job = HttpJob(
            name="report", schedule="every 1m", timeout_seconds=timeout_seconds, delivery=delivery,
            payload=HttpRequest(url=url, **payload),  # type: ignore[arg-type]
        )  # fmt: skip
        claim = claim_of(
            job, execution_id="01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f", job_id="01970c6e-0000-7000-8000-000000000001",
            tenant=tenant, scheduled_at=1_767_225_600_007, attempt=2, token=5,
        )  # fmt: skip
        return Attempt(claim, job.payload)

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for hook.example, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hook.example "
        "-addext subjectAltName=DNS:hook.example -keyout key.pem -out certificate.pem"
    )
    try:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    except FileNotFoundError:
        pytest.skip("openssl is not installed: TLS errors are not tested")
    return folder / "certificate.pem", folder / "key.pem"
