"""AesVault: AES-256-GCM with a random 96-bit nonce per text, and tenant, job and key id as associated data.

Random nonces are safe for about four billion texts per key; rotate before that.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, urlsafe_b64encode
from pathlib import Path
from struct import pack

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from duetime.domain.encryption_keys import Key
from duetime.domain.secrets import key_id_of
from duetime.ports.vault import DecryptionFailed, KeysUnusable, NoVault, Vault
from duetime.vault.key_file import KeyFile

NONCE_BYTES = 12
_DOMAIN = b"duetime-encrypted-1"


def open_vault(keys: tuple[Key, ...], folder: Path | None) -> Vault:
    """Returns a vault. `keys`: from ENCRYPTION_KEYS. `folder`: SQLite's data folder, None on PostgreSQL.

    Reads nothing before `start`.
    """
    if folder is None:
        return AesVault(keys) if keys else NoVault()
    return AesVault(keys, KeyFile(folder))


class AesVault:
    """Encrypts with the first of `keys`, or without `keys` with the newest key of `file`. Decrypts with all of both."""

    def __init__(self, keys: tuple[Key, ...] = (), file: KeyFile | None = None) -> None:
        self._keys = keys
        self._by_id = {key.id: key for key in keys}
        self._file = file
        self._ciphers: dict[Key, AESGCM] = {}

    def start(self) -> None:
        if self._file is not None and not self._keys:
            self._file.start()

    @property
    def can_encrypt(self) -> bool:
        return self._newest() is not None

    @property
    def key_id(self) -> str:
        key = self._newest()
        return "" if key is None else key.id

    def _newest(self) -> Key | None:
        if self._keys:
            return self._keys[0]
        found = () if self._file is None else self._file.list_keys()
        return found[0] if found else None

    def encrypt(self, tenant: str, job_id: str, text: str) -> str:
        key = self._newest()
        if key is None:
            raise KeysUnusable("there is no key to encrypt with; see the log, or set ENCRYPTION_KEYS")
        nonce = os.urandom(NONCE_BYTES)
        encrypted = nonce + self._cipher(key).encrypt(nonce, text.encode(), _belonging(tenant, job_id, key.id))
        return f"encrypted:1:{key.id}:{urlsafe_b64encode(encrypted).rstrip(b'=').decode()}"

    def decrypt(self, tenant: str, job_id: str, encrypted: str) -> str:
        key_id = key_id_of(encrypted)
        if key_id is None:
            raise DecryptionFailed(f"a secret of job {job_id} was encrypted in a way that this version does not know")
        key = self._by_id.get(key_id) or (None if self._file is None else self._file.find(key_id))
        if key is None:
            raise DecryptionFailed(
                f"a secret of job {job_id} was encrypted with the key {key_id}, which this node does not have; "
                "add it to its keys, or change the job and send its secrets anew"
            )
        data, owner = _decoded(encrypted), _belonging(tenant, job_id, key_id)
        try:
            plain = self._cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], owner)
        except (InvalidTag, ValueError):
            raise DecryptionFailed(
                f"a secret of job {job_id} can't be decrypted: it does not belong to this job, or was altered, "
                f"or {key_id} is not the key that it had; change the job and send its secrets anew"
            ) from None
        return plain.decode()

    def _cipher(self, key: Key) -> AESGCM:
        cipher = self._ciphers.get(key)
        if cipher is None:
            cipher = self._ciphers[key] = AESGCM(key.secret)
        return cipher


def _decoded(encrypted: str) -> bytes:
    """Returns the decoded bytes; empty if the text is not base64, which no key can decrypt."""
    text = encrypted.rpartition(":")[2]
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""


def _belonging(tenant: str, job_id: str, key_id: str) -> bytes:
    """Returns the associated data. Each part has a length prefix, so different parts never give the same data."""
    return b"".join(pack(">I", len(part)) + part for part in (_DOMAIN, *map(str.encode, (tenant, job_id, key_id))))
