"""The vault port: how a secret of a job is encrypted before it is stored, and decrypted right before it is sent.

An encrypted text names its key: `encrypted:1:<key id>:<base64url>`. It belongs to one tenant and one job: in the
definition of another job it can't be decrypted. No error and no log line holds the plain text.
"""

from __future__ import annotations

from typing import Protocol


class DecryptionFailed(Exception):
    """A secret can't be decrypted. The message says why: its key is missing, or it belongs to another job."""


class KeysUnusable(Exception):
    """The keys can't be used, or there are none. The message says why, and what to do."""


class Vault(Protocol):
    @property
    def can_encrypt(self) -> bool:
        """Whether there is a key to encrypt with."""

    @property
    def key_id(self) -> str:
        """The id of the newest key, which encrypts from now on. Empty if there is none."""

    def start(self) -> None:
        """Loads the keys. A vault that makes its own keys creates them at the first start. Raises KeysUnusable."""

    def encrypt(self, tenant: str, job_id: str, text: str) -> str:
        """Encrypts with the newest key. Raises KeysUnusable if there is none."""

    def decrypt(self, tenant: str, job_id: str, encrypted: str) -> str:
        """Decrypts with the key that the text names. Raises DecryptionFailed."""


class NoVault:
    """A vault without keys."""

    can_encrypt = False
    key_id = ""

    def start(self) -> None:
        """Nothing to make ready."""

    def encrypt(self, tenant: str, job_id: str, text: str) -> str:
        raise KeysUnusable("there is no key to encrypt with; set ENCRYPTION_KEYS (`duetime keys create` prints one)")

    def decrypt(self, tenant: str, job_id: str, encrypted: str) -> str:
        raise DecryptionFailed(f"a secret of job {job_id} is encrypted, and this node has no keys: set ENCRYPTION_KEYS")
