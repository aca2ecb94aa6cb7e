"""Links resolve, named files exist, and the code accepts the examples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from docs.pages import GENERATED, PAGES, ROOT, anchors, blocks, links, text
from duetime.domain.authoring import new_job
from duetime.domain.job import HttpJob
from duetime.executors.headers import signature, signing_keys

NOW = 1_767_225_600_000


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_has_a_target(page: Path) -> None:
    for link in links(page):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() or target in GENERATED, f"{link} leads nowhere"
        if anchor:
            assert anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_files_exist(page: Path) -> None:
    for name in re.findall(r"`((?:tests|src|docs|bench|engine|domain|ports|api)/[\w/.-]+)`", page.read_text()):
        places = (ROOT / name, ROOT / "src" / "duetime" / name)
        assert any(place.exists() or place in GENERATED for place in places), f"{name} is not there"


def test_every_page_is_in_the_index() -> None:
    index = {(ROOT / "docs" / link).resolve() for link in links(ROOT / "docs" / "README.md")}
    for page in PAGES:
        if page.parent.parent == ROOT / "docs" and page.parent.name != "decisions":
            assert page in index, f"docs/README.md does not name {page.name}"


def test_decisions_have_numbers_and_uniform_titles() -> None:
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        assert page.read_text().startswith(f"# {page.name[:4]}: ")


def test_the_job_in_the_api_page_is_valid() -> None:
    example = next(json.loads(code) for code in blocks(ROOT / "docs/reference/api.md", "json"))
    new_job(msgspec.convert(example, HttpJob), "default", "local", NOW, bytes(10))
    spelt_out = set(example) | {"delays"}
    assert spelt_out >= set(HttpJob.__struct_fields__), "a field of a job is missing from the example"


def test_fragments_of_jobs_in_the_pages_are_valid() -> None:
    whole = {"name": "x", "schedule": "@daily", "payload": {"url": "https://example.com/"}}
    for name in ("how-to/catch-up-and-overlap.md", "how-to/import-many-jobs.md", "reference/schedules.md"):
        fragments = "".join(blocks(ROOT / "docs" / name, "json")).splitlines()
        assert fragments
        for line in fragments:
            new_job(msgspec.convert({**whole, **json.loads(line)}, HttpJob), "default", "local", NOW, bytes(10))


def test_schedules_in_the_reference_are_valid() -> None:
    table = text("docs/reference/schedules.md").split("## Cron")[0]
    wholes = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)[1:]
    assert "every 5m" in wholes
    for schedule in wholes:
        spec = {"name": "x", "schedule": schedule, "payload": {"url": "https://example.com/"}}
        new_job(msgspec.convert(spec, HttpJob), "default", "local", NOW, bytes(10))


def test_the_receivers_check_accepts_our_signature_and_no_other() -> None:
    (code,) = blocks(ROOT / "docs/how-to/webhook-receiver.md", "python run")
    names: dict[str, object] = {}
    exec(code, names)
    is_genuine = names["is_genuine"]
    assert callable(is_genuine)
    new, old = "whsec_bmV3", "whsec_b2xk"
    headers = {"webhook-id": "an-id", "webhook-timestamp": "1000"}
    headers["webhook-signature"] = signature(signing_keys((new, old)), "an-id", 1000, b"body")
    assert is_genuine(new, headers, b"body", now=1100)
    assert is_genuine(old, headers, b"body", now=1100)
    assert not is_genuine("whsec_b3RoZXI=", headers, b"body", now=1100)
    assert not is_genuine(new, headers, b"another", now=1100)
    assert not is_genuine(new, headers, b"body", now=2000)


def test_the_page_on_threats_names_every_attack_that_is_tested() -> None:
    page = (ROOT / "docs/explanation/threats.md").read_text()
    named = set(re.findall(r"`(test_\w+\.py)`", page))
    assert named == {path.name for path in (ROOT / "tests" / "security").glob("test_*.py")}
