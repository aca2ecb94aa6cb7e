"""Parses the pages of the documentation: code blocks, links, headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
GENERATED = {ROOT / "docs" / "benchmarks.md"}  # `make bench` writes it

_BLOCK = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]+\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(page: Path, info: str) -> list[str]:
    found = _BLOCK.finditer(page.read_text(encoding="utf-8"))
    return [match["code"] for match in found if match["info"].strip() == info]


def links(page: Path) -> Iterator[str]:
    prose = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    yield from (match["target"] for match in _LINK.finditer(prose))


def anchors(page: Path) -> set[str]:
    """Returns the anchors that GitHub gives to the headings."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
