"""The number of series is bounded, whatever tenants, routes, methods and errors there are."""

from __future__ import annotations

from duetime.domain.errors import DuetimeError, NotFound
from duetime.telemetry import emitted as e
from duetime.telemetry.prometheus.families import MOST_SERIES, Counter, Distribution, Gauge
from duetime.telemetry.prometheus.gauges import MOST_TENANTS
from metrics.scene import Scene

MANY = 10_000


def test_ten_thousand_of_everything_make_a_bounded_number_of_series() -> None:
    scene = Scene()
    before = len(scene.samples())
    for number in range(MANY):
        error = type("Odd", (DuetimeError,), {"code": f"ODD_{number}"})("odd")
        scene.emit(
            e.RequestServed(f"METHOD{number}", f"/route{number}", 200 + number, 0.1), e.JobRefused(error),
            e.NotificationRefused(error), e.TurnFailed(f"service{number}", f"error {number}"),
            e.Read(f"read{number}", 0.1, NotFound("x")), e.GarbageCollected(number, 0.1),
        )  # fmt: skip
    tenants = {f"tenant{number}": number for number in range(MANY)}
    scene.read(
        waiting_on_node={"queued": tenants}, waiting_in_store={"parked": tenants},
        services={f"service{number}": True for number in range(MANY)},
    )  # fmt: skip
    found = scene.samples()
    assert before < 1000
    assert len(found) < before + 15_000
    by_name: dict[str, int] = {}
    for name in found:
        family = name.split("{")[0].removesuffix("_bucket").removesuffix("_count").removesuffix("_sum")
        by_name[family] = by_name.get(family, 0) + 1
    assert by_name["duetime_api_requests_total"] <= 1001
    assert by_name["duetime_job_rejections_total"] <= MOST_SERIES + 1
    assert by_name["duetime_notifications_refused_total"] == 4
    assert by_name["duetime_executions_waiting"] == MOST_TENANTS + 1
    assert sum(value for name, value in found.items() if name.startswith("duetime_api_requests_total")) == MANY


def test_the_largest_tenants_are_named_and_the_rest_is_summed() -> None:
    scene = Scene()
    scene.read(waiting_on_node={"due": {f"t{number}": number for number in range(100)}})
    found = {name: value for name, value in scene.samples().items() if name.startswith("duetime_executions_waiting{")}
    assert found['duetime_executions_waiting{stage="due",tenant="t99"}'] == 99
    assert found['duetime_executions_waiting{stage="due",tenant="other"}'] == sum(range(90))
    assert sum(found.values()) == sum(range(100))


def test_a_tenant_named_other_is_added_to_the_rest() -> None:
    scene = Scene()
    scene.read(waiting_on_node={"due": {"other": 1000} | {f"t{number}": 10 for number in range(20)}})
    assert scene.samples()['duetime_executions_waiting{stage="due",tenant="other"}'] == 1000 + 11 * 10


def test_a_series_beyond_the_bound_is_counted_as_other() -> None:
    counter, gauge = Counter("c", "h.", ["a", "b"], most=2), Gauge("g", "h.", ["a"], most=2)
    distribution = Distribution("d_seconds", "h.", ["a"], exponents=range(2), most=2)
    for name in "pqrst":
        counter.add(1, name, name)
        gauge.set(1, name)
        distribution.of(name).observe(1.0)
    shown = [(tuple(sample.labels.values()), sample.value) for sample in counter.collect().samples]
    assert shown == [(("p", "p"), 1), (("q", "q"), 1), (("other", "other"), 3)]
    assert [sample.labels["a"] for sample in gauge.collect().samples] == ["p", "q", "other"]
    assert [shape.count for shape in distribution.collect().shapes] == [1, 1, 3]


def test_names_of_tenants_are_escaped() -> None:
    scene = Scene()
    name = 'a"b\\c\nd'
    scene.read(waiting_on_node={"due": {name: 5}})
    assert f'duetime_executions_waiting{{stage="due",tenant="{name}"}}' in scene.samples()


def test_methods_and_routes_that_do_not_exist_are_one_series() -> None:
    scene = Scene()
    for number in range(10):
        scene.emit(e.RequestServed(f"METHOD{number}", "", 404, 0.1))
    found = {name: value for name, value in scene.samples().items() if name.startswith("duetime_api_requests_total")}
    assert found == {'duetime_api_requests_total{method="other",route="none",status="404"}': 10}
