from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from promotion.source import fill
from store.postgres_server import fresh_database


@pytest.fixture
async def target() -> AsyncIterator[str]:
    """Returns the URL of an empty database."""
    async with fresh_database() as url:
        yield url


@pytest.fixture
async def source(tmp_path: Path) -> Path:
    """Returns the folder of a stopped node."""
    folder = tmp_path / "data"
    await fill(folder)
    return folder
