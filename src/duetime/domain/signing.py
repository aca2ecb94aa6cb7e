"""Which versions of a tenant's signing key sign its requests, and what a rotation changes. Pure.

The keys themselves are derived from the operator's secrets, for each tenant and version (`vault/signing.py`). Only
numbers and instants are stored: a stolen database does not help to sign.
"""

from __future__ import annotations

import msgspec

from duetime.domain.errors import Conflict
from duetime.domain.instants import DAY, SECOND, format_instant

FIRST_VERSION = 1  # of a tenant that has never rotated: it has no row
DEFAULT_OVERLAP_SECONDS = DAY // SECOND
LONGEST_OVERLAP_SECONDS = 30 * DAY // SECOND

_FIRST = (FIRST_VERSION,)


class SigningState(msgspec.Struct, frozen=True, array_like=True):
    """The signing key of a tenant that has rotated it."""

    tenant: str
    version: int
    previous_until: int  # the version before this one signs, too, until this instant (ms)
    rotated_at: int
    rotated_by: str


def signing_versions(state: SigningState | None, now: int) -> tuple[int, ...]:
    """Returns the versions that sign at `now`, the newest first."""
    if state is None:
        return _FIRST
    return (state.version, state.version - 1) if now < state.previous_until else (state.version,)


def rotate_signing_key(state: SigningState | None, tenant: str, now: int, overlap: int, by: str) -> SigningState:
    """Returns the state with the next version. The current version also signs for `overlap` ms more.

    Raises Conflict while an earlier rotation is under way: receivers may still verify with the version before, and a
    request has at most two signatures. An overlap of 0 is always allowed, for a key that has leaked.
    """
    if state is not None and overlap > 0 and now < state.previous_until:
        raise Conflict(
            f"version {state.version - 1} of the signing key still signs, until {format_instant(state.previous_until)};"
            " rotate after that, or with an overlap of 0, which ends all earlier versions at once"
        )
    version = FIRST_VERSION if state is None else state.version
    return SigningState(tenant, version + 1, now + overlap, now, by)
