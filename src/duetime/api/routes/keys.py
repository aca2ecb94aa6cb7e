"""/api/v1/api-keys: keys for machines and people, made, listed and revoked by an admin of the tenant."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

import msgspec
from litestar import Controller, Request, Response, delete, get, post
from msgspec import Meta

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.views import text
from duetime.domain.audit import entry
from duetime.domain.commands import AddKey, NewKey, RevokeKey
from duetime.domain.errors import InvalidRequest, NotFound
from duetime.domain.grants import ENDED_KEPT, check_grant
from duetime.domain.identity import Caller, Right, Role, Tier
from duetime.domain.instants import DAY, format_instant
from duetime.domain.keys import KEY_BYTES, hash_secret, is_key_id, make_key
from duetime.domain.payloads import Label
from duetime.ports.store import KeyRecord

MOST_DAYS = 3650


class KeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`user_id`: whose jobs it creates and sees, yours if left out. `tier`: yours if left out, whoever it is for.

    No `scopes`: all that the role may do. Role, tier, scopes and end may not go beyond those of who makes the key. Left
    out, it ends when the key that makes it does.
    """

    name: Label
    user_id: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[!-~]+$")] | None = None
    role: Role = Role.USER
    tier: Tier | None = None
    scopes: Annotated[tuple[Right, ...], Meta(max_length=len(Right))] = ()
    expires_in_days: Annotated[float, Meta(gt=0, le=MOST_DAYS)] | None = None


class MadeKey(msgspec.Struct, frozen=True):
    """`key` is shown this once: only a hash of it is kept."""

    key_id: str
    key: str
    name: str
    user_id: str
    role: Role
    tier: Tier
    scopes: tuple[Right, ...]
    created_at: str
    expires_at: str | None


class KeyView(msgspec.Struct, frozen=True):
    key_id: str
    name: str
    user_id: str
    role: Role
    tier: Tier
    scopes: tuple[str, ...]
    created_at: str
    created_by: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class KeyList(msgspec.Struct, frozen=True):
    keys: list[KeyView]


class KeyMessage(msgspec.Struct, frozen=True):
    key_id: str
    message: str


class KeyController(Controller):
    path = "/api-keys"
    tags = ("api keys",)

    @post("/", summary="Make an API key; its secret is shown this once", status_code=201, right=Right.ADMIN)
    async def create_api_key(
        self, request: Request[Any, Any, Any], context: ApiContext, caller: Caller
    ) -> Response[MadeKey]:
        wanted = decode(await request.body(), KeyRequest)
        if Right.ADMIN in wanted.scopes and wanted.role is not Role.ADMIN:
            raise InvalidRequest.at("/scopes", "only a key of the role 'admin' can have the scope 'admin'")
        now = context.clock.now()
        key_id, secret, token = make_key(secrets.token_bytes(KEY_BYTES))
        days = wanted.expires_in_days
        tier = wanted.tier or caller.tier
        expires_at = caller.expires_at if days is None else now + int(days * DAY)
        check_grant(caller, wanted.role, tier, wanted.scopes, expires_at)
        key = NewKey(
            key_id, caller.tenant, user_id=wanted.user_id or caller.user_id, name=wanted.name, role=wanted.role,
            tier=tier, scopes=tuple(dict.fromkeys(wanted.scopes)), secret_hash=hash_secret(secret),
            created_by=caller.user_id, expires_at=expires_at,
        )  # fmt: skip
        shown = {
            "name": key.name, "user_id": key.user_id, "role": key.role, "tier": key.tier, "scopes": key.scopes,
            "expires_at": text(key.expires_at),
        }  # fmt: skip
        noted = entry(caller, now, "api_key.create", key_id, None, shown)
        await context.apply(AddKey(now, key, noted, context.limits.keys))
        made = MadeKey(
            key_id, token, key.name, key.user_id, key.role, key.tier, wanted.scopes, format_instant(now),
            text(key.expires_at),
        )  # fmt: skip
        return Response(made, status_code=201)

    @get("/", summary="All API keys, latest first; never their secrets", right=Right.ADMIN)
    async def list_api_keys(self, context: ApiContext, caller: Caller) -> KeyList:
        most = context.limits.keys.keys + ENDED_KEPT
        return KeyList([_view(record) for record in await context.store.list_keys(caller.tenant, most)])

    @delete("/{key_id:str}", summary="Revoke an API key, for good", status_code=200, right=Right.ADMIN)
    async def revoke_api_key(self, context: ApiContext, caller: Caller, key_id: str) -> KeyMessage:
        if not is_key_id(key_id):
            raise NotFound(f"there is no API key '{key_id[:64]}'; GET /api/v1/api-keys lists them")
        now = context.clock.now()
        noted = entry(caller, now, "api_key.revoke", key_id)
        await context.apply(RevokeKey(now, caller.tenant, key_id, noted))
        context.forget_key(key_id)
        return KeyMessage(key_id, "API key revoked. No request with it is taken any more.")


def _view(record: KeyRecord) -> KeyView:
    return KeyView(
        record.key_id, record.name, record.user_id, record.role, record.tier, record.scopes,
        format_instant(record.created_at), record.created_by, text(record.expires_at), text(record.last_used_at),
        text(record.revoked_at),
    )  # fmt: skip
