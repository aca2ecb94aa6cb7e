"""Commands on what a tenant has besides jobs: its request limits, keys, subscriptions and connections."""

from __future__ import annotations

import msgspec

from duetime.domain.audit import Entry
from duetime.domain.commands.base import Command
from duetime.domain.grants import KeyLimits
from duetime.domain.identity import Role, Tier
from duetime.domain.limits import Quota
from duetime.domain.signing import SigningState


class TakeRequests(Command[tuple[int, int]], frozen=True):
    """Reserve `wanted` requests of a user's limit, or as many as are left. `given_back` were reserved and not used.

    Returns (how many were reserved, when the bucket is full again in µs).
    """

    now: int
    quota: Quota
    wanted: int
    given_back: int = 0


class NewKey(msgspec.Struct, frozen=True):
    """An API key without its secret: only a hash of the secret is stored."""

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


class AddKey(Command[None], frozen=True):
    """Add an API key. Returns None. Fails with Conflict if the tenant has as many keys as `limits` allow.

    With `limits`, it also removes the oldest revoked or expired keys beyond `grants.ENDED_KEPT`.
    """

    now: int
    key: NewKey
    audit: Entry | None = None
    limits: KeyLimits | None = None


class RevokeKey(Command[None], frozen=True):
    """Revoke an API key: later requests with it are refused. Returns None; revoking again changes nothing.

    Fails with NotFound.
    """

    now: int
    tenant: str
    key_id: str
    audit: Entry | None = None


class TouchKeys(Command[None], frozen=True):
    """Record that these keys were used at `now`. Returns None."""

    now: int
    key_ids: tuple[str, ...]


class RotateSigningKey(Command[SigningState], frozen=True):
    """Start the next version of a tenant's signing key. The current key also signs for `overlap` ms.

    Returns the new `SigningState`. Fails with Conflict while an earlier rotation is under way, unless `overlap` is 0.
    """

    now: int
    tenant: str
    overlap: int
    rotated_by: str
    audit: Entry | None = None


class AddSubscription(Command[None], frozen=True):
    """Send notifications of these events to a tenant's URL. Returns None. Fails with Conflict if it has too many."""

    now: int
    tenant: str
    subscription_id: str
    url: str
    events: tuple[str, ...]
    created_by: str
    audit: Entry | None = None


class RemoveSubscription(Command[None], frozen=True):
    """Remove a subscription. Returns None. Fails with NotFound."""

    tenant: str
    subscription_id: str
    audit: Entry | None = None


class PutConnection(Command[None], frozen=True):
    """Add a database connection for SQL jobs, or replace the URL of an existing one. Returns None.

    `limit`: how many a tenant may have; None: any number. Fails with Conflict.
    """

    now: int
    tenant: str
    name: str
    url: str  # encrypted
    shown: str  # the URL as users may see it
    created_by: str
    audit: Entry | None = None
    limit: int | None = None


class RemoveConnection(Command[None], frozen=True):
    """Remove a connection. Returns None. Fails with NotFound."""

    tenant: str
    name: str
    audit: Entry | None = None


class ReencryptConnection(Command[bool], frozen=True):
    """Replace the encrypted URL `old` by `new`, the same URL encrypted again. Returns whether `old` was stored."""

    tenant: str
    name: str
    old: str
    new: str
