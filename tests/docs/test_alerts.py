"""The tables of docs/reference/alerts.md are those of the code."""

from __future__ import annotations

import re

from docs.pages import text
from duetime.domain.alert_rules import KINDS, AlertRule
from duetime.domain.default_alerts import OF_CLUSTER, OF_TENANTS


def rows(heading: str) -> list[list[str]]:
    section = text("docs/reference/alerts.md").split(f"## {heading}\n")[1].split("\n## ")[0]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in
            re.findall(r"^\| `.*$", section, re.MULTILINE)]  # fmt: skip


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def yes(value: bool) -> str:
    return "yes" if value else ""


def test_exactly_the_kinds_are_documented_with_their_defaults() -> None:
    assert rows("Kinds of rules") == [
        [
            kind, it.measures, it.unit, number(it.threshold), number(it.window_seconds), number(it.for_seconds),
            it.severity, ", ".join(it.scopes), yes(it.is_of_cluster),
        ]
        for kind, it in KINDS.items()
    ]  # fmt: skip


def test_exactly_the_default_rules_are_documented() -> None:
    assert rows("Rules that are on from the start") == [
        [rule.name, rule.kind, number(rule.threshold), number(rule.for_seconds), rule.severity,
         yes(rule.about.is_of_cluster)]
        for rule in (*OF_TENANTS, *OF_CLUSTER)
    ]  # fmt: skip


def test_exactly_the_fields_are_documented() -> None:
    assert [row[0] for row in rows("Fields of a rule")] == [it for it in AlertRule.__struct_fields__ if it != "name"]
