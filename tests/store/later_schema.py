"""The schema of a later Duetime: the real migrations of a store, and made-up ones after them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

# For both stores.
LATER = (
    "ALTER TABLE jobs ADD COLUMN color text NOT NULL DEFAULT 'none'; UPDATE jobs SET color = 'green'",
    "CREATE TABLE colors (name text PRIMARY KEY, jobs bigint NOT NULL);"
    "CREATE INDEX colors_jobs ON colors (jobs);"
    "INSERT INTO colors (name, jobs) SELECT color, count(*) FROM jobs GROUP BY color",
)
BROKEN = "CREATE TABLE half_made (name text PRIMARY KEY); INSERT INTO no_such_table VALUES (1)"


def write_migrations(folder: Path, blocks: ModuleType, *more: str) -> Path:
    """Copies the real migrations of the store whose `blocks` module this is, adds `more`, and returns the folder."""
    folder.mkdir()
    real = blocks.load_migrations()
    for number, sql in real + list(enumerate(more, real[-1][0] + 1)):
        (folder / f"{number:04}_migration.sql").write_text(sql)
    return folder


def use_migrations(patch: pytest.MonkeyPatch, folder: Path, blocks: ModuleType, *more: str) -> int:
    """Gives this process a later schema from here on. Returns the newest version."""
    patch.setattr(blocks, "MIGRATIONS", write_migrations(folder, blocks, *more))
    return int(blocks.load_migrations()[-1][0])
