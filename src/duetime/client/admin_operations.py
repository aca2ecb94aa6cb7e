"""The operations of the API on keys, connections, subscriptions, circuits, workers and the audit; see operations.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from duetime.client import models as m
from duetime.client.calls import Call, Listed, get, given, path_of, send
from duetime.wire.connections import ConnectionRequest
from duetime.wire.signing import RotateRequest

Instant = datetime | str


def create_api_key(
    name: str,
    *,
    user_id: str | None = None,
    role: m.RoleWord | None = None,
    tier: m.TierWord | None = None,
    scopes: Iterable[m.RightWord] | None = None,
    expires_in_days: float | None = None,
) -> Call[m.MadeKey]:
    """For admins: create a key, for yourself unless `user_id` is given. Its secret is only in this response."""
    wanted = {
        "name": name, "user_id": user_id, "role": role, "tier": tier, "scopes": None if scopes is None else [*scopes],
        "expires_in_days": expires_in_days,
    }  # fmt: skip
    return send("POST", path_of("api-keys"), m.MadeKey, given(wanted))


def list_api_keys() -> Call[m.KeyList]:
    """For admins: list the tenant's keys, latest first, without their secrets."""
    return get(path_of("api-keys"), m.KeyList)


def revoke_api_key(key_id: str) -> Call[m.KeyMessage]:
    """For admins: revoke a key for good."""
    return send("DELETE", path_of("api-keys", key_id), m.KeyMessage)


def audit(
    *,
    actor: str | None = None,
    action: str | None = None,
    resource: str | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> Listed[m.AuditPage, m.AuditEntry]:
    """For admins: list who changed what, latest first."""
    query = {"actor": actor, "action": action, "resource": resource, "from": since, "to": until}
    return Listed(path_of("audit"), m.AuditPage, lambda page: page.entries, query)


def list_workers(*, limit: int = 100, cursor: str | None = None) -> Call[m.WorkerList]:
    """For admins: list the tenant's workers, latest first, page by page."""
    return get(path_of("workers"), m.WorkerList, limit=limit, cursor=cursor)


def list_connections() -> Call[m.ConnectionList]:
    """For admins: list the databases of SQL jobs, without their passwords."""
    return get(path_of("connections"), m.ConnectionList)


def put_connection(name: str, url: str) -> Call[m.Connection]:
    """For admins: register a database for SQL jobs, or change its URL, which can't be read back."""
    return send("PUT", path_of("connections", name), m.Connection, ConnectionRequest(url), may_repeat=True)


def remove_connection(name: str) -> Call[m.ConnectionMessage]:
    """For admins: remove a database. Jobs that use it fail from then on."""
    return send("DELETE", path_of("connections", name), m.ConnectionMessage)


def list_subscriptions() -> Call[m.SubscriptionList]:
    """For admins: list the URLs that get notifications."""
    return get(path_of("subscriptions"), m.SubscriptionList)


def add_subscription(url: str, *, events: Sequence[str] = ()) -> Call[m.Subscription]:
    """For admins: send notifications of these events, or of all, to a URL."""
    return send("POST", path_of("subscriptions"), m.Subscription, {"url": url, "events": list(events)})


def remove_subscription(subscription_id: str) -> Call[m.SubscriptionMessage]:
    """For admins: remove a subscription."""
    return send("DELETE", path_of("subscriptions", subscription_id), m.SubscriptionMessage)


def get_signing_key() -> Call[m.SigningKey]:
    """For admins: return the secret with which the tenant's receivers verify requests."""
    return get(path_of("signing-key"), m.SigningKey)


def rotate_signing_key(*, overlap_seconds: int = 86_400) -> Call[m.SigningKey]:
    """For admins: sign with a new key. The current key also signs, for `overlap_seconds`."""
    return send("POST", path_of("signing-key", "rotate"), m.SigningKey, RotateRequest(overlap_seconds))


def list_circuits() -> Call[m.CircuitList]:
    """List targets that failed since they last succeeded, open circuits first."""
    return get(path_of("circuits"), m.CircuitList)


def close_circuit(circuit: str) -> Call[m.CircuitMessage]:
    """For admins: reset a target's failures, so that it is called again."""
    return send("DELETE", path_of("circuits", circuit), m.CircuitMessage)
