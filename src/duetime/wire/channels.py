"""Alert channels."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from duetime.domain.channels import LONGEST_URL, Kind
from duetime.wire.words import ABSENT, ChannelKindWord, Instant


class ChannelRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`url`: of a webhook, or of a service as apprise writes it: slack://…, mailtos://…, tgram://….

    `kind`: `webhook` sends our own signed request, `apprise` a message to the service. If it is left out: `webhook` for
    http:// and https://, otherwise `apprise`.
    """

    url: Annotated[str, Meta(min_length=1, max_length=LONGEST_URL)]
    kind: Kind | None = None


class ChannelView(msgspec.Struct, frozen=True):
    """`shown`: the scheme of the URL, and the host of a webhook. The rest of it is secret."""

    name: str
    kind: ChannelKindWord = ""
    shown: str = ""
    created_at: Instant = ABSENT
    created_by: str = ""


class ChannelList(msgspec.Struct, frozen=True):
    channels: list[ChannelView]


class ChannelMessage(msgspec.Struct, frozen=True):
    name: str
    message: str = ""


class ChannelTest(msgspec.Struct, frozen=True):
    """`job_id`: of the notice that was sent. Its execution tells whether it arrived."""

    name: str
    job_id: str
    message: str = ""
