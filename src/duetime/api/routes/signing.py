"""/api/v1/signing-key: the key that a tenant's receivers verify requests with. The tenant's admins read and rotate it.

The secret is in these responses and nowhere else: not in the audit, not in a log, not in an event.
"""

from __future__ import annotations

from base64 import b64encode

from litestar import Controller, get, post

from duetime.api.bodies import decode
from duetime.api.context import ApiContext
from duetime.api.queries import AnyRequest
from duetime.api.views import instant_or_none
from duetime.domain.audit import entry
from duetime.domain.commands import RotateSigningKey
from duetime.domain.errors import NotFound
from duetime.domain.identity import Caller, Right
from duetime.domain.instants import SECOND
from duetime.domain.signing import SigningState, signing_versions
from duetime.wire.signing import OtherSigningKey, RotateRequest, SigningKeyView

RESOURCE = "signing-key"


class SigningKeyController(Controller):
    path = "/signing-key"
    tags = ("signing key",)

    @get("/", summary="The secret that the tenant's receivers verify requests with", right=Right.ADMIN)
    async def get_signing_key(self, context: ApiContext, caller: Caller) -> SigningKeyView:
        found = await context.store.list_signing_states(caller.tenant, 0, "", 1)
        return _view(context, caller.tenant, found[0] if found else None, context.clock.now())

    @post("/rotate", summary="Rotate the key: the next version signs, and this one too for a while", status_code=200,
          right=Right.ADMIN)  # fmt: skip
    async def rotate_signing_key(self, request: AnyRequest, context: ApiContext, caller: Caller) -> SigningKeyView:
        wanted = decode(await request.body(), RotateRequest)
        if not context.derive_keys(caller.tenant, 1):
            raise _not_signed()
        now = context.clock.now()
        noted = entry(caller, now, "signing_key.rotate", RESOURCE)
        command = RotateSigningKey(now, caller.tenant, wanted.overlap_seconds * SECOND, caller.user_id, noted)
        state = await context.apply(command)
        context.engine.signing_hint(state)
        return _view(context, caller.tenant, state, now)


def _view(context: ApiContext, tenant: str, state: SigningState | None, now: int) -> SigningKeyView:
    version, *earlier = signing_versions(state, now)
    own = [_secret(key) for key in context.derive_keys(tenant, version)]
    if not own:
        raise _not_signed()
    others = [OtherSigningKey(version, secret, None) for secret in own[1:]]
    until = None if state is None else instant_or_none(state.previous_until)
    for before in earlier:
        others += [OtherSigningKey(before, _secret(key), until) for key in context.derive_keys(tenant, before)]
    if state is None:
        return SigningKeyView(version, own[0], None, None, tuple(others))
    return SigningKeyView(version, own[0], instant_or_none(state.rotated_at), state.rotated_by, tuple(others))


def _secret(key: bytes) -> str:
    """Returns the key in the format of Standard Webhooks."""
    return f"whsec_{b64encode(key).decode()}"


def _not_signed() -> NotFound:
    return NotFound("there is no signing key: this server signs nothing until its operator sets SIGNING_SECRETS")
