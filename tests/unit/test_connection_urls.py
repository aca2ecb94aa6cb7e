from __future__ import annotations

import pytest

from duetime.domain.connection_urls import BadUrl, parse_url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:s3cret@db.example:5433/app?sslmode=verify-full",
        "postgres://me@db.example/app",
        "postgresql://me:p%40ss@[::1]:5432/app",
        "sqlite:///app.db",
        "sqlite:///app.db?mode=ro",
    ],
)
def test_a_complete_url_is_accepted(url: str):
    parse_url(url)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("mysql://me:s3cret@host/app", "postgresql://"),
        ("s3cret", "postgresql://"),
        ("postgresql://me:s3cret@/app", "no host"),
        ("postgresql://me:s3cret@/app?host=/tmp", "Unix sockets"),
        ("postgresql://me:s3cret@%2Ftmp/app", "one host"),
        ("postgresql://me:s3cret@a,b/app", "one host"),
        ("postgresql://:s3cret@host/app", "no user"),
        ("postgresql://me:s3cret@host", "one database"),
        ("postgresql://me:s3cret@host:port/app", "port"),
        ("postgresql://me:s3cret@host/app?sslmode=s3cret", "sslmode"),
        ("postgresql://me:s3cret@host/app?s3cret=1", "not known"),
        ("postgresql://me:s3cret@host/app?password=s3cret", "password"),
        ("postgresql://me:s3cret#x@host/app", "%23"),
        ("postgresql://me:s3cret x@host/app", "%20"),
        ("sqlite:///", "no file"),
        ("sqlite://s3cret.db", "three slashes"),
        ("sqlite:s3cret.db", "three slashes"),
        ("sqlite:///app.db?mode=memory", "mode"),
        ("sqlite:///app.db?vfs=s3cret", "not known"),
        ("sqlite:///var/app.db", "without a path"),
        ("sqlite:////app.db", "without a path"),
        ("sqlite:///app.db/", "without a path"),
        ("sqlite:///app%00.db", "without a path"),
        ("sqlite:///..", "without a path"),
        ("sqlite:///..%2Fapp.db", "without a path"),
        ("sqlite:///file:app.db", "without a path"),
        ("sqlite:///:memory:", "without a path"),
        ("sqlite:///app.db-wal", "without a path"),
        ("sqlite:///app.db-journal", "without a path"),
    ],
)
def test_an_error_about_a_url_does_not_contain_its_password(url: str, says: str):
    with pytest.raises(BadUrl) as problem:
        parse_url(url)
    assert says in str(problem.value)
    assert "s3cret" not in str(problem.value)
