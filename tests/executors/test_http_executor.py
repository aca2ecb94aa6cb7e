from __future__ import annotations

import asyncio
import resource
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duetime.domain.execution import ErrorType
from duetime.domain.job import Delivery
from duetime.domain.targets import parse_domains
from duetime.executors.connection import Connection
from duetime.executors.guard import Target, parse_target
from duetime.executors.http import HttpExecutor
from duetime.executors.pool import ConnectionLimits, ConnectionPool
from duetime.ports.executor import Attempt, NotSent, Outcome
from executors.conftest import LOOPBACK
from executors.hostile import Hostile
from patience import PATIENCE_SECONDS

MakeAttempt = Callable[..., Attempt]


async def test_a_2xx_response_is_a_success_with_its_text(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    assert await executor.execute(attempt(target.url())) == Outcome(http_status=200, response="ok")


async def test_method_path_query_and_body_arrive_as_defined_in_the_job(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    await executor.execute(attempt(target.url("/ok/ä?a=b c".replace(" ", "%20")), method="PUT", body={"n": 1}))
    await executor.execute(attempt(target.url("/ok?x"), method="GET"))
    await executor.execute(attempt(target.url("/ok"), method="POST", body="plain ü"))
    put, get, post = target.received
    assert (put.line, put.body) == ("PUT /ok/%C3%A4?a=b%20c HTTP/1.1", b'{"n":1}')
    assert put.headers["content-type"] == "application/json"
    assert (get.line, get.body) == ("GET /ok?x HTTP/1.1", b"")
    assert "content-length" not in get.headers
    assert "content-type" not in get.headers
    assert (post.body, post.headers["content-type"]) == ("plain ü".encode(), "text/plain; charset=utf-8")


async def test_headers_identify_execution_attempt_and_token(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    await executor.execute(attempt(target.url(), headers={"X-Key": "s", "User-Agent": "mine"}))
    headers = target.received[0].headers
    assert headers == {
        "host": f"127.0.0.1:{target.port}",
        "x-key": "s",
        "user-agent": "mine",
        "accept": "*/*",
        "accept-encoding": "identity",
        "content-length": "0",
        "webhook-id": "01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f",
        "webhook-timestamp": "1445412420",
        "idempotency-key": "01970c6e-7b1a-7c3d-8e4f-5a6b7c8d9e0f",
        "duetime-job-id": "01970c6e-0000-7000-8000-000000000001",
        "duetime-scheduled-at": "2026-01-01T00:00:00.007Z",
        "duetime-attempt": "2",
        "duetime-fencing-token": "5",
        "duetime-trigger": "schedule",
        "traceparent": "00-01970c6e7b1a7c3d8e4f5a6b7c8d9e0f-0000000500000002-00",
    }


async def test_connections_are_used_again(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    for _ in range(5):
        assert (await executor.execute(attempt(target.url()))).http_status == 200
    assert target.connections == 1


async def test_a_kept_connection_that_the_target_cuts_as_we_write_is_replaced_once(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    for _ in range(2):
        assert (await executor.execute(attempt(target.url("/stale")))).http_status == 200
    assert (target.connections, len(target.received)) == (2, 3)


async def test_an_at_most_once_job_is_not_sent_again_when_a_kept_connection_is_cut(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    once = attempt(target.url("/stale"), delivery=Delivery.AT_MOST_ONCE)
    assert (await executor.execute(once)).http_status == 200
    assert (await executor.execute(once)).error_type is ErrorType.CONNECTION_ERROR
    assert (target.connections, len(target.received)) == (1, 2)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_nothing_is_sent_once_the_lease_is_in_doubt(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, is_kept: bool
):
    if is_kept:
        await executor.execute(attempt(target.url()))
    connected: list[int] = []

    def may_send() -> bool:
        connected.append(target.connections)
        return False

    with pytest.raises(NotSent):
        await executor.execute(msgspec.structs.replace(attempt(target.url()), may_send=may_send))
    assert len(connected) == 1
    while target.connections_open:
        target.gone.clear()
        await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)
    assert (target.connections, len(target.received)) == (1, is_kept)


async def test_the_lease_is_checked_after_the_connection_is_open(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    """Connecting takes time, and the process may be suspended meanwhile."""
    loop = asyncio.get_running_loop()
    in_doubt = asyncio.Event()
    connect = loop.create_connection

    async def connect_slowly(*arguments: Any, **options: Any) -> Any:
        connected = await connect(*arguments, **options)
        in_doubt.set()
        return connected

    loop.create_connection = connect_slowly  # type: ignore[method-assign]
    doubtful = msgspec.structs.replace(attempt(target.url()), may_send=lambda: not in_doubt.is_set())
    with pytest.raises(NotSent):
        await executor.execute(doubtful)
    assert target.received == []


async def test_a_request_is_not_sent_again_once_the_lease_is_in_doubt(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    await executor.execute(attempt(target.url("/stale")))
    answers = iter([True, False])
    with pytest.raises(NotSent):
        await executor.execute(msgspec.structs.replace(attempt(target.url("/stale")), may_send=lambda: next(answers)))
    assert len(target.received) == 2


async def test_a_body_without_a_length_ends_with_its_connection(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    outcome = await executor.execute(attempt(target.url("/raw/close")))
    assert outcome == Outcome(http_status=200, response="until the end")


async def test_a_head_request_does_not_wait_for_a_body(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    target.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
    outcome = await executor.execute(attempt(target.url(), method="HEAD"))
    assert outcome == Outcome(http_status=200)


@pytest.mark.parametrize("status", [199 + 5, 404, 410, 500, 503])
async def test_only_expected_statuses_are_a_success(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, status: int
):
    outcome = await executor.execute(attempt(target.url(f"/status/{status}"), expect_status=(418,)))
    assert (outcome.error_type, outcome.http_status) == (ErrorType.HTTP_ERROR, status)
    assert outcome.error_message == f"127.0.0.1 answered {status}."
    outcome = await executor.execute(attempt(target.url(f"/status/{status}"), expect_status=(418, status)))
    assert outcome.error_type is None


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [("seconds", 120.0), ("huge", 1e9), ("negative", None), ("garbage", None), ("date", 60.0), ("past", None)],
)
async def test_retry_after_is_parsed(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, kind: str, seconds: float | None
):
    outcome = await executor.execute(attempt(target.url(f"/retry/{kind}")))
    assert outcome.http_status == 429
    assert outcome.retry_after_seconds == seconds


async def test_a_redirect_is_not_followed(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    outcome = await executor.execute(attempt(target.url("/redirect")))
    assert (outcome.error_type, outcome.http_status) == (ErrorType.HTTP_ERROR, 302)
    assert "redirects are not followed" in (outcome.error_message or "")
    assert len(target.received) == 1


@pytest.mark.parametrize("path", ["/hang", "/drip/head", "/drip/body"])
async def test_a_target_that_takes_too_long_times_out_and_is_cut_off(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, path: str
):
    started = time.monotonic()
    outcome = await executor.execute(attempt(target.url(f"{path}?secret=1"), timeout_seconds=0.5))
    assert time.monotonic() - started > 0.4, "not before its time"
    assert outcome.error_type is ErrorType.TIMEOUT
    assert outcome.error_message == "127.0.0.1 did not answer in full within 0.5 s."
    await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)


async def test_cancelling_an_attempt_cuts_its_connection(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    running = asyncio.create_task(executor.execute(attempt(target.url("/hang"), timeout_seconds=60)))
    await target.reached.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)


async def test_an_endless_response_is_read_up_to_the_limit_and_cut_off(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    outcome = await executor.execute(attempt(target.url("/endless")))
    assert (outcome.http_status, outcome.response) == (200, "x" * 1000)
    await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)


async def test_a_gzip_bomb_is_not_inflated(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await executor.execute(attempt(target.url("/bomb")))
    assert outcome.http_status == 200
    assert len(outcome.response or "") <= 1000
    assert "\x00" not in (outcome.response or "")
    # The target, in this process, holds the 20 MB once to compress them.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 35_000


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("line", "64 kB of headers"),
        ("many", "2000 headers, interim answers and tiny chunks"),
        ("interim", "2000 headers, interim answers and tiny chunks"),
        ("whole", "64 kB of headers"),
    ],
)
async def test_giant_headers_end_the_exchange(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, kind: str, what: str
):
    outcome = await executor.execute(attempt(target.url(f"/giant/{kind}")))
    assert outcome == Outcome(ErrorType.CONNECTION_ERROR, f"127.0.0.1 sent more than {what}.")
    await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)


@pytest.mark.parametrize("kind", ["garbage", "short", "chunk", "upgrade", "reset"])
async def test_a_response_that_is_not_http_is_a_connection_error(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, kind: str
):
    outcome = await executor.execute(attempt(target.url(f"/raw/{kind}?secret=1")))
    assert outcome.error_type is ErrorType.CONNECTION_ERROR
    assert outcome.error_message is not None
    assert outcome.error_message.startswith("127.0.0.1 ")
    assert "secret" not in outcome.error_message
    assert len(target.received) == 1


async def test_nul_and_bad_utf8_are_cleaned(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    outcome = await executor.execute(attempt(target.url("/raw/nul")))
    assert outcome.response == "a\ufffdb\ufffd\ufffdc\ufffd[m"


async def test_an_interim_response_is_not_the_response(executor: HttpExecutor, target: Hostile, attempt: MakeAttempt):
    assert await executor.execute(attempt(target.url("/raw/interim"))) == Outcome(http_status=200, response="ok")


async def test_an_unrequested_second_response_is_not_used_for_the_next_request(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    assert (await executor.execute(attempt(target.url("/raw/two")))).http_status == 200
    assert (await executor.execute(attempt(target.url()))).http_status == 200
    assert target.connections == 2


async def test_the_error_for_a_refused_connection_has_host_and_port(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    port = target.port
    await target.__aexit__(None, None, None)
    outcome = await executor.execute(attempt(f"http://127.0.0.1:{port}/"))
    assert outcome == Outcome(
        error_type=ErrorType.CONNECTION_ERROR,
        error_message=f"No connection to 127.0.0.1:{port}: Connection refused.",
    )


async def test_a_bad_header_is_refused_before_anything_is_sent(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt
):
    outcome = await executor.execute(attempt(target.url(), headers={"X-Key": "a\r\nHost: evil"}))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert "evil" not in (outcome.error_message or "")
    assert target.connections == 0


async def test_proxies_from_the_environment_are_not_used(
    executor: HttpExecutor, target: Hostile, attempt: MakeAttempt, monkeypatch: pytest.MonkeyPatch
):
    async with Hostile() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        assert (await executor.execute(attempt(target.url()))).http_status == 200
        assert proxy.connections == 0


async def test_tls_is_verified_against_the_name_and_the_trusted_roots(
    attempt: MakeAttempt, certificate: tuple[Path, Path]
):
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(*certificate)
    trusting = ssl.create_default_context(cafile=str(certificate[0]))

    async def lookup(host: str) -> list[str]:
        return ["127.0.0.1"]

    async with Hostile(tls=server_side) as target:
        for tls, host, error_type in [
            (trusting, "hook.example", None),
            (trusting, "other.example", ErrorType.TLS_ERROR),
            (None, "hook.example", ErrorType.TLS_ERROR),
        ]:
            executor = HttpExecutor(allow=LOOPBACK, lookup=lookup, tls=tls)
            outcome = await executor.execute(attempt(target.url(host=host)))
            await executor.stop()
            assert outcome.error_type is error_type
            assert error_type is None or (outcome.error_message or "").startswith(f"No TLS connection to {host}: ")
    assert len(target.received) == 1


async def test_a_tls_handshake_that_hangs_times_out(executor: HttpExecutor, attempt: MakeAttempt):
    async with Hostile() as target:
        outcome = await executor.execute(attempt(f"https://127.0.0.1:{target.port}/", timeout_seconds=1))
        assert outcome.error_type is ErrorType.TIMEOUT
        await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)


async def test_a_tls_handshake_has_a_separate_limit(attempt: MakeAttempt):
    executor = HttpExecutor(allow=LOOPBACK, limits=ConnectionLimits(handshake_seconds=0.2))
    async with Hostile() as target:
        outcome = await executor.execute(attempt(f"https://127.0.0.1:{target.port}/", timeout_seconds=PATIENCE_SECONDS))
        await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)
    await executor.stop()
    assert outcome == Outcome(ErrorType.TLS_ERROR, "127.0.0.1 did not complete the TLS handshake within 0.2 s.")


@pytest.mark.parametrize("path", ["/hang", "/drip/head"])
async def test_the_head_of_a_response_has_a_separate_limit(target: Hostile, attempt: MakeAttempt, path: str):
    executor = HttpExecutor(allow=LOOPBACK, limits=ConnectionLimits(header_seconds=0.2))
    assert (await executor.execute(attempt(target.url()))).http_status == 200
    outcome = await executor.execute(attempt(target.url(path), timeout_seconds=PATIENCE_SECONDS))
    await executor.stop()
    assert outcome == Outcome(ErrorType.TIMEOUT, "127.0.0.1 did not begin to answer within 0.2 s.")


async def test_a_response_that_begins_in_time_may_use_the_whole_timeout(target: Hostile, attempt: MakeAttempt):
    executor = HttpExecutor(allow=LOOPBACK, limits=ConnectionLimits(header_seconds=0.2))
    outcome = await executor.execute(attempt(target.url("/drip/body"), timeout_seconds=0.5))
    await executor.stop()
    assert outcome == Outcome(ErrorType.TIMEOUT, "127.0.0.1 did not answer in full within 0.5 s.")


async def test_idle_connections_to_one_origin_are_bounded(target: Hostile):
    pool = ConnectionPool(ssl.create_default_context(), ConnectionLimits(idle_seconds=3600, idle_of_origin=2))
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    one, other = parse_target(target.url()), parse_target(target.url(host="localhost"))
    opened = [(place, await pool.connect(place, ["127.0.0.1"], deadline)) for place in (one, one, one, other)]
    for place, connection in opened:
        await connection.exchange(b"GET /ok HTTP/1.1\r\n\r\n", deadline)
        pool.give_back(place, connection)
    assert [connection.open for _, connection in opened] == [True, True, False, True]
    pool.close()


async def test_a_connection_is_kept_though_it_took_the_place_of_the_last_one_to_its_origin(target: Hostile):
    pool = ConnectionPool(ssl.create_default_context(), ConnectionLimits(idle_seconds=3600, idle=2))
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    one, other = parse_target(target.url()), parse_target(target.url(host="localhost"))
    opened = [await pool.connect(place, ["127.0.0.1"], deadline) for place in (one, other, one)]
    for connection, place, tenant in zip(opened, (one, other, one), ("large", "large", "small"), strict=True):
        await connection.exchange(b"GET /ok HTTP/1.1\r\n\r\n", deadline)
        pool.give_back(place, connection, tenant)
    assert [connection.open for connection in opened] == [False, True, True]
    assert pool.take(one, ["127.0.0.1"]) is opened[2]
    pool.close()


async def test_only_listed_hosts_are_called_if_there_is_a_list(target: Hostile, attempt: MakeAttempt):
    async def lookup(host: str) -> list[str]:
        return ["127.0.0.1"]

    executor = HttpExecutor(allow=LOOPBACK, lookup=lookup, domains=parse_domains(["hook.example", "*.hooks.example"]))
    for host in ("hook.example", "a.hooks.example"):
        assert (await executor.execute(attempt(target.url(host=host)))).http_status == 200
    for host in ("other.example", "hooks.example", "127.0.0.1", "nothook.example", "hook.example.evil.example"):
        outcome = await executor.execute(attempt(target.url(host=host)))
        assert outcome == Outcome(
            ErrorType.BLOCKED_TARGET,
            f"{host} is not one of the hosts that jobs may call here (ALLOWED_TARGETS). Nothing was sent.",
        )
    await executor.stop()
    assert len(target.received) == 2


async def test_a_listed_host_with_a_private_address_is_blocked(target: Hostile, attempt: MakeAttempt):
    async def lookup(host: str) -> list[str]:
        return ["127.0.0.1"]

    executor = HttpExecutor(lookup=lookup, domains=parse_domains(["hook.example"]))
    outcome = await executor.execute(attempt(target.url(host="hook.example")))
    await executor.stop()
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert target.received == []


async def test_idle_connections_are_bounded_in_number_and_age(target: Hostile):
    pool = ConnectionPool(ssl.create_default_context(), ConnectionLimits(idle_seconds=1.0, idle=2))
    place = parse_target(target.url())
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    opened = [await pool.connect(place, ["127.0.0.1"], deadline) for _ in range(3)]
    for connection in opened:
        await connection.exchange(b"GET /ok HTTP/1.1\r\n\r\n", deadline)
        pool.give_back(place, connection)
    assert [connection.open for connection in opened] == [True, True, False]
    while target.connections_open:
        target.gone.clear()
        await asyncio.wait_for(target.gone.wait(), PATIENCE_SECONDS)
    assert pool.take(place, ["127.0.0.1"]) is None
    pool.close()


async def test_many_idle_connections_of_one_tenant_do_not_close_those_of_another(target: Hostile):
    pool = ConnectionPool(ssl.create_default_context(), ConnectionLimits(idle_seconds=3600, idle=4))
    deadline = asyncio.get_running_loop().time() + 60
    flooded, quiet = parse_target(target.url()), parse_target(target.url(host="localhost"))

    async def kept(place: Target, tenant: str) -> Connection:
        connection = await pool.connect(place, ["127.0.0.1"], deadline)
        await connection.exchange(b"GET /ok HTTP/1.1\r\n\r\n", deadline)
        pool.give_back(place, connection, tenant)
        return connection

    flood = [await kept(flooded, "hostile") for _ in range(6)]
    mine = [await kept(quiet, "other") for _ in range(3)]
    assert [connection.open for connection in mine] == [True, True, False]
    assert [connection.open for connection in flood] == [False, False, True, True, False, False]
    assert pool.take(quiet, ["127.0.0.1"]) is mine[1]
    assert (await kept(flooded, "hostile")).open, "a place that is free again is anybody's"
    pool.close()
