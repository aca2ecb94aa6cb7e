"""The operator's own channels and heartbeat: sent by the same code as notices, without the ledger."""

from __future__ import annotations

import json
import os
from base64 import b64encode

import pytest

from duetime.domain.direct_alerts import node_leaving
from duetime.domain.execution import ErrorType, Outcome
from duetime.executors.guard import AllowedNetworks
from duetime.executors.headers import signing_keys
from duetime.executors.http import HttpExecutor
from duetime.executors.notice.apprise import AppriseSender
from duetime.executors.notice.direct import DirectSender
from duetime.executors.notice.executor import NoticeExecutor
from executors.conftest import LOOPBACK
from executors.notices import Channels
from samples import NOW, new_id
from security.inbox import inbox

SECRET = f"whsec_{b64encode(bytes(24)).decode()}"


def sender(*urls: str, allow: AllowedNetworks = LOOPBACK) -> DirectSender:
    webhooks = HttpExecutor(allow=allow, keys_of=lambda tenant: signing_keys([SECRET]))
    notices = NoticeExecutor(webhooks, AppriseSender(allow=allow), Channels())
    return DirectSender(urls, notices, webhooks, "default", lambda: NOW, os.urandom)


async def test_each_channel_gets_the_notice_signed_and_with_its_id():
    with inbox() as box:
        direct = sender(box.url("/a"), f"json://127.0.0.1:{box.port}/b")
        message_id = new_id()
        outcomes = [await direct.send(place, message_id, node_leaving("n1")) for place in range(direct.count)]
        await direct.stop()
    assert outcomes == [Outcome(http_status=200)] * 2
    (webhook,), (service,) = box.at("/a"), box.at("/b")
    assert webhook.verifies(SECRET)
    assert webhook.headers["webhook-id"] == message_id
    assert json.loads(webhook.body)["data"]["dedup_key"] == "node_leaving:n1"
    assert json.loads(service.body)["title"] == "Duetime: the node n1 is leaving"


async def test_the_heartbeat_is_a_get_of_its_url():
    with inbox() as box:
        direct = sender()
        outcome = await direct.beat(box.url("/beat"))
        await direct.stop()
    assert outcome.http_status == 200
    assert len(box.at("/beat")) == 1


@pytest.mark.parametrize("scheme", ["http", "json"])
async def test_the_operators_urls_pass_the_guard_too(scheme: str):
    with inbox() as box:
        direct = sender(f"{scheme}://127.0.0.1:{box.port}/a", allow=())
        outcome = await direct.send(0, new_id(), node_leaving("n1"))
        beat = await direct.beat(box.url("/beat"))
        await direct.stop()
    assert (outcome.error_type, beat.error_type) == (ErrorType.BLOCKED_TARGET, ErrorType.BLOCKED_TARGET)
    assert not box.received


async def test_a_channel_that_can_not_be_used_is_reported_by_its_number_only():
    direct = sender("https://x.example/T0K3N", "slack://a/b/c", "syslog://T0K3N")
    (problem,) = direct.list_problems()
    assert problem.startswith("ALERT_URLS, number 3: syslog:// is not a service")
    assert "T0K3N" not in problem
    await direct.stop()
