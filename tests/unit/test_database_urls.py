"""How the URL of Duetime's own database is shown."""

from __future__ import annotations

import pytest

from duetime.store.postgres.connections import Address


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:p%40ss@db.internal/jobs", "db.internal/jobs"),
        ("postgresql://ann:secret@127.0.0.1:19432/jobs", "127.0.0.1:19432/jobs"),
        ("postgresql:///jobs?host=/run/postgresql", "/run/postgresql/jobs"),
    ],
)
def test_a_database_is_shown_with_its_port_and_without_its_password(url: str, shown: str):
    assert Address(url).shown == shown
