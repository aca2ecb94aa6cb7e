"""Commands on request quotas, API keys, signing keys and subscriptions."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain import limits
from duetime.domain.errors import no_key, no_subscription
from duetime.domain.grants import ENDED_KEPT, check_key_limits
from duetime.domain.signing import SigningState, rotate_signing_key
from duetime.domain.subscriptions import check_subscriptions
from duetime.store.sqlite.statements import Statements, page


class IdentityCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    def take_requests(self, command: c.TakeRequests) -> tuple[int, int]:
        quota = command.quota
        full_at = self._db.full_at(quota)
        granted, moved = limits.reserve(quota.limit, full_at, command.now, command.wanted, command.given_back)
        self._db.set_full_at(quota, moved)
        return granted, moved

    def add_key(self, command: c.AddKey) -> None:
        key, limits = command.key, command.limits
        if limits is not None:
            ((keys, users, is_known),) = self._db.rows(
                "count_keys", tenant=key.tenant, user_id=key.user_id, now=command.now
            )
            check_key_limits(keys, users, bool(is_known), limits)
            self._db.run("remove_ended_keys", tenant=key.tenant, now=command.now, kept=ENDED_KEPT)
        self._db.run("add_key", **asdict(key) | {"scopes": page(key.scopes), "now": command.now})
        self._db.note(command.audit)

    def revoke_key(self, command: c.RevokeKey) -> None:
        row = self._db.row("get_revoked", id=command.key_id, tenant=command.tenant)
        if row is None:
            raise no_key(command.key_id)
        if row[0] is None:
            self._db.run("revoke_key", id=command.key_id, now=command.now)
            self._db.note(command.audit)

    def rotate_signing_key(self, command: c.RotateSigningKey) -> SigningState:
        row = self._db.row("get_signing_state", tenant=command.tenant)
        old = None if row is None else SigningState(*row)
        new = rotate_signing_key(old, command.tenant, command.now, command.overlap, command.rotated_by)
        self._db.run("put_signing_state", **asdict(new))
        self._db.note(command.audit, None, {"version": new.version})
        return new

    def add_subscription(self, command: c.AddSubscription) -> None:
        check_subscriptions(self._db.value("count_subscriptions", tenant=command.tenant))
        self._db.run("add_subscription", **asdict(command) | {"events": page(command.events)})
        self._db.note(command.audit)

    def remove_subscription(self, command: c.RemoveSubscription) -> None:
        if self._db.row("remove_subscription", **asdict(command)) is None:
            raise no_subscription(command.subscription_id)
        self._db.note(command.audit)

    def touch_keys(self, command: c.TouchKeys) -> None:
        self._db.run("touch_keys", ids=page(command.key_ids), now=command.now)
