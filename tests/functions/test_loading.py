"""Loading of an app by module or by file, and the messages for a missing one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from duetime.functions.loading import AppNotFound, load_app

SOURCE = """
from duetime.functions.registry import Registry
class App:
    registry = Registry()
class Inside:
    app = App()
app, number = App(), 5
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "deep").mkdir()
    for name in ("shop_jobs.py", "deep/other_jobs.py"):
        (tmp_path / name).write_text(SOURCE)
    (tmp_path / "broken_jobs.py").write_text("import no_such_thing_at_all")
    return tmp_path


def test_an_app_is_loaded_by_module_and_by_file(folder: Path):
    app = load_app("shop_jobs:app")
    assert load_app("shop_jobs.py:app") is app
    assert load_app(str(folder / "shop_jobs.py") + ":app") is app
    assert load_app("deep/other_jobs.py:Inside.app").registry is not app.registry


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("shop_jobs", "does not name an app; write it like jobs:app"),
        (":app", "does not name an app"),
        ("shop_jobs:apple", "shop_jobs has no 'apple'"),
        ("shop_jobs:number", "'number' in shop_jobs is a int, which has no functions"),
        ("no_such_module:app", "there is no module 'no_such_module' in "),
        ("no/such/file.py:app", "there is no file /"),
        ("deep/json.py:app", "there is no file /"),
    ],
)
def test_a_missing_app_is_reported(folder: Path, spec: str, sentence: str):
    with pytest.raises(AppNotFound, match=sentence):
        load_app(spec)


def test_a_file_that_would_hide_another_module_is_refused(folder: Path):
    (folder / "json.py").write_text(SOURCE)
    with pytest.raises(AppNotFound, match="there is another module 'json' already; rename the file"):
        load_app("json.py:app")


def test_an_error_during_the_import_is_raised_unchanged(folder: Path):
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all"):
        load_app("broken_jobs:app")
