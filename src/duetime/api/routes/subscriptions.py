"""/api/v1/subscriptions: URLs that get signed requests about events of the tenant, with retries."""

from __future__ import annotations

from typing import TypeVar

from litestar import Controller, Response, delete, get, post

from duetime.api import queries
from duetime.api.advice import blocked
from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant
from duetime.domain.audit import entry
from duetime.domain.commands import AddSubscription, Command, RemoveSubscription
from duetime.domain.errors import InvalidRequest
from duetime.domain.http_rules import url_problem
from duetime.domain.identity import Caller, Right
from duetime.domain.ids import make_id
from duetime.domain.subscriptions import EVENTS, MOST_SUBSCRIPTIONS, about_job, notification
from duetime.ports.store import JobRecord, SubscriptionRecord
from duetime.wire.subscriptions import SubscriptionList, SubscriptionMessage, SubscriptionRequest, SubscriptionView

T = TypeVar("T")


class SubscriptionController(Controller):
    path = "/subscriptions"
    tags = ("events",)

    @get("/", summary="List the URLs that get requests about events", right=Right.ADMIN)
    async def list_subscriptions(self, context: ApiContext, caller: Caller) -> SubscriptionList:
        records = await context.store.list_subscriptions(caller.tenant, MOST_SUBSCRIPTIONS)
        return SubscriptionList([_view(context, record) for record in records])

    @post("/", summary="Subscribe a URL to events", status_code=201, right=Right.ADMIN)
    async def add_subscription(
        self, request: AnyRequest, context: ApiContext, caller: Caller
    ) -> Response[SubscriptionView]:
        wanted = decode(await request.body(), SubscriptionRequest)
        if problem := url_problem(wanted.url):
            raise InvalidRequest.at("/url", problem)
        now, events = context.clock.now(), tuple(dict.fromkeys(wanted.events)) or EVENTS
        subscription_id = make_id(now, context.random_bytes(10))
        noted = entry(caller, now, "subscription.add", subscription_id, None, {"url": wanted.url, "events": events})
        await context.apply(
            AddSubscription(now, caller.tenant, subscription_id, wanted.url, events, caller.user_id, noted)
        )
        context.engine.subscriptions_hint()
        record = SubscriptionRecord(subscription_id, caller.tenant, wanted.url, events, now, caller.user_id)
        return Response(_view(context, record), status_code=201)

    @delete("/{subscription_id:str}", summary="Remove a subscription", status_code=200, right=Right.ADMIN)
    async def remove_subscription(
        self, context: ApiContext, caller: Caller, subscription_id: str
    ) -> SubscriptionMessage:
        queries.check_id(subscription_id, "subscription")
        noted = entry(caller, context.clock.now(), "subscription.remove", subscription_id)
        await context.apply(RemoveSubscription(caller.tenant, subscription_id, noted))
        context.engine.subscriptions_hint()
        return SubscriptionMessage(subscription_id, "Subscription removed. Nothing more is sent there.")


async def apply_and_tell(
    context: ApiContext, caller: Caller, command: Command[T], event: str, record: JobRecord, now: int
) -> T:
    """Applies a command to a job and stores its notifications in the same commit. Returns the command's result."""
    spec = record.spec
    body = about_job(event, record.job_id, spec.name, spec.key, caller.user_id, now)
    label, limit = f"{event} of {spec.name}", context.limits.tiers.notifications
    notifications = tuple(
        notification(caller.tenant, record.owner, one.url, label, event, body, now, context.random_bytes(10), limit)
        for one in context.engine.subscriptions(caller.tenant)
        if event in one.events
    )
    answer = await context.apply(command, notifications)
    if notifications:
        context.engine.due_hint(now)
    return answer


def _view(context: ApiContext, record: SubscriptionRecord) -> SubscriptionView:
    return SubscriptionView(
        record.subscription_id, record.url, record.events, instant(record.created_at), record.created_by,
        blocked(context, {"url": record.url}),
    )  # fmt: skip
