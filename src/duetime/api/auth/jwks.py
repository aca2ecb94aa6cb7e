"""Loads the public keys that verify tokens from a JWKS file (RFC 7517). A file with any doubtful entry is refused.

Each key has one algorithm, which follows from its type (RSA: RS256, Ed25519: EdDSA), never from a token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers

LEAST_RSA_BITS = 2048
MOST_RSA_BITS = 8192  # a verification costs more with each bit, and any stranger can cause one
MOST_BYTES = 1_048_576
_PRIVATE = ("d", "p", "q", "dp", "dq", "qi", "oth")
_BASE64 = re.compile(r"[A-Za-z0-9_-]+={0,2}")


class BadKeys(ValueError):
    """Keys can't be used. The message names the file and the key, and never shows their content."""


class VerifyingKey(msgspec.Struct, frozen=True):
    kid: str | None
    algorithm: str
    key: RSAPublicKey | Ed25519PublicKey | bytes

    def __repr__(self) -> str:
        return f"VerifyingKey({self.kid!r}, {self.algorithm!r})"  # the key may be a secret


def load_jwks(file: Path) -> tuple[VerifyingKey, ...]:
    """Returns the keys of a file, at least one. Raises BadKeys."""
    keys = tuple(_read_key(f"{file}: {_name(entry, number)}", entry) for number, entry in enumerate(_entries(file), 1))
    if not keys:
        raise BadKeys(f"{file}: 'keys' is empty; put the public keys of the issuer there")
    kids = [key.kid for key in keys]
    if len(kids) > 1 and None in kids:
        raise BadKeys(f"{file}: key {kids.index(None) + 1} has no 'kid'; with several keys each needs its own")
    twice = next((kid for kid in kids if kids.count(kid) > 1), None)
    if twice is not None:
        raise BadKeys(f"{file}: two keys have the kid {twice!r}; give each its own")
    return keys


def _entries(file: Path) -> list[Any]:
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadKeys(f"{file}: can't be read: {error.strerror or error}") from None
    if len(text) > MOST_BYTES:
        raise BadKeys(f"{file}: is larger than {MOST_BYTES:,} bytes; is it a JWKS?")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise BadKeys(f"{file}: is not JSON") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise BadKeys(f'{file}: is not a JWKS; it should look like {{"keys": [{{"kty": "RSA", "kid": "…", …}}]}}')
    return list(document["keys"])


def _name(entry: Any, number: int) -> str:
    kid = entry.get("kid") if isinstance(entry, dict) else None
    return f"key {kid!r}" if isinstance(kid, str) else f"key {number}"


def _read_key(name: str, entry: Any) -> VerifyingKey:
    """Returns one key. `name` is for error messages: the file and the key."""
    if not isinstance(entry, dict):
        raise BadKeys(f"{name}: is not an object")
    kind = entry.get("kty")
    if kind == "oct" or "k" in entry:
        raise BadKeys(f"{name}: is a shared secret; only public keys belong here (JWT_SECRET holds the one secret)")
    if any(part in entry for part in _PRIVATE):
        raise BadKeys(f"{name}: is a private key; keep that with the issuer, and put its public part here")
    kid = entry.get("kid")
    if kid is not None and not (isinstance(kid, str) and 1 <= len(kid) <= 256):
        raise BadKeys(f"{name}: 'kid' must be text of 1 to 256 characters")
    _check_purpose(name, entry)
    algorithm, read = _kind(name, kind, entry.get("crv"))
    if entry.get("alg", algorithm) != algorithm:
        raise BadKeys(f"{name}: its 'alg' must be {algorithm}, or left out")
    try:
        return VerifyingKey(kid, algorithm, read(name, entry))
    except BadKeys:
        raise
    except (KeyError, TypeError, ValueError):  # a field is missing, not base64, or not a valid point or number
        raise BadKeys(f"{name}: is not a complete {kind} public key") from None


def _check_purpose(name: str, entry: dict[str, Any]) -> None:
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise BadKeys(f"{name}: is not for signatures; leave out keys whose 'use' is not sig")


def _kind(name: str, kind: Any, curve: Any) -> tuple[str, Callable[[str, dict[str, Any]], Any]]:
    if kind == "RSA":
        return "RS256", _read_rsa
    if kind == "OKP" and curve == "Ed25519":
        return "EdDSA", _read_ed25519
    raise BadKeys(f"{name}: has an unsupported type; use RSA (RS256) or OKP with Ed25519 (EdDSA)")


def _read_rsa(name: str, entry: dict[str, Any]) -> RSAPublicKey:
    exponent, modulus = (int.from_bytes(_bytes(entry[part]), "big") for part in ("e", "n"))
    if modulus.bit_length() < LEAST_RSA_BITS:
        raise BadKeys(f"{name}: has {modulus.bit_length()} bits; RSA keys need at least {LEAST_RSA_BITS}")
    if modulus.bit_length() > MOST_RSA_BITS:
        raise BadKeys(f"{name}: has {modulus.bit_length()} bits; RSA keys may have {MOST_RSA_BITS} at most")
    return RSAPublicNumbers(exponent, modulus).public_key()


def _read_ed25519(name: str, entry: dict[str, Any]) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(_bytes(entry["x"]))


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str) or not _BASE64.fullmatch(text):
        raise ValueError
    bare = text.rstrip("=")
    return urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
