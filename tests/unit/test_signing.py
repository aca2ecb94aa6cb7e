from __future__ import annotations

import hmac
from collections.abc import Iterator
from itertools import pairwise
from struct import pack

import pytest

from duetime.domain.errors import Conflict
from duetime.domain.instants import DAY
from duetime.domain.signing import SigningState, rotate_signing_key, signing_versions
from duetime.vault.signing import MOST_CACHED, TenantKeys
from samples import NOW


def hkdf(secret: bytes, info: bytes) -> bytes:
    """RFC 5869 with SHA-256, no salt, and one block."""
    return hmac.digest(hmac.digest(bytes(32), secret, "sha256"), info + b"\x01", "sha256")


def test_every_version_of_duetime_derives_the_same_key():
    info = b"duetime webhook signature 1" + pack(">I", 4) + b"acme" + pack(">Q", 7)
    assert TenantKeys([b"s" * 32]).derive("acme", 7) == (hkdf(b"s" * 32, info),)


def test_each_tenant_version_and_secret_has_its_own_key():
    keys = TenantKeys([b"a" * 32, b"b" * 32])
    tenants = ["acme", "acme1", "acm", "", "ü"]
    found = [key for tenant in tenants for version in (1, 2, 11) for key in keys.derive(tenant, version)]
    assert len(set(found)) == len(found) == 30
    assert {len(key) for key in found} == {32}


def test_requests_are_signed_with_each_version_and_secret_the_newest_first():
    new, old = b"a" * 32, b"b" * 32
    keys, shared = TenantKeys([new, old]), TenantKeys([new, old], shared=True)
    own = (*keys.derive("acme", 2), *keys.derive("acme", 1))
    assert keys.sign_with("acme", (2, 1)) == own
    assert shared.sign_with("acme", (2, 1)) == (*own, new, old)
    assert shared.derive("acme", 2) == keys.derive("acme", 2)
    assert TenantKeys([]).sign_with("acme", (1,)) == TenantKeys([], shared=True).sign_with("acme", (1,)) == ()


def test_keys_of_many_tenants_are_cached_up_to_a_bound():
    keys = TenantKeys([b"a" * 32])
    for number in range(MOST_CACHED + 10):
        keys.sign_with(f"t{number}", (1,))
    assert keys._cached.cache_info().currsize == MOST_CACHED


def rotations(state: SigningState | None, *nows: int) -> Iterator[SigningState]:
    for now in nows:
        state = rotate_signing_key(state, "acme", now, DAY, "ann")
        yield state


def test_a_rotation_keeps_the_previous_version_for_the_overlap():
    (state,) = rotations(None, NOW)
    assert state == SigningState("acme", 2, NOW + DAY, NOW, "ann")
    assert signing_versions(None, NOW) == (1,)
    assert signing_versions(state, NOW) == signing_versions(state, NOW + DAY - 1) == (2, 1)
    assert signing_versions(state, NOW + DAY) == (2,)


def test_versions_ascend_and_are_never_reused():
    states = list(rotations(None, *(NOW + n * DAY for n in range(5))))
    assert all(later.version == earlier.version + 1 for earlier, later in pairwise(states))


def test_a_rotation_with_overlap_is_refused_during_another():
    (state,) = rotations(None, NOW)
    with pytest.raises(Conflict, match="version 1 of the signing key still signs"):
        rotate_signing_key(state, "acme", NOW + DAY - 1, 1, "ann")
    ended = rotate_signing_key(state, "acme", NOW + 1, 0, "ann")
    assert signing_versions(ended, NOW + 1) == (3,)
