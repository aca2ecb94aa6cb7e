"""What is shipped for monitoring is true: each metric that is named exists, with the labels that are named."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.pages import ROOT, anchors, text
from docs.telemetry_tables import PAGE, TABLES, rewritten, section, shown_name
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import AnyFamily
from duetime.telemetry.prometheus.metrics import Metrics
from patience import PATIENCE_SECONDS
from served import served

RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "duetime.json"
FAMILIES: dict[str, AnyFamily] = {shown_name(family): family for family in Metrics(Telemetry()).families()}
NAMES = ("how-to/monitor.md", "how-to/prometheus-alerts.md", "reference/telemetry.md")
PAGES = [ROOT / "docs" / name for name in NAMES]
SEEDS_NAMES = re.compile(r"`((?:scheduled_db|easycron)_[a-z_]+)`")
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
ADDED = {"instance", "le", "job"}  # labels that Prometheus, or the form of a histogram, adds


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def queries() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    for row in re.findall(r"^\| .*? \| (.*`.*`.*) \|$", text("docs/how-to/monitor.md"), re.MULTILINE):
        yield from (query.replace("\\|", "|") for query in re.findall(r"`([^`]+)`", row) if "duetime_" in query)


def family_of(name: str) -> AnyFamily | None:
    """Returns the family of a series: that of a histogram has three."""
    if name in FAMILIES:
        return None if FAMILIES[name].kind == "histogram" else FAMILIES[name]
    found = FAMILIES.get(re.sub(r"_(bucket|sum|count)$", "", name))
    return found if found is not None and found.kind == "histogram" else None


@pytest.mark.parametrize("name", TABLES)
def test_the_reference_has_exactly_the_events_and_metrics_of_the_code(name: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    how = "run: python tests/docs/telemetry_tables.py"
    assert section(page, name).splitlines() == TABLES[name](), how
    assert rewritten(page) == page, how


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_metrics_and_labels_that_exist(query: str) -> None:
    names = set(re.findall(r"\b(?:duetime|process)_[a-z_]+", query))
    assert names
    for name in names - PROCESS:
        assert family_of(name) is not None, name
    for name, matchers in re.findall(r"(duetime_[a-z_]+)\{([^}]*)\}", query):
        family = family_of(name)
        assert family is not None
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) <= {*family.labels, *ADDED}, query
    for labels in re.findall(r"by \(([^)]*)\)", query):
        known = set().union(*(family.labels for name in names if (family := family_of(name)) is not None)) | ADDED
        assert set(re.findall(r"\w+", labels)) <= known, query
    assert all(query.count(opening) == query.count(closing) for opening, closing in ("()", "{}", "[]"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_metrics_that_exist(page: Path) -> None:
    for name in set(re.findall(r"\bduetime_[a-z_]*[a-z]\b(?!…|_)", page.read_text(encoding="utf-8"))):
        is_a_histogram = name in FAMILIES and FAMILIES[name].kind == "histogram"
        assert is_a_histogram or family_of(name) is not None, name


def test_every_alert_has_a_page_that_says_the_same() -> None:
    page = text("docs/how-to/prometheus-alerts.md")
    documented = re.findall(r"^### (\w+)\n(.*?)\n```promql\n(.*?)\n```", page, re.MULTILINE | re.DOTALL)
    assert [name for name, _, _ in documented] == [rule["alert"] for rule in rules()]
    for (name, severity, query), rule in zip(documented, rules(), strict=True):
        assert query == rule["expr"], name
        assert severity.lower().startswith(rule["labels"]["severity"]), name
        assert page.split(f"### {name}\n")[1].split("###")[0].count("**") == 6, f"{name}: means, look at, do"


def test_every_alert_has_what_its_reader_needs() -> None:
    targets = anchors(ROOT / "docs/how-to/prometheus-alerts.md")
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 25
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["annotations"]["summary"]
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (ROOT / path).exists()
        assert anchor in targets


@pytest.mark.parametrize(
    ("asked", "alert"),
    [
        ("buffer saturation > 0.8", "DuetimeWriterBusy"),
        ("buffer saturation > 0.9", "DuetimeWriterFull"),
        ("orphaned executions", "DuetimeOrphans"),
        ("execution latency p99 > 120 s", "DuetimeEndToEndSlow"),
        ("events dropped", "DuetimeWritesFail"),
        ("circuit open", "DuetimeCircuitOpen"),
        ("tick errors", "DuetimeTimerFails"),
        ("more than 10 % failures in 5 minutes", "DuetimeFailures"),
        ("scheduler stopped", "DuetimeDown"),
        ("database unavailable", "DuetimeDatabaseDown"),
        ("more than 100 due jobs not executing", "DuetimeQueueBuildup"),
        ("utilization over 80 %", "DuetimeCapacity80"),
        ("rejections", "DuetimeJobsRejected"),
    ],
)
def test_the_alerts_that_other_schedulers_have_exist(asked: str, alert: str) -> None:
    assert alert in {rule["alert"] for rule in rules()}, asked


def test_the_metrics_of_other_schedulers_are_mapped() -> None:
    page = text("docs/reference/telemetry.md").split("## Names in other schedulers")[1]
    asked = {
        "queue_memory_usage_bytes", "queue_memory_limit_bytes", "queue_memory_utilization_percent", "queue_job_count",
        "queue_job_limit", "job_rejections_total", "eventbus_buffer_saturation", "eventbus_buffer_size",
        "eventbus_emit_errors_total", "orphaned_executions", "execution_latency_seconds",
        "dispatcher_events_in_flight", "dispatcher_delivery_outcomes_total", "scheduler_tick_errors_total",
    }  # fmt: skip
    assert {re.sub("^(scheduled_db|easycron)_", "", name) for name in SEEDS_NAMES.findall(page)} == asked


def test_the_dashboard_is_whole() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    rows = [panel["title"] for panel in dashboard["panels"] if panel["type"] == "row"]
    assert rows == ["Now", "Lateness", "Queues by stage", "Tenants", "Targets", "Store", "API", "Nodes"]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells), f"{panel['title']} covers another panel"
        taken |= cells


def test_a_metric_that_does_not_exist_is_noticed() -> None:
    assert family_of("duetime_executions_ended_total") is not None
    assert family_of("duetime_executions_ended") is None
    assert family_of("duetime_execution_lateness_seconds_bucket") is not None
    assert family_of("duetime_execution_lateness_seconds") is None, "a query needs one of its series"
    assert family_of("duetime_shards_owned_sum") is None


# With the real Prometheus, where it is installed (Debian: apt install prometheus)

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="PROMTOOL IS NOT INSTALLED: the rules are only parsed"
)
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="PROMETHEUS IS NOT INSTALLED: nothing is scraped"
)


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(RULES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@needs_prometheus
@pytest.mark.slow
@pytest.mark.parametrize("features", [[], ["--enable-feature=native-histograms"]], ids=["classic", "native"])
def test_a_real_prometheus_scrapes_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, features: list[str]) -> None:
    metrics, web = free_port(), free_port()
    monkeypatch.setenv("DUETIME_METRICS_PORT", str(metrics))
    scrape = {"job_name": "duetime", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{metrics}"]}]}
    config = {"rule_files": [str(RULES)], "scrape_configs": [scrape]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
        f"--web.listen-address=127.0.0.1:{web}", *features,
    ]  # fmt: skip
    with served(tmp_path / "node"), (tmp_path / "prometheus.log").open("wb") as log:
        prometheus = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        try:
            assert _asked(web, "duetime_store_up")[0]["value"][1] == "1"
            assert _asked(web, "histogram_count(duetime_store_commit_seconds)" if features else "duetime_store_up")
            with urllib.request.urlopen(f"http://127.0.0.1:{web}/api/v1/rules", timeout=PATIENCE_SECONDS) as answer:
                groups = json.load(answer)["data"]["groups"]
            assert sum(len(group["rules"]) for group in groups) == len(rules())
        finally:
            prometheus.terminate()
            prometheus.wait(PATIENCE_SECONDS)


def _asked(port: int, query: str) -> list[dict[str, Any]]:
    """Returns the answer to a query, once there is one."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            if found:
                return found
        except OSError:
            found = []  # it is not up yet
        time.sleep(0.2)
    raise AssertionError(f"Prometheus has no answer to {query}")
