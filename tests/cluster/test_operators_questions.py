"""What an operator asks at night, on a loaded cluster: each documented query, view and route has the answer.

One target hangs, one tenant floods the cluster, some jobs fail, and then a node is killed.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from cluster.database import Postgres
from cluster.operations import FAILING, FLOOD, OPERATOR, SLOW, Operations, Prometheus, operations
from cluster.processes import wait_until
from docs.pages import text

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="PROMETHEUS IS NOT INSTALLED: no documented query is asked"
)


def documented() -> list[str]:
    """Returns the queries of the page, in its order."""
    rows = re.findall(r"^\| .*? \| (.*`.*`.*) \|$", text("docs/how-to/monitor.md"), re.MULTILINE)
    found = [query.replace("\\|", "|") for row in rows for query in re.findall(r"`([^`]+)`", row)]
    return [query for query in found if re.search(r"^duetime_|[({]\S*(duetime_|alertname)", query)]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Operations]:
    with postgres.database() as database, operations(tmp_path_factory.mktemp("night"), database) as made:
        made.load()
        wait_until(lambda: is_seen(made), 60, "the flood and the slow target are seen on both nodes")
        yield made


@pytest.fixture(scope="module")
def prometheus(loaded: Operations) -> Iterator[Prometheus]:
    made = Prometheus(loaded.folder / "prometheus", loaded.metrics_ports)
    yield made
    made.close()


def waiting(rows: list[dict[str, Any]], name: str) -> int:
    """Returns how many executions of a tenant wait."""
    return sum(row["waiting"] for row in rows if row["tenant"] == name)


def is_seen(it: Operations) -> bool:
    now = it.on("a").get("/observability/now").json()
    return waiting(now["tenants"], FLOOD) > 1000 and waiting(now["targets"], SLOW) > 0 and bool(now["circuits"])


def names(answer: list[dict[str, Any]], label: str) -> set[str]:
    return {one["metric"].get(label, "") for one in answer}


@needs_prometheus
def test_each_documented_query_has_an_answer(loaded: Operations, prometheus: Prometheus) -> None:
    loaded.on("a").get("/jobs/none")  # a request that is refused
    asked = documented()
    assert len(asked) > 35
    unanswered = asked.copy()

    def ask() -> bool:
        unanswered[:] = [query for query in unanswered if not prometheus.ask(query)]
        return not unanswered

    try:
        wait_until(ask, 60, "each query has an answer", 0.5)
    except AssertionError:
        pytest.fail(f"no answer: {unanswered}")


@needs_prometheus
def test_the_queries_name_the_tenant_and_the_target(loaded: Operations, prometheus: Prometheus) -> None:
    by_tenant, by_target = (
        next(query for query in documented() if query.startswith("topk") and f"by ({label})" in query)
        for label in ("tenant", "tenant, target")
    )
    answer = wait_until(lambda: prometheus.ask(by_tenant), 60, "tenants are known")
    assert max(answer, key=lambda one: float(one["value"][1]))["metric"]["tenant"] == FLOOD
    origin = loaded.slow.url("")
    wait_until(lambda: origin in names(prometheus.ask(by_target), "target"), 60, "the slow target is named")
    assert {FLOOD, SLOW} <= names(prometheus.ask(by_target), "tenant")
    why = next(query for query in documented() if "type, error_type" in query)
    wait_until(lambda: "http_error" in names(prometheus.ask(why), "error_type"), 60, "the reason of failures is named")


@pytest.mark.parametrize("node", ["a", "b"])
def test_the_view_and_the_routes_name_them_on_each_node(loaded: Operations, node: str) -> None:
    frame = wait_until(lambda: seen_in(loaded, node), 60, "a frame has all of it")
    stages = frame["stages"]
    assert stages["waiting"] > 0, "the ledger's executions of all tenants are counted, not the operator's own"
    assert [one["name"] for one in frame["nodes"]] == ["a", "b"]
    printed = loaded.duetime(node, "top", "--once")
    for name in (FLOOD, SLOW, loaded.slow.url("").removeprefix("http://"), "refused-order", "OPEN"):
        assert name in printed

    client = loaded.on(node)
    rates = client.get("/observability/metrics").json()
    assert rates["scope"] == "cluster"
    assert rates["by_tenant"][FAILING]["5m"]["errors"]["http_error"] > 0
    stats = client.get("/stats").json()
    assert stats["scope"] == "cluster"
    assert stats["tenants"][0]["tenant"] == FLOOD
    assert stats["executions"]["QUEUED"] > 0
    assert stats["late"] >= stats["tenants"][0]["late"] > 0


def seen_in(loaded: Operations, node: str) -> dict[str, Any]:
    """Returns a frame that has the flood, the slow target, the failing jobs and an open circuit, once there is one."""
    frame: dict[str, Any] = json.loads(loaded.duetime(node, "top", "--json"))
    jobs = {job["name"] for job in frame["jobs"]}
    circuits = {(one["tenant"], one["circuit"]) for one in frame["targets"]}
    is_there = (
        frame["tenants"][0]["tenant"] == FLOOD
        and any(one["target"] == loaded.slow.url("") and one["waiting"] for one in frame["targets"])
        and {"refused-order", "flood"} <= jobs
        and (FAILING, "OPEN") in circuits
        and frame["stages"]["waiting"]
        and FAILING in loaded.on(node).get("/observability/metrics").json()["by_tenant"]
    )
    return frame if is_there else {}


def test_no_other_tenant_learns_of_them(loaded: Operations) -> None:
    for path in ("/stats", "/observability/now", "/observability/metrics", "/alerts", "/circuits"):
        answer = loaded.on("a", "steady").get(path)
        assert answer.status == 200
        for name in (FLOOD, SLOW, FAILING, loaded.slow.url("")):
            assert name not in answer.body.decode(), path
    stats = loaded.on("a", "steady").get("/stats").json()
    assert (stats["scope"], stats["tenants"]) == ("tenant", [])


def test_the_operator_sees_no_path_of_another_tenants_target(loaded: Operations) -> None:
    shown = {
        tenant: loaded.on("b", tenant).get("/observability/now").json()["circuits"] for tenant in (OPERATOR, FAILING)
    }
    assert {one["target"] for one in shown[OPERATOR]} == {loaded.fast.url("")}
    assert {one["target"] for one in shown[FAILING]} == {loaded.fast.url("/status/503")}


def test_the_log_tells_which_execution_failed_and_why(loaded: Operations) -> None:
    lines = [json.loads(line) for name in "ab" for line in loaded.node(name).errors().splitlines()]
    failed = next(line for line in lines if line["event"] == "execution failed" and line.get("job") == "refused-order")
    assert (failed["tenant"], failed["http_status"], failed["error_type"]) == (FAILING, 404, "http_error")
    found = loaded.on("b", FAILING).get(f"/executions/{failed['execution_id']}").json()["execution"]
    assert (found["state"], found["job_id"]) == ("FAILED", failed["job_id"])


def test_a_killed_node_is_seen_as_the_page_says(loaded: Operations, request: pytest.FixtureRequest) -> None:
    """The last one: it needs the node."""
    loaded.cluster.kill_node("a")
    client = loaded.on("b")

    def firing() -> list[dict[str, Any]]:
        alerts = client.get("/alerts").json()["alerts"]
        return [one for one in alerts if (one["rule"], one["state"]) == ("node-gone", "firing")]

    (alert,) = wait_until(firing, 60, "the alert of the dead node fires")
    assert (alert["subject"], alert["severity"]) == ("node:a", "critical")
    assert "node-gone" in loaded.duetime("b", "alert", "list")
    top = loaded.duetime("b", "top", "--once")
    assert re.search(r"critical +node-gone +node a was last", top)
    assert re.search(r"a +SILENT \d+ s +0/0 ", top), "it is listed, without figures"
    wait_until(lambda: any("notices" in line["path"] for line in loaded.fast.lines()), 60, "the pager has it")
    jobs = json.loads(loaded.duetime("b", "job", "list", "--tag", "duetime.event=alert.firing", "--json"))["jobs"]
    assert "node-gone" in {job["payload"]["data"].get("rule") for job in jobs}
    assert waiting(client.get("/observability/now").json()["tenants"], FLOOD) > 0, "the other node has the flood"
    if shutil.which("prometheus"):
        prometheus: Prometheus = request.getfixturevalue("prometheus")
        assert prometheus.ask("max(duetime_cluster_nodes)")[0]["value"][1] == "1"
        gone = next(query for query in documented() if "[1h:]" in query)
        assert prometheus.ask(gone)[0]["value"][1] == "1"
        returned = prometheus.ask("sum(increase(duetime_orphans_returned_total[1h]))")
        assert float(returned[0]["value"][1]) > 0
        assert "DuetimeNodeGone" in prometheus.alerts()
    # The stream is resumed from its oldest event, on the node that is left.
    assert {"node.expired", "shards.moved", "alert.firing"} <= loaded.kinds_of_events("b", "alert.firing", OPERATOR)
