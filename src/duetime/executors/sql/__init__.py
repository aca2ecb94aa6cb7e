"""SQL jobs: one statement on a registered connection, to PostgreSQL or SQLite."""

from __future__ import annotations

from duetime.executors.sql.executor import SqlExecutor
from duetime.executors.sql.limits import SqlLimits, SqlRules
from duetime.executors.sql.own import OwnDatabase

__all__ = ["OwnDatabase", "SqlExecutor", "SqlLimits", "SqlRules"]
