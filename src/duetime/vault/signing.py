"""Keys that sign requests to targets: derived for each tenant and version, so that no tenant can sign as another.

HKDF (RFC 5869) derives them from the operator's secrets: a derived key reveals neither the secret nor another tenant's
key. Nothing is stored, and every node derives the same keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import pack

import structlog
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
MOST_CACHED = 16_384  # tenants and versions; one costs some 10 µs to derive and 300 bytes to keep
LEAST_SECRET_BYTES = 24  # as in Standard Webhooks
_PURPOSE = b"duetime webhook signature 1"

log = structlog.get_logger()


class TenantKeys:
    """`secrets`: the operator's, newest first; without any, requests are not signed.

    `shared`: each request is also signed with the secrets themselves, as it was before tenants had keys.
    """

    def __init__(self, secrets: Sequence[bytes], *, shared: bool = False) -> None:
        self._secrets = tuple(secrets)
        self.can_sign = bool(self._secrets)
        self._shared = self._secrets if shared else ()
        if self._shared:
            log.warning(
                "SIGN_WITH_SHARED_KEY is on: a receiver that verifies with SIGNING_SECRETS can't tell tenants apart; "
                "give each tenant's receivers its own secret (`duetime signing-key show`), then turn it off"
            )
        if any(len(secret) < LEAST_SECRET_BYTES for secret in self._secrets):
            log.warning(
                "one of SIGNING_SECRETS is short: it can be guessed from a key that is derived from it; "
                "`openssl rand -base64 32` prints a good one",
                least_bytes=LEAST_SECRET_BYTES,
            )
        self._cached = lru_cache(maxsize=MOST_CACHED)(self._signing)

    def sign_with(self, tenant: str, versions: tuple[int, ...]) -> tuple[bytes, ...]:
        """Returns all keys that sign a request of this tenant. Called for every attempt, so it is cached."""
        return self._cached(tenant, versions)

    def derive(self, tenant: str, version: int) -> tuple[bytes, ...]:
        """Returns the tenant's own keys of this version: one per secret, the newest secret's first."""
        return tuple(_derive(secret, tenant, version) for secret in self._secrets)

    def _signing(self, tenant: str, versions: tuple[int, ...]) -> tuple[bytes, ...]:
        own = [key for version in versions for key in self.derive(tenant, version)]
        return (*own, *self._shared)


def _derive(secret: bytes, tenant: str, version: int) -> bytes:
    """Derives a key. Each part of the info has a length prefix or a fixed length, so no two tenants or versions share
    it."""
    name = tenant.encode()
    info = _PURPOSE + pack(">I", len(name)) + name + pack(">Q", version)
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)
