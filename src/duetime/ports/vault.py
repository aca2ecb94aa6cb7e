"""The vault port: how a secret of a job is sealed before it is stored, and unsealed right before it is sent.

A sealed text says by itself how to open it: `sealed:1:<key id>:<base64url>`. It belongs to one tenant and one job: put
into another one's definition, it does not open. No error, and nothing that is logged, holds what was sealed.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["KeysUnusable", "NoVault", "SealBroken", "Vault"]


class SealBroken(Exception):
    """It can't be unsealed. The sentence says why: the key is missing, or it is not this job's."""


class KeysUnusable(Exception):
    """There are keys, but they can't be used. The sentence says why, and what to do."""


class Vault(Protocol):
    @property
    def can_seal(self) -> bool:
        """Whether there is a key to seal with."""

    @property
    def key_id(self) -> str:
        """Of the newest key, which all is sealed with from here on. Empty if there is none."""

    def start(self) -> None:
        """Have the keys ready; where this vault makes its own, the first time. Raises KeysUnusable."""

    def seal(self, tenant: str, job_id: str, text: str) -> str:
        """With the newest key. Raises KeysUnusable if there is none."""

    def unseal(self, tenant: str, job_id: str, sealed: str) -> str:
        """With the key that it was sealed with. Raises SealBroken."""


class NoVault:
    """Has no keys."""

    can_seal = False
    key_id = ""

    def start(self) -> None:
        """Nothing to make ready."""

    def seal(self, tenant: str, job_id: str, text: str) -> str:
        raise KeysUnusable("there is no key to seal with; set ENCRYPTION_KEYS (`duetime keys create` prints one)")

    def unseal(self, tenant: str, job_id: str, sealed: str) -> str:
        raise SealBroken(f"a secret of job {job_id} is sealed, and this node has no keys: set ENCRYPTION_KEYS")
