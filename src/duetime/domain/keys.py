"""API keys as text: `dt_<id>_<secret>`. Random bytes are an argument. Only the hash of a secret is stored.

The id finds the record, and the secret authenticates the bearer. A secret is 32 random bytes, so a plain SHA-256 is
enough: a slow hash protects only secrets that can be guessed.
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
    """Returns (key id, secret, the whole key) from `KEY_BYTES` random bytes."""
    if len(random) != KEY_BYTES:
        raise ValueError(f"a key is made of {KEY_BYTES} random bytes, not {len(random)}")
    key_id, secret = _letters(random[:ID_BYTES]), _letters(random[ID_BYTES:])
    return key_id, secret, f"{PREFIX}{key_id}_{secret}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Returns (key id, secret); None if the text is no key."""
    match = _KEY.fullmatch(text)
    return (match[1], match[2]) if match else None


def is_key_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def hash_secret(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def is_secret(secret: str, secret_hash: str) -> bool:
    """Returns whether the hash is of this secret, in constant time: the time does not depend on the difference."""
    return compare_digest(hash_secret(secret).encode(), secret_hash.encode())


def _letters(random: bytes) -> str:
    """Returns lower-case letters and digits only: a double click selects the whole text."""
    return b32encode(random).decode().rstrip("=").lower()
