"""API keys as text: `dt_<id>_<secret>`. Random bytes are an argument. Of a secret only its hash is kept.

The id finds the record, the secret proves that the bearer was given it. A secret is 32 random bytes, so a plain
SHA-256 is enough: there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from hmac import compare_digest

PREFIX = "dt_"
ID_BYTES = 10  # 16 letters and digits
SECRET_BYTES = 32
KEY_BYTES = ID_BYTES + SECRET_BYTES  # random, for `make_key`
_ID = re.compile(r"[a-z0-9]{16}")
_KEY = re.compile(r"dt_([a-z0-9]{16})_([A-Za-z0-9_-]{43,128})")


def make_key(random: bytes) -> tuple[str, str, str]:
    """(key id, secret, the whole key) from `KEY_BYTES` random bytes."""
    if len(random) != KEY_BYTES:
        raise ValueError(f"a key is made of {KEY_BYTES} random bytes, not {len(random)}")
    key_id, secret = _letters(random[:ID_BYTES]), _letters(random[ID_BYTES:])
    return key_id, secret, f"{PREFIX}{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """(key id, secret), or None if the text is no key."""
    match = _KEY.fullmatch(text)
    return (match[1], match[2]) if match else None


def is_key_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def hash_secret(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def is_secret(secret: str, secret_hash: str) -> bool:
    """Whether the hash is of this secret. How long it takes says nothing about where they differ."""
    return compare_digest(hash_secret(secret).encode(), secret_hash.encode())


def _letters(random: bytes) -> str:
    """Lower-case letters and digits alone: a double click takes the whole of it."""
    return b32encode(random).decode().rstrip("=").lower()
