"""Connections that are refused when they are registered, before a name is resolved or anything is sent."""

from __future__ import annotations

from pathlib import Path

from duetime.domain.connection_urls import parse_url
from duetime.domain.sql_servers import parse_servers
from duetime.executors.sql.executor import refusal_of
from duetime.executors.sql.limits import SqlRules
from duetime.executors.sql.own import OwnDatabase

OWN = OwnDatabase(None, "postgresql://duetime:pw@db.internal/duetime")
RULES = SqlRules(True, parse_servers("public"), False, "")


def refusal(url: str, own: OwnDatabase = OWN) -> str | None:
    return refusal_of(parse_url(url), RULES, own)


def test_duetimes_own_database_is_refused() -> None:
    for url in ("postgresql://app:x@db.internal/duetime", "postgresql://app:x@db.internal:5432/duetime"):
        assert refusal(url) == (
            "This is Duetime's own database, which jobs can't use: register a connection to another one."
        )


def test_another_database_of_the_same_server_may_be_registered() -> None:
    assert refusal("postgresql://app:x@db.internal/shop") is None
    assert refusal("postgresql://app:x@db.internal:6432/duetime") is None


def test_a_node_on_sqlite_has_no_such_server() -> None:
    assert refusal("postgresql://app:x@db.internal/duetime", OwnDatabase(Path("data"), None)) is None
