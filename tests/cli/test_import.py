from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from duetime.cli import importing


def job(name: str, **fields: Any) -> str:
    spec = {"name": name, "schedule": "0 0 1 1 *", "payload": {"url": "https://example.com/"}, **fields}
    return json.dumps(spec)


def test_every_line_of_a_file_becomes_a_job(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n".join(job(f"import-a-{n}") for n in range(2500)))
    assert "2,500 created, 0 refused" in duetime.ok("job", "import", str(file))
    assert duetime.json("job", "list", "--name", "import-a-", "--limit", "1")["total"] == 2500


def test_refused_lines_are_named_by_their_number_and_the_rest_is_created(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    lines = [job("import-b"), "", "not json", job("import-b", priority=12), "  ", job("import-b")]
    file.write_text("\n".join(lines) + "\n")
    result = duetime("job", "import", str(file))
    assert result.exit_code == 1
    assert "2 created, 2 refused" in result.stdout
    result = duetime("job", "import", str(file), "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert [refused["line"] for refused in answer["refused"]] == [3, 4]
    assert answer["refused"][1]["errors"][0]["pointer"] == "/priority"
    assert len(answer["created"]) == 2


def test_a_long_file_goes_in_several_batches_and_keeps_its_line_numbers(
    duetime: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "BATCH_LINES", 10)
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n".join("broken" if n == 25 else job("import-c") for n in range(1, 36)))
    answer = json.loads(duetime("job", "import", str(file), "--json").stdout)
    assert answer["created_count"] == 34
    assert [refused["line"] for refused in answer["refused"]] == [25]


def test_more_refused_lines_than_the_server_explains_are_counted_all_the_same(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n".join([*["broken"] * 1500, job("import-d"), job("import-d", timezone="Nowhere")]))
    result = duetime("job", "import", str(file))
    assert "1 created, 1,501 refused" in result.stdout
    answer = json.loads(duetime("job", "import", str(file), "--json").stdout)
    assert [refused["line"] for refused in answer["refused"]] == [*range(1, 1501), 1502]
    assert answer["refused"][-1]["error"] == "INVALID_SCHEDULE"


def test_a_line_that_is_too_long_is_refused_without_ending_the_import(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n".join([job("import-d"), job("import-d", description="x" * 1_100_000), job("import-d")]))
    result = duetime("job", "import", str(file))
    assert result.exit_code == 1
    assert "2 created, 1 refused" in result.stdout


def test_a_json_array_is_imported_too(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(f"[{job('import-e')},\n {job('import-e')}]")
    assert duetime.json("job", "import", str(file))["created_count"] == 2
    file.write_text(json.dumps(json.loads(job("import-e")), indent=2))
    assert duetime.json("job", "import", str(file))["created_count"] == 1
    file.write_text(f"{job('import-e')}\n{job('import-e')}\n")
    assert duetime.json("job", "import", str(file))["created_count"] == 2


def test_an_empty_file_creates_nothing(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n\n")
    assert "0 created, 0 refused" in duetime.ok("job", "import", str(file))


def test_a_second_import_of_jobs_with_keys_creates_nothing_twice(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text("\n".join(job("import-f", key=f"import-f-{n}") for n in range(3)))
    duetime.ok("job", "import", str(file))
    result = duetime("job", "import", str(file))
    assert result.exit_code == 1
    assert "0 created, 3 refused" in result.stdout
    assert "import-f-0" in result.stdout


def test_a_missing_file_exits_2(alone: Any) -> None:
    result = alone("job", "import", "nowhere.ndjson")
    assert result.exit_code == 2
    assert "nowhere.ndjson: No such file or directory" in result.stderr


def test_an_import_without_a_server_exits_1(alone: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    file.write_text(job("import-g"))
    result = alone("job", "import", str(file))
    assert result.exit_code == 1
    assert "no Duetime at http://127.0.0.1:9; start one with: duetime serve" in result.stderr


def test_promises_are_imported_and_a_wrong_one_is_named(duetime: Any, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    good = job("import-slo", slo={"success": 99}, expect_every="25h")
    file.write_text("\n".join([good, job("import-slo", slo={"window": "30d"}), job("import-slo", expect_every="0s")]))
    answer = json.loads(duetime("job", "import", str(file), "--json").stdout)
    assert [one["errors"][0]["pointer"] for one in answer["refused"]] == ["/slo", "/expect_every"]
    (made,) = answer["created"]
    shown = duetime.json("job", "show", made)
    assert (shown["slo"], shown["expect_every"]) == (
        {"lateness_seconds": None, "on_time": 99, "success": 99, "window": "30d"},
        "25h",
    )
