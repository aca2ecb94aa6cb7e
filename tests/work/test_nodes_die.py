"""Scripts and statements end with a killed node, and run again after its restart."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator

import pytest

from cluster.database import Postgres
from cluster.processes import Server, wait_until
from executors.script.watching import alive, on_linux
from work.workers import Asker

pytestmark = [pytest.mark.slow, on_linux]

AT_ONCE = {"delays": [0, 0, 0]}

# It daemonises one child, starts another, and prints that; the second attempt only prints that it is the second.
SCRIPT = """
echo "attempt $DUETIME_ATTEMPT of $DUETIME_EXECUTION_ID"
[ "$DUETIME_ATTEMPT" -gt 1 ] && exit 0
setsid sh -c 'sleep 600' > /dev/null 2>&1 &
sleep 600 &
echo started
wait
"""


@pytest.mark.skipif(shutil.which("setsid") is None, reason="there is no setsid")
def test_a_script_ends_with_its_node_and_runs_again_after_it(server: Server, ask: Asker) -> None:
    server.start()
    mark = f"MARK_{secrets.token_hex(8)}"
    job_id = ask.script(SCRIPT, env={mark: "1"}, timeout_seconds=600, retry_policy=AT_ONCE)
    execution_id = ask.wait_for_run(job_id)
    wait_until(lambda: "started" in ask.logs(execution_id), 20, "the script has started its children")
    wait_until(lambda: len(alive(mark)) >= 3, 10, "they are seen")
    server.kill()
    wait_until(lambda: not alive(mark), 10, "nothing of the script is left")
    server.start()
    ended = ask.wait_for_end(job_id)
    assert (ended["state"], ended["attempt"], ended["execution_id"]) == ("COMPLETED", 2, execution_id)
    assert [one["error_type"] for one in ask.attempts(execution_id)] == ["lease_lost", None]
    log = ask.logs(execution_id)
    assert log.index(f"attempt 1 of {execution_id}") < log.index(f"attempt 2 of {execution_id}")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    postgres = Postgres()
    yield postgres
    postgres.close()


def test_a_statement_ends_with_its_node_and_runs_again_after_it(server: Server, ask: Asker, postgres: Postgres) -> None:
    with postgres.database() as database:
        server.start()
        database.run("CREATE TABLE begun (at timestamptz DEFAULT clock_timestamp())")
        assert server.client.put("/connections/reports", {"url": database.url}).status == 200
        # The first attempt sleeps; its writes are rolled back with it, so the second would sleep as well: it continues
        # because of a row that the test commits.
        statement = "SELECT pg_sleep(CASE WHEN (SELECT count(*) FROM begun) = 0 THEN 600 ELSE 0 END), 'duetime-test'"
        job_id = ask.create(
            "sql_query", {"connection": "reports", "statement": statement}, timeout_seconds=600, retry_policy=AT_ONCE
        )
        running = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%duetime-te' || 'st%'"
        wait_until(lambda: database.rows(running), 20, "the statement runs", 0.1)
        execution_id = ask.execution(job_id)["execution_id"]
        server.kill()
        wait_until(lambda: not database.rows(running), 20, "the statement is gone", 0.1)
        database.run("INSERT INTO begun DEFAULT VALUES")
        server.start()
        ended = ask.wait_for_end(job_id)
        assert (ended["state"], ended["attempt"], ended["execution_id"]) == ("COMPLETED", 2, execution_id)
        assert [one["error_type"] for one in ask.attempts(execution_id)] == ["lease_lost", None]
        server.kill()
