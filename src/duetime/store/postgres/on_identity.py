"""Commands on request quotas, API keys, signing keys and subscriptions."""

from __future__ import annotations

from msgspec.structs import asdict

from duetime.domain import commands as c
from duetime.domain import limits
from duetime.domain.errors import no_key, no_subscription
from duetime.domain.grants import ENDED_KEPT, check_key_limits
from duetime.domain.signing import SigningState, rotate_signing_key
from duetime.domain.subscriptions import check_subscriptions
from duetime.store.postgres.statements import Statements, text_of


class IdentityCommands:
    def __init__(self, statements: Statements) -> None:
        self._db = statements

    async def take_requests(self, command: c.TakeRequests) -> tuple[int, int]:
        quota = command.quota
        full_at = self._db.full_at(quota)
        granted, moved = limits.reserve(quota.limit, full_at, command.now, command.wanted, command.given_back)
        self._db.set_full_at(quota, moved)
        return granted, moved

    async def add_key(self, command: c.AddKey) -> None:
        key, limits = command.key, command.limits
        if limits is not None:
            ((keys, users, is_known),) = await self._db.rows(
                "count_keys", tenant=key.tenant, user_id=key.user_id, now=command.now
            )
            check_key_limits(keys, users, bool(is_known), limits)
            await self._db.run("remove_ended_keys", tenant=key.tenant, now=command.now, kept=ENDED_KEPT)
        await self._db.run("add_key", **asdict(key) | {"scopes": text_of(key.scopes), "now": command.now})
        self._db.note(command.audit)

    async def revoke_key(self, command: c.RevokeKey) -> None:
        row = await self._db.row("lock_key", id=command.key_id, tenant=command.tenant)
        if row is None:
            raise no_key(command.key_id)
        if row[0] is None:
            await self._db.run("revoke_key", id=command.key_id, now=command.now)
            self._db.note(command.audit)

    async def rotate_signing_key(self, command: c.RotateSigningKey) -> SigningState:
        row = await self._db.row("get_signing_state", tenant=command.tenant)
        old = None if row is None else SigningState(*row)
        new = rotate_signing_key(old, command.tenant, command.now, command.overlap, command.rotated_by)
        await self._db.run("put_signing_state", **asdict(new))
        self._db.note(command.audit, None, {"version": new.version})
        return new

    async def add_subscription(self, command: c.AddSubscription) -> None:
        check_subscriptions(await self._db.value("count_subscriptions", tenant=command.tenant))
        await self._db.run("add_subscription", **asdict(command) | {"events": text_of(command.events)})
        self._db.note(command.audit)

    async def remove_subscription(self, command: c.RemoveSubscription) -> None:
        if await self._db.value("remove_subscription", **asdict(command)) is None:
            raise no_subscription(command.subscription_id)
        self._db.note(command.audit)

    async def touch_keys(self, command: c.TouchKeys) -> None:
        await self._db.run("touch_keys", ids=list(command.key_ids), now=command.now)
