"""The vault port: how a secret of a job is encrypted before it is stored, and decrypted right before it is sent.

An encrypted text names its key: `encrypted:1:<key id>:<base64url>`. It belongs to one tenant and one job: in the
definition of another job it can't be decrypted. No error and no log line holds the plain text.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["DecryptionFailed", "KeysUnusable", "NoVault", "Vault"]


class DecryptionFailed(Exception):
    """A secret can't be decrypted. The message says why: its key is missing, or it belongs to another job."""


class KeysUnusable(Exception):
    """There are keys, but they can't be used. The sentence says why, and what to do."""


class Vault(Protocol):
    @property
    def can_encrypt(self) -> bool:
        """Whether there is a key to encrypt with."""

    @property
    def key_id(self) -> str:
        """Of the newest key, which all is encrypted with from here on. Empty if there is none."""

    def start(self) -> None:
        """Have the keys ready; where this vault makes its own, the first time. Raises KeysUnusable."""

    def encrypt(self, tenant: str, job_id: str, text: str) -> str:
        """With the newest key. Raises KeysUnusable if there is none."""

    def decrypt(self, tenant: str, job_id: str, encrypted: str) -> str:
        """With the key that it was encrypted with. Raises DecryptionFailed."""


class NoVault:
    """Has no keys."""

    can_encrypt = False
    key_id = ""

    def start(self) -> None:
        """Nothing to make ready."""

    def encrypt(self, tenant: str, job_id: str, text: str) -> str:
        raise KeysUnusable("there is no key to encrypt with; set ENCRYPTION_KEYS (`duetime keys create` prints one)")

    def decrypt(self, tenant: str, job_id: str, encrypted: str) -> str:
        raise DecryptionFailed(f"a secret of job {job_id} is encrypted, and this node has no keys: set ENCRYPTION_KEYS")
