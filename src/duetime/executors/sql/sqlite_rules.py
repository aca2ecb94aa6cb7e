"""Refuses statements that access another SQLite file, or that change the file's settings for its other users."""

from __future__ import annotations

import apsw

# These pragmas only read. A value, if given, says what to read.
_ASKING = frozenset({
    "collation_list", "compile_options", "data_version", "database_list", "foreign_key_check", "foreign_key_list",
    "freelist_count", "function_list", "index_info", "index_list", "index_xinfo", "integrity_check", "module_list",
    "page_count", "pragma_list", "quick_check", "table_info", "table_list", "table_xinfo",
})  # fmt: skip
# These pragmas change the file in ways that its users are allowed anyway.
_DOING = frozenset({"application_id", "incremental_vacuum", "optimize", "user_version", "wal_checkpoint"})
# With a value, these pragmas change the file, this connection or the whole process. They may only be read.
_SETTINGS = frozenset({
    "auto_vacuum", "cache_size", "encoding", "foreign_keys", "journal_mode", "page_size", "schema_version",
    "synchronous",
})  # fmt: skip
_UNSAFE_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})


class Authorizer:
    """SQLite calls it while it prepares a statement. `refused` says what was refused, as the start of a sentence."""

    def __init__(self, *, is_vacuum: bool) -> None:
        self._is_vacuum = is_vacuum  # VACUUM attaches a file without a name, and begins its own transaction
        self.refused: str | None = None

    def __call__(self, action: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
        self.refused = self.refused or self._refusal(action, first, second)
        return apsw.SQLITE_DENY if self.refused else apsw.SQLITE_OK

    def _refusal(self, action: int, first: str | None, second: str | None) -> str | None:
        match action:
            case apsw.SQLITE_ATTACH if not (self._is_vacuum and first == ""):
                return "VACUUM INTO writes another file" if self._is_vacuum else "ATTACH reaches another file"
            case apsw.SQLITE_DETACH:
                return "DETACH is for files that were attached"
            case apsw.SQLITE_TRANSACTION | apsw.SQLITE_SAVEPOINT if not self._is_vacuum:
                return "A job is one statement in a transaction of its own"
            case apsw.SQLITE_FUNCTION if (second or "").lower() in _UNSAFE_FUNCTIONS:
                return f"The function {(second or '').lower()} runs code from another file"
            case apsw.SQLITE_PRAGMA if not _is_allowed((first or "").lower(), second):
                return f"PRAGMA {(first or '').lower()} changes more than the data"
        return None


def _is_allowed(name: str, value: str | None) -> bool:
    return name in _ASKING or name in _DOING or (name in _SETTINGS and value is None)
