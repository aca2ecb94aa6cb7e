"""Callers and their rights. Deny by default: a caller has only the rights that are named.

Tenants are separate: for a thing of another tenant the response is 404, so that its existence stays hidden. Inside a
tenant, a job belongs to its owner: other users get 403, and admins may do everything.
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
    """What the bearer of a token or key may do. (API keys call them scopes.)"""

    READ = "read"
    WRITE = "write"  # create, change and end jobs
    RUN = "run"  # run, retry, redrive, cancel executions
    SCRIPT = "script"  # create jobs that run a script: code on the worker's machine
    SQL = "sql"  # create jobs that run SQL
    WORK = "work"  # run the tenant's Python functions: read their arguments, and report their results
    ADMIN = "admin"  # all jobs of the tenant, its keys and audit, the cluster


EVERY_RIGHT = frozenset(Right)
_OF_A_USER = frozenset({Right.READ, Right.WRITE, Right.RUN})
_TO_CREATE = {JobType.SCRIPT: Right.SCRIPT, JobType.SQL_QUERY: Right.SQL}


class Caller(msgspec.Struct, frozen=True):
    """The authenticated sender of a request."""

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
        """Returns the same caller with this request id."""
        return Caller(
            self.tenant, self.user_id, self.role, self.tier, self.rights, self.via, self.email, request_id,
            self.expires_at,
        )  # fmt: skip

    @property
    def is_admin(self) -> bool:
        return Right.ADMIN in self.rights

    @property
    def sees(self) -> str | None:
        """Returns the owner whose jobs the caller sees; None: all jobs of the tenant."""
        return None if self.is_admin else self.user_id


# The caller of all requests while no secret is set: then only the loopback port is served.
LOCAL = Caller("default", "local", Role.ADMIN, Tier.ENTERPRISE, EVERY_RIGHT, "open")


def is_operator(caller: Caller, operator_tenant: str) -> bool:
    """Returns whether the caller sees figures of the whole cluster, over all tenants.

    `operator_tenant`: the setting OPERATOR_TENANT. If it is empty, only the local caller of a node without identity is
    the operator: through the API of a shared server, then, nobody is.
    """
    if not operator_tenant:
        return caller.via == LOCAL.via and caller.is_admin
    return caller.tenant == operator_tenant and caller.is_admin


def rights_of(role: Role, scopes: Iterable[str] | None) -> frozenset[Right]:
    """Returns the rights of a role with the scopes of a token. Scopes narrow; only an admin's can contain `admin`.

    A user has the rights to scripts and SQL only if a scope names them. Raises ValueError for an unknown scope.
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
    """Raises Forbidden unless the caller may act on `what`, a thing of the caller's tenant, named by its id."""
    if not caller.is_admin and owner != caller.user_id:
        raise Forbidden(f"{what} belongs to another user; its owner or an admin can do this")


def check_type(caller: Caller, kind: JobType) -> None:
    """Raises Forbidden if the caller may not create jobs of this type: scripts and SQL need a separate right."""
    right = _TO_CREATE.get(kind)
    if right is not None and right not in caller.rights:
        raise Forbidden(f"to create a job of type {kind} needs the right '{right}'; ask an admin for a key with it")


def _credential(caller: Caller) -> str:
    return "token" if caller.via == "jwt" else "API key"
