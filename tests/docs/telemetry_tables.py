"""The tables of docs/reference/telemetry.md, from the code. `python tests/docs/telemetry_tables.py` rewrites them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from duetime.telemetry import emitted
from duetime.telemetry.hub import Telemetry
from duetime.telemetry.prometheus.families import AnyFamily
from duetime.telemetry.prometheus.metrics import Metrics

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "telemetry.md"
UNITS = ("seconds", "bytes", "percent", "ratio", "batches", "commands", "attempts")


def kinds() -> list[type[emitted.Emitted]]:
    return [it for it in vars(emitted).values() if isinstance(it, type) and issubclass(it, emitted.Emitted)][1:]


def shown_name(family: AnyFamily) -> str:
    return f"{family.name}_total" if family.kind == "counter" else family.name


def unit(family: AnyFamily) -> str:
    words = family.name.split("_")
    return next((name for name in UNITS if name in words), "")


def events() -> list[str]:
    rows = ["| event | emitted by | fields |", "|---|---|---|"]
    for kind in kinds():
        what = " ".join((kind.__doc__ or "").split())
        fields = ", ".join(f"`{name}`" for name in kind.__struct_fields__)
        rows.append(f"| `{kind.__name__}` | {what} | {fields} |")
    return rows


def metrics() -> list[str]:
    rows = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    for family in sorted(Metrics(Telemetry()).families(), key=lambda family: family.name):
        labels = ", ".join(f"`{name}`" for name in family.labels)
        rows.append(f"| `{shown_name(family)}` | {family.kind} | {labels} | {unit(family)} | {family.help} |")
    return rows


TABLES = {"events": events, "metrics": metrics}


def section(page: str, name: str) -> str:
    found = re.search(f"<!-- {name} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert found is not None, f"docs/reference/telemetry.md has no table of {name}"
    return found[1]


def rewritten(page: str) -> str:
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", "\n<!-- end -->"
        page = page.replace(f"{begin}{section(page, name)}{end}", begin + "\n".join(table()) + end)
    return page


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
