"""Checks for one store only: a server's settings, a folder's files. They need no server."""

from __future__ import annotations

import pytest

from duetime.domain.doctor import Check, Status
from duetime.domain.instants import DAY
from duetime.store.postgres import checks as postgres
from duetime.store.sqlite import checks as sqlite

OK, WARNING, PROBLEM = Status.OK, Status.WARNING, Status.PROBLEM
NOW = 1_767_225_600_000  # 2026-01-01
SAFE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
MIB = 1 << 20


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (postgres.connection("db/duetime", 3), OK),
        (postgres.connection("db/duetime", 1001), WARNING),
        (postgres.unreachable("db/duetime", "Connection refused"), PROBLEM),
        (postgres.server_version(180_001, "18.1"), OK),
        (postgres.server_version(140_000, "14.0"), OK),
        (postgres.server_version(130_022, "13.22"), PROBLEM),
        (postgres.clock_skew(200, 0), OK),
        (postgres.clock_skew(-201, 0), WARNING),
        (postgres.clock_skew(2000, 0), WARNING),
        (postgres.clock_skew(-2001, 0), PROBLEM),
        (postgres.clock_skew(-2001, 1000), WARNING),  # 1,501 ms are certain
        (postgres.clock_skew(300, 1000), OK),  # none are
        (postgres.durability(SAFE), OK),
        (postgres.durability(SAFE | {"synchronous_commit": "local"}), OK),
        *((postgres.durability(SAFE | {name: "off"}), PROBLEM) for name in SAFE),
        (postgres.connections(97, 10, 25, 3, is_pooled=False), OK),
        (postgres.connections(97, 10, 25, 4, is_pooled=False), WARNING),
        (postgres.connections(97, 97, 25, 1, is_pooled=False), PROBLEM),
        (postgres.connections(97, 97, 25, 40, is_pooled=True), OK),
        (postgres.writable(is_standby=False, is_read_only=False), OK),
        (postgres.writable(is_standby=True, is_read_only=False), PROBLEM),
        (postgres.writable(is_standby=False, is_read_only=True), PROBLEM),
        (postgres.autovacuum(is_on=True, is_counting=True), OK),
        (postgres.autovacuum(is_on=False, is_counting=True), PROBLEM),
        (postgres.autovacuum(is_on=True, is_counting=False), PROBLEM),
        (postgres.strays(0, 0), OK),
        (postgres.strays(500, 500), OK),
        (postgres.strays(500, 501), WARNING),
        (postgres.history(10, 1 << 20, NOW - 31 * DAY, NOW, 30 * 86_400, 100), OK),
        (postgres.history(10, 1 << 20, NOW - 33 * DAY, NOW, 30 * 86_400, 100), WARNING),
        (postgres.history(111, 1 << 20, None, NOW, 30 * 86_400, 100), WARNING),
        (postgres.dead_rows([]), OK),
        (postgres.dead_rows([("timers", 10, 50_000)]), OK),
        (postgres.dead_rows([("timers", 10, 50_001), ("open_runs", 0, 0)]), WARNING),
        (postgres.dead_rows([("timers", 1_000_000, 900_000)]), OK),
        (sqlite.file("duetime.db", 4096), OK),
        (sqlite.integrity(["ok"]), OK),
        (sqlite.integrity(["row 1 missing from index"]), PROBLEM),
        (sqlite.integrity([]), PROBLEM),
        (sqlite.journal_mode("wal"), OK),
        (sqlite.journal_mode("delete"), WARNING),
        (sqlite.free_space(1024 * MIB, 4096 * MIB), OK),
        (sqlite.free_space(1023 * MIB, 4096 * MIB), WARNING),
        (sqlite.free_space(99 * MIB, 4096 * MIB), PROBLEM),
        (sqlite.running("123"), OK),
        (sqlite.running(None), WARNING),
        (sqlite.moved("db/duetime"), WARNING),
        (sqlite.wal_size(256 * MIB), OK),
        (sqlite.wal_size(257 * MIB), WARNING),
    ],
)
def test_each_measurement_gets_a_sentence_and_a_bad_one_gets_advice(check: Check, status: Status):
    assert check.status is status, check
    assert check.found.endswith(".")
    assert bool(check.advice) is (status is not OK)


def test_the_skew_check_names_the_clock_that_is_ahead():
    ahead, behind = postgres.clock_skew(2500, 2), postgres.clock_skew(-2500, 2)
    assert ahead.found == "The database's clock is 2.5 s ahead of this machine's (± 1.0 ms)."
    assert "2.5 s behind this machine's" in behind.found


def test_all_settings_that_are_not_durable_are_named():
    check = postgres.durability({"fsync": "off", "synchronous_commit": "off", "full_page_writes": "on"})
    assert check.found == "fsync and synchronous_commit are off: what was acknowledged may be lost."


def test_connections_are_counted_for_each_node_including_those_outside_the_pool():
    check = postgres.connections(97, 10, 25, 4, is_pooled=False)
    assert check.found == "4 nodes may open 108 connections; the server has room for 97, and 10 are in use."
