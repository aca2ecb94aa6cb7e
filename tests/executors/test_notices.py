"""Notices reach their channels: a signed webhook, and services by apprise through the proxy, over real sockets."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import sys
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from apprise.plugins import N_MGR

from duetime.domain.channels import Kind
from duetime.domain.execution import ErrorType
from duetime.executors.headers import signing_keys
from duetime.executors.http import HttpExecutor
from duetime.executors.notice.apprise import AppriseSender
from duetime.executors.notice.executor import Channel, NoticeExecutor
from duetime.executors.notice.schemes import ALLOWED, MAIL, WEB, refusal_of
from duetime.ports.executor import NotSent, Outcome
from duetime.ports.vault import DecryptionFailed
from executors.conftest import LOOPBACK
from executors.hostile import Hostile
from executors.notices import Channels, MailServer, notice_attempt
from security.inbox import inbox

SECRET = f"whsec_{b64encode(bytes(24)).decode()}"
TOKEN = "T0K3N"
FAR = 60.0


@pytest.fixture
async def tls_target(certificate: tuple[Path, Path]) -> AsyncIterator[Hostile]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with Hostile(tls=context) as server:
        yield server


@pytest.fixture
def unused_port() -> Iterator[int]:
    with socket.socket() as reserved:  # bound, and not listening: it refuses connections
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.fixture
async def sender() -> AsyncIterator[AppriseSender]:
    made = AppriseSender(allow=LOOPBACK)
    yield made
    assert not made.children
    await made.stop()


async def send(sender: AppriseSender, url: str, seconds: float = FAR, **fields: str) -> Outcome:
    return await sender.send(url, notice_attempt(timeout_seconds=seconds, **fields), time.monotonic() + seconds)


async def test_a_webhook_gets_a_request_that_its_verifier_accepts():
    with inbox() as box:
        webhooks = HttpExecutor(allow=LOOPBACK, keys_of=lambda tenant: signing_keys([SECRET]))
        channels = Channels(ops=Channel(Kind.WEBHOOK, box.url("/hooks/alerts")))
        executor = NoticeExecutor(webhooks, AppriseSender(), channels)
        attempt = notice_attempt(severity="critical", dedup_key="late:1")
        outcome = await executor.execute(attempt)
        await executor.stop()
        await webhooks.stop()
    assert outcome == Outcome(http_status=200)
    (request,) = box.at("/hooks/alerts")
    assert request.verifies(SECRET)
    assert request.headers["idempotency-key"] == attempt.claim.execution_id
    assert json.loads(request.body) == {
        "type": "alert.firing",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "data": {
            "title": "Late", "body": "3 jobs are late.", "severity": "critical", "status": "firing",
            "dedup_key": "late:1",
        },
    }  # fmt: skip


async def test_each_channel_of_a_notice_is_sent_to_and_the_first_failure_is_its_outcome(target: Hostile):
    channels = Channels(
        bad=Channel(Kind.WEBHOOK, target.url("/status/503")), good=Channel(Kind.WEBHOOK, target.url("/ok"))
    )
    webhooks = HttpExecutor(allow=LOOPBACK)
    outcome = await NoticeExecutor(webhooks, AppriseSender(), channels).execute(notice_attempt("bad", "good"))
    await webhooks.stop()
    assert (outcome.error_type, outcome.http_status) == (ErrorType.HTTP_ERROR, 503)
    assert [one.line.split(" ")[1] for one in target.received] == ["/status/503", "/ok"]


async def test_a_channel_of_another_tenant_is_not_found(target: Hostile):
    channels = Channels(ops=Channel(Kind.WEBHOOK, target.url()))
    executor = NoticeExecutor(HttpExecutor(allow=LOOPBACK), AppriseSender(), channels)
    outcome = await executor.execute(notice_attempt("ops", tenant="globex"))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert outcome.error_message == "There is no alert channel 'ops' (any more). Nothing was sent."
    assert not target.received


async def test_a_channel_whose_key_is_missing_fails_and_says_so():
    async def find(tenant: str, name: str) -> Channel:
        raise DecryptionFailed("the key k1 is missing")

    outcome = await NoticeExecutor(HttpExecutor(), AppriseSender(), find).execute(notice_attempt())
    assert outcome == Outcome(ErrorType.INTERNAL_ERROR, "the key k1 is missing. Nothing was sent.")


async def test_no_outcome_of_a_webhook_has_what_the_target_echoes(target: Hostile):
    for path in (f"/status/500/{TOKEN}", f"/ok/{TOKEN}", f"/redirect/{TOKEN}"):
        channels = Channels(ops=Channel(Kind.WEBHOOK, target.url(path)))
        webhooks = HttpExecutor(allow=LOOPBACK)
        outcome = await NoticeExecutor(webhooks, AppriseSender(), channels).execute(notice_attempt())
        await webhooks.stop()
        assert TOKEN not in repr(outcome)
        assert outcome.response is None


def test_a_channel_never_shows_its_url():
    assert TOKEN not in repr(Channel(Kind.APPRISE, f"slack://{TOKEN}"))


@pytest.mark.parametrize(
    ("status", "severity", "shown"),
    [("firing", "critical", "failure"), ("firing", "warning", "warning"), ("resolved", "critical", "success"),
     ("test", "info", "info")],
)  # fmt: skip
async def test_a_service_gets_the_message_through_the_proxy(
    sender: AppriseSender, target: Hostile, status: str, severity: str, shown: str
):
    url = f"json://127.0.0.1:{target.port}/ok/{TOKEN}"
    assert await send(sender, url, status=status, severity=severity) == Outcome(http_status=200)
    (request,) = target.received
    sent = json.loads(request.body)
    assert (sent["title"], sent["message"], sent["type"]) == ("Late", "3 jobs are late.", shown)
    assert request.line == f"POST /ok/{TOKEN} HTTP/1.1"
    assert not [name for name in request.headers if name.startswith("proxy-")]


async def test_a_service_is_called_over_tls_through_a_tunnel(sender: AppriseSender, tls_target: Hostile):
    outcome = await send(sender, f"jsons://127.0.0.1:{tls_target.port}/ok?verify=no")
    assert outcome == Outcome(http_status=200)
    assert len(tls_target.received) == 1


async def test_a_certificate_that_nobody_trusts_is_refused(sender: AppriseSender, tls_target: Hostile):
    outcome = await send(sender, f"jsons://127.0.0.1:{tls_target.port}/ok")
    assert outcome.error_type is ErrorType.TLS_ERROR
    assert not tls_target.received


async def test_mail_goes_through_the_proxy_and_does_not_name_this_machine(sender: AppriseSender):
    async with MailServer() as server:
        url = f"mailto://localhost:{server.port}?from=duetime@example.com&to=ops@example.com&mode=insecure"
        assert await send(sender, url) == Outcome()
    (letter,) = server.letters
    assert "mail FROM:<duetime@example.com>" in letter
    assert "rcpt TO:<ops@example.com>" in letter
    assert "Subject: Late" in letter
    assert server.greeted_as == ["duetime.invalid"]


@pytest.mark.parametrize(("status", "is_retried"), [(500, True), (429, True), (404, False)])
async def test_what_a_service_answers_is_the_outcome(
    sender: AppriseSender, target: Hostile, status: int, is_retried: bool
):
    outcome = await send(sender, f"json://127.0.0.1:{target.port}/status/{status}")
    assert outcome == Outcome(ErrorType.HTTP_ERROR, f"The service answered {status}.", status)


async def test_a_service_that_is_not_there_is_a_connection_error(sender: AppriseSender, unused_port: int):
    outcome = await send(sender, f"json://127.0.0.1:{unused_port}/{TOKEN}")
    assert outcome == Outcome(ErrorType.CONNECTION_ERROR, f"No connection to 127.0.0.1:{unused_port}.")


async def test_a_url_that_apprise_can_not_read_is_refused_without_showing_it(sender: AppriseSender):
    outcome = await send(sender, f"slack://{TOKEN}")
    assert outcome == Outcome(ErrorType.BLOCKED_TARGET, "apprise can't read the URL of this channel. Nothing was sent.")


async def test_a_node_whose_lease_is_in_doubt_sends_nothing(sender: AppriseSender, target: Hostile):
    attempt = msgspec.structs.replace(notice_attempt(), may_send=lambda: False)
    with pytest.raises(NotSent):
        await sender.send(f"json://127.0.0.1:{target.port}/ok", attempt, time.monotonic() + FAR)
    assert not target.connections


async def test_a_cancelled_attempt_kills_its_child(sender: AppriseSender, target: Hostile):
    running = asyncio.create_task(send(sender, f"json://127.0.0.1:{target.port}/hang?rto=50"))
    await target.reached.wait()
    (child,) = sender.children
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert child.returncode == -signal.SIGKILL


async def test_the_sockets_of_a_message_are_closed_after_it(sender: AppriseSender, target: Hostile):
    await send(sender, f"json://127.0.0.1:{target.port}/ok")
    await target.gone.wait()
    assert target.connections_open == 0


def test_the_services_are_those_of_apprise_that_only_send_http():
    assert web_schemes() == WEB


async def test_a_url_as_a_service_shows_it_is_read_by_apprise():
    """Discord's; its name has no address here, so nothing leaves this machine."""

    async def no_names(host: str) -> list[str]:
        asked.append(host)
        return []

    asked: list[str] = []
    sender = AppriseSender(lookup=no_names)
    outcome = await send(sender, f"https://discord.com/api/webhooks/123456789012345678/{'t' * 68}")
    await sender.stop()
    assert (outcome.error_type, asked) == (ErrorType.DNS_ERROR, ["discord.com"])
    outcome = await send(sender, f"https://nobody.example/{TOKEN}")
    assert outcome.error_message == "apprise can't read the URL of this channel. Nothing was sent."


@pytest.mark.parametrize("url", ["syslog://", "dbus://", "mqtt://host", "irc://host", "file:///x", "config://x", "x"])
def test_other_services_are_refused_with_the_reason(url: str):
    refusal = refusal_of(url)
    assert refusal is not None
    assert "is not a service that alerts can be sent to here" in refusal


def test_a_server_without_apprise_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("duetime.executors.notice.schemes.has_apprise", lambda: False)
    assert refusal_of("slack://a/b/c") == (
        "this server has no apprise; its operator installs it with: pip install 'duetime[alerts]'"
    )


_OTHER_WAYS = {
    "socket", "smtplib", "subprocess", "syslog", "paho", "slixmpp", "smpplib", "dbus", "gi", "gntp", "win32api", "pika",
    "hid", "SocketTransport", "NotifyEmail",
}  # fmt: skip


def web_schemes() -> frozenset[str]:
    """Returns the schemes of the plugins that use requests, and nothing else that reaches out."""
    N_MGR.load_modules()
    found: set[str] = set()
    for plugin in N_MGR.plugins():
        own = [kind for kind in plugin.__mro__ if kind.__module__.startswith("apprise.plugins.")]
        own = [kind for kind in own if kind.__module__ not in ("apprise.plugins.base", "apprise.plugins")]
        packages = {".".join(kind.__module__.split(".")[:3]) for kind in own}
        names = {
            name
            for module, loaded in sys.modules.items()
            if ".".join(module.split(".")[:3]) in packages
            for name in vars(loaded)
        }
        if "requests" in names and not names & _OTHER_WAYS:
            found.update(_schemes_of(plugin))
    return frozenset(found)


def _schemes_of(plugin: type) -> set[str]:
    names: set[str] = set()
    for kind in (plugin.protocol, plugin.secure_protocol):  # type: ignore[attr-defined]
        names.update([kind] if isinstance(kind, str) else kind or ())
    return names - MAIL


def test_mail_is_allowed_besides():
    assert ALLOWED - WEB == MAIL


async def test_more_messages_than_places_for_children_are_sent_in_turn(target: Hostile):
    sender = AppriseSender(allow=LOOPBACK)
    url = f"json://127.0.0.1:{target.port}/ok"
    outcomes = await asyncio.gather(*(send(sender, url) for _ in range(6)))
    await sender.stop()
    assert outcomes == [Outcome(http_status=200)] * 6
    assert len(target.received) == 6
