"""What a tenant has beside jobs: requests that are counted, keys, subscriptions, connections."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.grants import KeyLimits
from duetime.domain.identity import Role, Tier
from duetime.domain.limits import Quota


class TakeRequests(Command, frozen=True):
    """Take `wanted` of a user's requests, or as many as are left; `given_back` were taken before and not used.

    Answers (how many were taken, when the bucket is full again in µs).
    """

    now: int
    quota: Quota
    wanted: int
    given_back: int = 0


class NewKey(msgspec.Struct, frozen=True):
    """An API key, without its secret: only a hash of that is kept."""

    key_id: str
    tenant: str
    user_id: str
    name: str
    role: Role
    tier: Tier
    scopes: tuple[str, ...]
    secret_hash: str
    created_by: str
    expires_at: int | None = None


class AddKey(Command, frozen=True):
    """Answers None. Refused: Conflict if the tenant has as many as `limits` say.

    With `limits`, it also removes the oldest keys that are revoked or expired beyond `grants.ENDED_KEPT`.
    """

    now: int
    key: NewKey
    audit: Entry | None = None
    limits: KeyLimits | None = None


class RevokeKey(Command, frozen=True):
    """No request with this key is taken from here on. Answers None; revoking again changes nothing.

    Refused: NotFound.
    """

    now: int
    tenant: str
    key_id: str
    audit: Entry | None = None


class TouchKeys(Command, frozen=True):
    """These keys were used at `now`. Answers None."""

    now: int
    key_ids: tuple[str, ...]


class RotateSigningKey(Command, frozen=True):
    """The next version of a tenant's signing key; the present one signs, too, for `overlap` ms.

    Answers the new `SigningState`. Refused: Conflict while an earlier rotation is under way, unless `overlap` is 0.
    """

    now: int
    tenant: str
    overlap: int
    rotated_by: str
    audit: Entry | None = None


class AddSubscription(Command, frozen=True):
    """From here on this URL is told of these events of the tenant. Answers None. Refused: Conflict if it has many."""

    now: int
    tenant: str
    subscription_id: str
    url: str
    events: tuple[str, ...]
    created_by: str
    audit: Entry | None = None


class RemoveSubscription(Command, frozen=True):
    """Answers None. Refused: NotFound."""

    tenant: str
    subscription_id: str
    audit: Entry | None = None


class PutConnection(Command, frozen=True):
    """A database that SQL jobs may use: a new one, or another URL for one that is there. Answers None.

    `limit`: how many a tenant may have; None: any number. Refused: Conflict.
    """

    now: int
    tenant: str
    name: str
    url: str  # encrypted
    shown: str  # the same, as people may see it
    created_by: str
    audit: Entry | None = None
    limit: int | None = None


class RemoveConnection(Command, frozen=True):
    """Answers None. Refused: NotFound."""

    tenant: str
    name: str
    audit: Entry | None = None


class ReencryptConnection(Command, frozen=True):
    """Put a URL that was encrypted again in place of the one that was read. Answers whether that was still there."""

    tenant: str
    name: str
    old: str
    new: str
