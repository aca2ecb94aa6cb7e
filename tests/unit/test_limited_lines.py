"""A few lines a second of each kind, and a count of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from structlog.testing import capture_logs

from duetime.telemetry.limited_lines import MOST_LINES, MOST_TENANTS, LimitedLines


class Scene:
    def __init__(self) -> None:
        self.now = 100.0
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.lines = LimitedLines(lambda seconds, call: self.calls.append((seconds, call)), lambda: self.now)

    def write(self, *tenants: str, event: str = "ended") -> None:
        self.lines.write(event, tenants, lambda tenant: {"tenant": tenant}, lambda rows: rows)

    def ring(self) -> None:
        ((seconds, call),) = self.calls
        self.calls.clear()
        self.now += seconds
        call()


def written(scene: Scene, act: Callable[[], None]) -> list[dict[str, Any]]:
    with capture_logs() as lines:
        act()
    return list(map(dict, lines))


def test_a_quiet_node_writes_every_line():
    scene = Scene()
    for _ in range(5):
        assert written(scene, lambda: scene.write("a", "b")) == [
            {"event": "ended", "tenant": tenant, "log_level": "info"} for tenant in "ab"
        ]
        scene.now += 1
    assert scene.calls == []


def test_a_burst_is_counted_by_tenant_and_summed_up_once_a_second():
    scene = Scene()
    page = ["a"] * 500 + ["b"] * 300 + ["c"] * 20 + ["d"] * 3
    assert len(written(scene, lambda: scene.write(*page))) == MOST_LINES
    assert written(scene, lambda: scene.write(*page)) == []
    scene.now += 0.4
    assert written(scene, lambda: scene.write(*page)) == []
    assert written(scene, scene.ring) == [
        {
            "event": "ended", "more": 3 * 823 - MOST_LINES, "tenants": f"a {1500 - MOST_LINES}, b 900, c 60",
            "log_level": "info",
        }
    ]  # fmt: skip
    assert len(written(scene, lambda: scene.write(*page))) == MOST_LINES, "then lines again"


def test_kinds_have_limits_of_their_own():
    scene = Scene()
    written(scene, lambda: scene.write(*"a" * 50))
    assert len(written(scene, lambda: scene.write("a", event="other"))) == 1


def test_the_tenants_of_a_count_are_bounded():
    scene = Scene()
    written(scene, lambda: scene.write(*["big"] * 50, *map(str, range(5 * MOST_TENANTS))))
    for _ in range(3):
        scene.write(*map(str, range(5 * MOST_TENANTS)))
    assert len(scene.lines._kinds["ended"].tenants) <= MOST_TENANTS
    (line,) = written(scene, scene.ring)
    assert line["more"] == 40 + 20 * MOST_TENANTS
    assert line["tenants"].startswith("big 40")


def test_what_is_counted_is_written_at_the_end():
    scene = Scene()
    written(scene, lambda: scene.write(*"a" * 50))
    (line,) = written(scene, scene.lines.close)
    assert line["more"] == 50 - MOST_LINES
    assert written(scene, scene.lines.close) == []
