from __future__ import annotations

import pytest

from duetime.domain.sql_servers import parse_servers
from duetime.executors.guard import BlockedTarget
from duetime.executors.sql.names import check_literal, check_server


@pytest.mark.parametrize(
    ("allowed", "host", "port", "addresses"),
    [
        ("public", "db.example", 5432, ["8.8.8.8", "2606:4700::1"]),
        ("public", "db.example", 443, ["8.8.8.8"]),
        ("db.internal", "DB.internal.", 99, ["10.0.0.1", "127.0.0.1"]),
        ("db.internal:5432", "db.internal", 5432, ["10.0.0.1"]),
        ("10.0.0.0/8", "any.example", 5432, ["10.1.2.3", "10.0.0.1"]),
        ("10.0.0.0/8:22", "any.example", 22, ["10.1.2.3"]),
        ("10.1.2.3", "10.1.2.3", 5432, ["10.1.2.3"]),
        ("10.1.2.3:5432", "any.example", 5432, ["::ffff:10.1.2.3"]),
        ("[fd00::7]:5432", "any.example", 5432, ["fd00::7"]),
        ("[fd00::7]", "any.example", 1, ["fd00::7"]),
        ("fd00::/8", "any.example", 5432, ["fd00::7"]),
        ("public,10.0.0.0/8", "any.example", 5432, ["8.8.8.8", "10.0.0.1"]),
        ("0.0.0.0/0,::/0", "any.example", 5432, ["127.0.0.1", "::1"]),
    ],
)
def test_servers_that_an_operator_allows_are_accepted(allowed: str, host: str, port: int, addresses: list[str]):
    check_server(parse_servers(allowed), host, port, addresses)


@pytest.mark.parametrize(
    ("allowed", "host", "port", "addresses"),
    [
        ("public", "db.example", 5432, ["8.8.8.8", "127.0.0.1"]),
        ("public", "db.example", 5432, ["::ffff:127.0.0.1"]),
        ("public", "db.example", 5432, ["64:ff9b::127.0.0.1"]),
        ("public", "db.example", 5432, ["2002:7f00:1::"]),
        ("public", "db.example", 5432, ["169.254.169.254"]),
        ("public", "db.example", 5432, ["fe80::1%lo"]),
        ("public", "db.example", 22, ["8.8.8.8"]),
        ("", "db.example", 5432, ["8.8.8.8"]),
        ("db.internal", "evil.db.internal", 5432, ["8.8.8.8"]),
        ("db.internal:5432", "db.internal", 5433, ["10.0.0.1"]),
        ("10.0.0.0/8", "db.example", 5432, ["10.0.0.1", "10.0.0.2", "8.8.8.8"]),
        ("10.0.0.0/8:5432", "db.example", 22, ["10.0.0.1"]),
        ("::/0", "db.example", 5432, ["::ffff:127.0.0.1"]),
        ("::/0", "db.example", 5432, ["64:ff9b::127.0.0.1"]),
        ("10.0.0.0/8", "db.example", 5432, ["no address"]),
    ],
)
def test_any_other_server_is_refused_with_the_setting_that_allows_it(
    allowed: str, host: str, port: int, addresses: list[str]
):
    with pytest.raises(BlockedTarget, match="SQL_ALLOWED_HOSTS"):
        check_server(parse_servers(allowed), host, port, addresses)


def test_an_address_is_checked_before_it_is_registered_and_a_name_is_not():
    with pytest.raises(BlockedTarget):
        check_literal(parse_servers("public"), "127.0.0.1", 5432)
    check_literal(parse_servers("public"), "localhost", 5432)


@pytest.mark.parametrize(
    "text", ["*", "*.internal", "db.internal:0", "db.internal:70000", "a b", "10.0.0.1/8", "[db]", "127.1", "http://db"]
)
def test_an_entry_that_would_never_match_is_refused(text: str):
    with pytest.raises(ValueError, match="must"):
        parse_servers(text)


def test_a_listed_address_at_a_port_that_is_not_listed_is_refused_with_the_port():
    with pytest.raises(BlockedTarget, match=r"127\.0\.0\.1 port 5433 is not on the operator's list"):
        check_literal(parse_servers("127.0.0.1:5432"), "127.0.0.1", 5433)
