"""Who asks, and what they may do. Deny by default: a right that is not named is not there.

A tenant is a world of its own: of another's things nobody learns that they exist (404). Inside a tenant, a job is its
owner's: others are told so (403), and admins may do everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from duetime.domain.errors import Forbidden
from duetime.domain.job import JobType


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"
    ENTERPRISE = "enterprise"  # a user of the tier enterprise


class Tier(StrEnum):
    FREE = "free"
    PRO = "pro"
    ENTERPRISE = "enterprise"


class Right(StrEnum):
    """What a token or key lets its bearer do. (API keys call them scopes.)"""

    READ = "read"
    WRITE = "write"  # create, change and end jobs
    RUN = "run"  # run, retry, redrive, cancel executions
    SCRIPT = "script"  # create jobs that run a script: code on the worker's machine
    SQL = "sql"  # create jobs that run SQL
    WORK = "work"  # take the tenant's Python functions to run: see what they are called with, and say what came of it
    ADMIN = "admin"  # all jobs of the tenant, its keys and audit, the cluster


EVERY_RIGHT = frozenset(Right)
_OF_A_USER = frozenset({Right.READ, Right.WRITE, Right.RUN})
_TO_CREATE = {JobType.SCRIPT: Right.SCRIPT, JobType.SQL_QUERY: Right.SQL}


class Caller(msgspec.Struct, frozen=True):
    """Whoever sent a request, as far as it was proven."""

    tenant: str
    user_id: str
    role: Role
    tier: Tier
    rights: frozenset[Right]
    via: str  # how it was proven: `open`, `jwt`, or an API key's id
    email: str = ""
    request_id: str = ""
    expires_at: int | None = None  # of an API key that ends (ms)

    def asking(self, request_id: str) -> Caller:
        """The same one, with this request."""
        return Caller(
            self.tenant, self.user_id, self.role, self.tier, self.rights, self.via, self.email, request_id,
            self.expires_at,
        )  # fmt: skip

    @property
    def is_admin(self) -> bool:
        return Right.ADMIN in self.rights

    @property
    def sees(self) -> str | None:
        """The owner whose jobs they see; None: everybody's in the tenant."""
        return None if self.is_admin else self.user_id


# Without a secret, whoever reaches the loopback port is this one.
LOCAL = Caller("default", "local", Role.ADMIN, Tier.ENTERPRISE, EVERY_RIGHT, "open")


def rights_of(role: Role, scopes: Iterable[str] | None) -> frozenset[Right]:
    """What a role and the scopes of a token give. A scope narrows, and only an admin's can hold `admin`.

    Scripts and SQL are in no user's rights by themselves: they must be named. Raises ValueError for an unknown scope.
    """
    if scopes is None:
        return EVERY_RIGHT if role is Role.ADMIN else _OF_A_USER
    rights = frozenset(map(Right, scopes))
    if Right.ADMIN in rights:
        return EVERY_RIGHT if role is Role.ADMIN else rights - {Right.ADMIN}
    return rights


def tier_of(role: Role, tier: Tier) -> Tier:
    return Tier.ENTERPRISE if role is Role.ENTERPRISE else tier


def check_right(caller: Caller, right: Right) -> None:
    if right not in caller.rights:
        raise Forbidden(
            f"this needs the right '{right}', which your {_credential(caller)} does not give; ask an admin for one "
            "that does"
        )


def check_owner(caller: Caller, owner: str, what: str) -> None:
    """`what` is named by id: it is in the caller's tenant, so that it exists is no secret."""
    if not caller.is_admin and owner != caller.user_id:
        raise Forbidden(f"{what} belongs to another user; its owner or an admin can do this")


def check_type(caller: Caller, kind: JobType) -> None:
    """Scripts and SQL are code: creating such a job is a right of its own."""
    right = _TO_CREATE.get(kind)
    if right is not None and right not in caller.rights:
        raise Forbidden(f"to create a job of type {kind} needs the right '{right}'; ask an admin for a key with it")


def _credential(caller: Caller) -> str:
    return "token" if caller.via == "jwt" else "API key"
