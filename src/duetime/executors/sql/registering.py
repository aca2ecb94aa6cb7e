"""Decides whether a connection may be registered on this node, from its URL alone: no name is resolved."""

from __future__ import annotations

from duetime.domain.connection_urls import SqliteUrl, Url
from duetime.executors.guard import BlockedTarget
from duetime.executors.sql.limits import SqlRules
from duetime.executors.sql.own import OURS, OwnDatabase, is_own
from duetime.executors.sql.servers import check_literal
from duetime.executors.sql.sqlite import OFF


def refusal_of(url: Url, rules: SqlRules, own: OwnDatabase) -> str | None:
    """Returns why the URL may not be registered; None if it may. Each statement is checked again when it runs."""
    if not rules.allowed:
        return "SQL jobs are off here; the operator turns them on: ALLOW_SQL=true."
    if isinstance(url, SqliteUrl):
        return None if rules.sqlite_folder else OFF
    if is_own(own, url):
        return OURS
    try:
        check_literal(rules.servers, url.host, url.port)
    except BlockedTarget as problem:
        return str(problem)
    return None
