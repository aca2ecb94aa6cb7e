"""/api/v1/alert-channels: where notices of alerts are sent. No URL is ever returned: it has tokens."""

from __future__ import annotations

from litestar import Controller, Response, delete, get, post, put
from msgspec.structs import replace

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.audit import entry
from duetime.domain.channels import channel_url_problem, kind_of, shown_url
from duetime.domain.commands import PutChannel, RemoveChannel
from duetime.domain.errors import InvalidRequest, no_channel
from duetime.domain.identity import Caller, Right
from duetime.domain.notices import create_notices, make_notice
from duetime.domain.secrets import channel_place
from duetime.ports.store import ChannelRecord
from duetime.wire.channels import ChannelList, ChannelMessage, ChannelRequest, ChannelTest, ChannelView

MOST_LISTED = 1000
LONGEST_NAME = 255


class ChannelController(Controller):
    path = "/alert-channels"
    tags = ("alerts",)

    @get("/", summary="Where notices of alerts are sent; never the tokens", right=Right.ADMIN)
    async def list_alert_channels(self, context: ApiContext, caller: Caller) -> ChannelList:
        records = await context.store.list_channels(caller.tenant, MOST_LISTED)
        return ChannelList([_view(record) for record in records])

    @put("/{name:str}", summary="Add an alert channel, or give it another URL", right=Right.ADMIN)
    async def put_alert_channel(
        self, request: AnyRequest, context: ApiContext, caller: Caller, name: str
    ) -> Response[ChannelView]:
        wanted = decode(await request.body(), ChannelRequest)
        if not 0 < len(name) <= LONGEST_NAME or "\0" in name:
            raise InvalidRequest.at("/name", f"must have 1 to {LONGEST_NAME} characters, and no NUL")
        kind = wanted.kind or kind_of(wanted.url)
        problem = channel_url_problem(kind, wanted.url) or context.rules.channel_refusal(kind, wanted.url)
        if problem is not None:
            raise InvalidRequest.at("/url", problem)
        if not context.vault.can_encrypt:
            raise InvalidRequest.at(
                "/url",
                "this server has no key to encrypt it with; its operator sets ENCRYPTION_KEYS (`duetime keys create`)",
            )
        now, shown = context.clock.now(), shown_url(kind, wanted.url)
        encrypted = context.vault.encrypt(caller.tenant, channel_place(name), wanted.url)
        noted = entry(caller, now, "alert_channel.put", name, None, {"kind": kind, "shown": shown})
        limit = context.limits.channels
        await context.apply(PutChannel(now, caller.tenant, name, kind, encrypted, shown, caller.user_id, noted, limit))
        return Response(ChannelView(name, kind, shown, instant(now), caller.user_id))

    @delete("/{name:str}", summary="Remove an alert channel; notices to it fail", status_code=200, right=Right.ADMIN)
    async def remove_alert_channel(self, context: ApiContext, caller: Caller, name: str) -> ChannelMessage:
        noted = entry(caller, context.clock.now(), "alert_channel.remove", name)
        await context.apply(RemoveChannel(caller.tenant, name, noted))
        return ChannelMessage(name, "Alert channel removed. Notices to it fail from now on.")

    @post("/{name:str}/test", summary="Send a test notice to an alert channel", status_code=202, right=Right.ADMIN)
    async def test_alert_channel(self, context: ApiContext, caller: Caller, name: str) -> ChannelTest:
        if await context.store.get_channel(caller.tenant, name) is None:
            raise no_channel(name)
        now = context.clock.now()
        notice = make_notice(
            (name,), f"Test of the alert channel '{name}'", f"Sent for {caller.user_id}. Nothing is wrong.",
            severity="info", status="test", dedup_key=f"test:{name}",
        )  # fmt: skip
        command = create_notices(caller.tenant, notice, now, context.random_bytes(10), caller.user_id)
        job_id = command.jobs[0].job_id
        noted = entry(caller, now, "alert_channel.test", name, None, {"job_id": job_id})
        await context.apply(replace(command, audit=(noted,)))
        context.engine.due_hint(now)
        return ChannelTest(name, job_id, "Test notice created. Its execution tells whether it arrived.")


def _view(record: ChannelRecord) -> ChannelView:
    return ChannelView(record.name, record.kind, record.shown, instant(record.created_at), record.created_by)
