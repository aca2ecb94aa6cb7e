"""Verifies tokens (JWT) and returns their callers. Does not depend on requests or routes.

The key decides the algorithm, never the token: JWT_SECRET verifies HS256 only, and a key of the JWKS file verifies the
algorithm it is made for. A token without `kid` is verified with the secret, or, without a secret, with the only key in
the file. A token with `kid` is verified with the key of that name in the file. All other ways to name a key in a header
(jku, x5u, jwk, x5c) are ignored, and `crit` is refused. Claims are read only after the signature is verified, so a
refusal reveals nothing about them.
"""

from __future__ import annotations

import json
import math
import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import jwt
import structlog
from jwt.api_jws import PyJWS
from jwt.utils import base64url_decode

from duetime.api.auth.jwks import BadKeys, VerifyingKey, load_jwks
from duetime.domain.errors import Unauthorized
from duetime.domain.identity import Caller, Role, Tier, rights_of, tier_of
from duetime.domain.instants import SECOND

LEAST_SECRET_BYTES = 32
MOST_CHARACTERS = 8192
MOST_CACHED = 4096
LEEWAY = 30 * SECOND  # how far an issuer's clock may be ahead of ours; the expiry has no leeway
RECHECK = SECOND  # the shortest time between two checks of the file
LATEST = 253_402_300_799  # the last second of the year 9999
_FORM = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

_ADVICE = "`duetime token create --jwt` prints one that is right"

_Choice = TypeVar("_Choice", bound=StrEnum)

log = structlog.get_logger()


class Tokens:
    """Raises BadKeys if the secret or the file can't be used. Without either, no token is accepted.

    A token must name `issuer` as iss and `audience` as aud; empty: not checked.
    """

    def __init__(self, *, secret: str, jwks_file: Path | None, issuer: str, audience: str) -> None:
        self._issuer, self._audience = issuer, audience
        self._secret = _secret_key(secret) if secret else None
        self._file = jwks_file
        self._stamp: tuple[int, ...] | None = None
        self._looked_at = 0
        self._public: dict[str | None, VerifyingKey] = {}
        self._cache: dict[str, tuple[Caller, int]] = {}  # the caller, and when the token expires
        if jwks_file is not None:
            self._stamp = _stamp(jwks_file)
            try:
                self._public = {key.kid: key for key in load_jwks(jwks_file)}
            except BadKeys as error:
                raise BadKeys(f"JWKS_FILE: {error}") from None

    def verify(self, token: str, now: int) -> Caller:
        """Returns the caller of a token that is valid at `now` (ms). Raises Unauthorized."""
        self._look_at_the_file(now)
        known = self._cache.get(token)
        caller, expires_at = known or self._read(token, now)
        if now >= expires_at:
            self._cache.pop(token, None)
            raise Unauthorized("the token has expired; get a new one")
        if known is None:  # only verified tokens are cached: made-up tokens must not fill the cache
            if len(self._cache) >= MOST_CACHED:
                del self._cache[next(iter(self._cache))]
            self._cache[token] = (caller, expires_at)
        return caller

    def _look_at_the_file(self, now: int) -> None:
        """Loads the file again if it has changed: keys rotate without a restart. An unusable file is only logged."""
        if self._file is None or 0 <= now - self._looked_at < RECHECK:
            return
        self._looked_at = now
        stamp = _stamp(self._file)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # first, so that an unusable file is logged once, not once a second
        try:
            keys = load_jwks(self._file)
        except BadKeys as error:
            log.warning("JWKS_FILE has changed and can't be used: the previous keys stay in use", error=str(error))
            return
        self._public = {key.kid: key for key in keys}
        self._cache.clear()
        log.info("JWKS_FILE has changed: its keys are used from now on", kids=[key.kid for key in keys])

    def _read(self, token: str, now: int) -> tuple[Caller, int]:
        if len(token) > MOST_CHARACTERS:
            raise Unauthorized(f"the token is longer than {MOST_CHARACTERS:,} characters; put fewer claims into it")
        claims = self._claims(token)
        expires_at = self._check_claims(claims, now)
        return _caller(claims), expires_at

    def _claims(self, token: str) -> dict[str, Any]:
        """Returns the token's claims after verifying its signature."""
        if not _FORM.fullmatch(token):
            raise Unauthorized(f"the token is not a JWT; {_ADVICE}")
        try:
            header = _object(base64url_decode(token.split(".", 1)[0]))
        except (ValueError, RecursionError):
            raise Unauthorized(f"the token is not a JWT; {_ADVICE}") from None
        key = self._key_for(header)
        try:
            payload = _JWS.decode_complete(token, key.key, algorithms=[key.algorithm])["payload"]
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Unauthorized("the token's signature does not fit any key of this server; get a new one") from None
        try:
            return _object(payload)
        except (ValueError, RecursionError):
            raise Unauthorized(f"the token's claims are not a JSON object; {_ADVICE}") from None

    def _key_for(self, header: dict[str, Any]) -> VerifyingKey:
        if "crit" in header:
            raise Unauthorized("the token's header has 'crit', which is not supported; get a token without it")
        kid = header.get("kid", "")
        key = (self._public.get(kid) if isinstance(kid, str) else None) if "kid" in header else self._unnamed()
        if key is None:
            raise Unauthorized("the token's kid is missing, or names no key of this server; get a new token")
        if header.get("alg") != key.algorithm:
            raise Unauthorized(f"the token must be signed with {key.algorithm}, the algorithm of its key")
        return key

    def _unnamed(self) -> VerifyingKey | None:
        if self._secret is not None:
            return self._secret
        return next(iter(self._public.values())) if len(self._public) == 1 else None

    def _check_claims(self, claims: dict[str, Any], now: int) -> int:
        """Checks iat, nbf, iss and aud. Returns when the token expires."""
        expires_at, issued_at = _instant(claims, "exp"), _instant(claims, "iat")
        if issued_at > now + LEEWAY:
            raise Unauthorized("the token's iat lies in the future; set the issuer's clock, and get a new one")
        if "nbf" in claims and _instant(claims, "nbf") > now + LEEWAY:
            raise Unauthorized("the token is not valid yet (nbf); wait until it is")
        if self._issuer and claims.get("iss") != self._issuer:
            raise Unauthorized("the token's iss is not this server's JWT_ISSUER; get one from that issuer")
        if self._audience and not _is_for(self._audience, claims.get("aud")):
            raise Unauthorized("the token's aud is not this server's JWT_AUDIENCE; get one made for it")
        return expires_at


def _is_for(audience: str, named: object) -> bool:
    audiences = named if isinstance(named, list) else [named]
    return audience in audiences and all(isinstance(each, str) for each in audiences)


def sign(secret: str, issuer: str, audience: str, claims: dict[str, Any], now: int, seconds: int) -> str:
    """Returns a token with these claims that is valid for `seconds` from `now` (ms). For the command line."""
    _secret_key(secret)  # raises BadKeys for a secret that could not verify
    about_itself: dict[str, Any] = {"iat": now // SECOND, "exp": now // SECOND + seconds}
    about_itself |= {name: value for name, value in (("iss", issuer), ("aud", audience)) if value}
    return _JWS.encode(json.dumps({**claims, **about_itself}).encode(), secret, "HS256")


_JWS = PyJWS(algorithms=["HS256", "RS256", "EdDSA"])


def _secret_key(secret: str) -> VerifyingKey:
    if len(secret.encode()) < LEAST_SECRET_BYTES:
        raise BadKeys(
            f"JWT_SECRET: must have at least {LEAST_SECRET_BYTES} bytes; `openssl rand -base64 32` prints one"
        )
    try:
        return VerifyingKey(None, "HS256", _JWS.get_algorithm_by_name("HS256").prepare_key(secret))
    except jwt.InvalidKeyError:
        raise BadKeys(
            "JWT_SECRET: is a public key or certificate; a secret must be one (keys go to JWKS_FILE)"
        ) from None


def _stamp(file: Path) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _object(text: bytes) -> dict[str, Any]:
    """Decodes a JSON object. Raises ValueError, also for a repeated name: parsers disagree on which one counts."""
    value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _instant(claims: dict[str, Any], name: str) -> int:
    """Returns a time claim, in ms."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATEST:
        raise Unauthorized(f"the token needs '{name}', in seconds since 1970; {_ADVICE}")
    return math.floor(value * SECOND)


def _caller(claims: dict[str, Any]) -> Caller:
    role = _one_of(Role, claims, "role", Role.USER)
    tier = _one_of(Tier, claims, "tier", Tier.FREE)
    try:
        rights = rights_of(role, _scopes(claims))
    except ValueError:
        raise Unauthorized("the token's scopes hold one that is not known; see `duetime token create --help`") from None
    return Caller(_tenant(claims), _user_id(claims), role, tier_of(role, tier), rights, "jwt", _email(claims))


def _user_id(claims: dict[str, Any]) -> str:
    value = claims["user_id"] if "user_id" in claims else claims.get("sub")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise Unauthorized(f"the token needs a user_id (or sub), text or a whole number; {_ADVICE}")
    text = str(value)
    if not 1 <= len(text) <= 128 or not text.isprintable() or " " in text:
        raise Unauthorized("the token's user_id must have 1 to 128 visible characters; get a token with a valid one")
    return text


def _email(claims: dict[str, Any]) -> str:
    value = claims.get("email", "")
    if not isinstance(value, str) or len(value) > 320 or not value.isprintable():
        raise Unauthorized("the token's email must be text of 320 characters at most; get a token without it")
    return value


def _tenant(claims: dict[str, Any]) -> str:
    value = claims.get("tenant", "default")
    if not isinstance(value, str) or not TENANT.fullmatch(value):
        raise Unauthorized(
            "the token's tenant must have 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit"
        )
    return value


def _scopes(claims: dict[str, Any]) -> list[str] | None:
    """Returns the token's scopes. None: all rights of the role. An empty list: no rights at all."""
    if "scopes" not in claims:
        return None
    value = claims["scopes"]
    scopes = value.split() if isinstance(value, str) else value
    if not isinstance(scopes, list) or not all(isinstance(scope, str) for scope in scopes):
        raise Unauthorized("the token's scopes must be a list of text, or text with spaces between")
    return scopes


def _one_of(kind: type[_Choice], claims: dict[str, Any], name: str, default: _Choice) -> _Choice:
    value = claims.get(name, default)
    if not isinstance(value, str) or value not in list(kind):
        raise Unauthorized(f"the token's {name} must be one of {', '.join(kind)}; get a token with one of them")
    return kind(value)
