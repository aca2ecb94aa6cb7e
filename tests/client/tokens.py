"""The secret of the server of these tests, and tokens for users of the tenant acme."""

from __future__ import annotations

import secrets
import time

from duetime.api.auth.tokens import sign

SECRET = secrets.token_hex(32)
FREE_REQUESTS = 20  # an hour, for the tier free


def token(user_id: str = "ada", role: str = "admin", tier: str = "enterprise", tenant: str = "acme") -> str:
    claims = {"tenant": tenant, "user_id": user_id, "role": role, "tier": tier}
    return sign(SECRET, "duetime", "duetime", claims, time.time_ns() // 1_000_000, 3600)
