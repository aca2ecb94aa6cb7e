"""/api/v1/api-keys: keys for machines and people, created, listed and revoked by an admin of the tenant."""

from __future__ import annotations

import secrets

from litestar import Controller, Response, delete, get, post

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant, instant_or_none
from duetime.domain.audit import entry
from duetime.domain.commands import AddKey, NewKey, RevokeKey
from duetime.domain.errors import InvalidRequest, NotFound
from duetime.domain.grants import ENDED_KEPT, check_grant
from duetime.domain.identity import Caller, Right, Role
from duetime.domain.instants import DAY
from duetime.domain.keys import KEY_BYTES, hash_secret, is_key_id, make_key
from duetime.ports.store import KeyRecord
from duetime.wire.identity import KeyList, KeyMessage, KeyRequest, KeyView, MadeKey


class KeyController(Controller):
    path = "/api-keys"
    tags = ("api keys",)

    @post("/", summary="Create an API key; its secret is shown only once", status_code=201, right=Right.ADMIN)
    async def create_api_key(self, request: AnyRequest, context: ApiContext, caller: Caller) -> Response[MadeKey]:
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
            "expires_at": instant_or_none(key.expires_at),
        }  # fmt: skip
        noted = entry(caller, now, "api_key.create", key_id, None, shown)
        await context.apply(AddKey(now, key, noted, context.limits.keys))
        made = MadeKey(
            key_id=key_id, key=token, name=key.name, user_id=key.user_id, role=key.role, tier=key.tier,
            scopes=[*wanted.scopes], created_at=instant(now), expires_at=instant_or_none(key.expires_at),
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
        return KeyMessage(key_id, "API key revoked. Requests with it are refused from now on.")


def _view(record: KeyRecord) -> KeyView:
    return KeyView(
        key_id=record.key_id, name=record.name, user_id=record.user_id, role=record.role, tier=record.tier,
        scopes=[*record.scopes], created_at=instant(record.created_at), created_by=record.created_by,
        expires_at=instant_or_none(record.expires_at), last_used_at=instant_or_none(record.last_used_at),
        revoked_at=instant_or_none(record.revoked_at),
    )  # fmt: skip
