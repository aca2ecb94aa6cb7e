"""Subscriptions: URLs that notifications are sent to."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.subscriptions import EVENTS, EventName
from duetime.wire.words import ABSENT, Instant


class SubscriptionRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`events`: the events to send; all if left out."""

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    events: Annotated[tuple[EventName, ...], Meta(max_length=len(EVENTS))] = ()


class SubscriptionView(msgspec.Struct, frozen=True):
    """`warnings`: why the URL can't be called."""

    subscription_id: str
    url: str = ""
    events: tuple[str, ...] = ()
    created_at: Instant = ABSENT
    created_by: str = ""
    warnings: list[str] = []


class SubscriptionList(msgspec.Struct, frozen=True):
    subscriptions: list[SubscriptionView]


class SubscriptionMessage(msgspec.Struct, frozen=True):
    subscription_id: str
    message: str = ""
