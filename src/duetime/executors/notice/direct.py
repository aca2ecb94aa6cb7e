"""The operator's own channels (ALERT_URLS) and heartbeat (HEARTBEAT_URL): sent by the same code, without the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from duetime.domain.channels import Kind, kind_of
from duetime.domain.endpoints import NOTICES
from duetime.domain.execution import Claim, Outcome, Trigger
from duetime.domain.ids import make_id
from duetime.domain.job import HttpJob, JobSpec, NoticeJob
from duetime.domain.payloads import HttpRequest, Notice
from duetime.executors.http import HttpExecutor
from duetime.executors.notice.executor import Channel, NoticeExecutor
from duetime.executors.notice.schemes import refusal_of
from duetime.ports.executor import Attempt

DIRECT_SECONDS = 15.0  # of an attempt
HEARTBEAT_SECONDS = 10.0


class DirectSender:
    """`notices`, `webhooks`: with the operator's rules. `tenant`: whose key signs the webhooks."""

    def __init__(
        self, urls: Sequence[str], notices: NoticeExecutor, webhooks: HttpExecutor, tenant: str,
        now: Callable[[], int], random_bytes: Callable[[int], bytes],
    ) -> None:  # fmt: skip
        self._channels = [Channel(kind_of(url), url) for url in urls]
        self._notices = notices
        self._webhooks = webhooks
        self._tenant = tenant
        self._now = now
        self._random_bytes = random_bytes

    @property
    def count(self) -> int:
        return len(self._channels)

    def list_problems(self) -> list[str]:
        """Returns which of the channels can't be used, and why."""
        services = ((number, one.url) for number, one in enumerate(self._channels, 1) if one.kind is Kind.APPRISE)
        return [f"ALERT_URLS, number {number}: {why}" for number, url in services if (why := refusal_of(url))]

    async def send(self, place: int, message_id: str, notice: Notice) -> Outcome:
        spec = NoticeJob(name=notice.title, schedule="immediate", timeout_seconds=DIRECT_SECONDS, payload=notice)
        attempt = Attempt(self._claim(message_id, spec), notice)
        return await self._notices.send(self._channels[place], attempt, time.monotonic() + DIRECT_SECONDS)

    async def beat(self, url: str) -> Outcome:
        """Calls the heartbeat's URL."""
        request = HttpRequest(url, "GET")
        spec = HttpJob(name="heartbeat", schedule="immediate", timeout_seconds=HEARTBEAT_SECONDS, payload=request)
        message_id = make_id(self._now(), self._random_bytes(10))
        return await self._webhooks.execute(Attempt(self._claim(message_id, spec), request))

    async def stop(self) -> None:
        await self._notices.stop()
        await self._webhooks.stop()

    def _claim(self, message_id: str, spec: JobSpec) -> Claim:
        return Claim(message_id, message_id, self._tenant, self._now(), Trigger.MANUAL, 9, NOTICES, 1, 1, False, spec)
