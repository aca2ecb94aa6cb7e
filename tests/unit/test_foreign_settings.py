"""Settings of other schedulers: a warning names the setting of Duetime to use instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from duetime.settings import BadSetting
from duetime.settings.loading import load
from duetime.settings.names import FOREIGN, list_misspelt, list_unread
from duetime.settings.table import SETTINGS

NAMED_BY_SEEDS = {
    "JOB_INPROGRESS_TIMEOUT", "RECONCILE_ENABLED", "RECONCILE_THRESHOLD", "METRICS_ENABLED", "DISPATCH_MODE",
    "DB_POLL_INTERVAL", "TICK_INTERVAL", "HTTP_ADDR", "MAX_CONCURRENT_JOBS", "SCHEDULER_POLL_INTERVAL",
}  # fmt: skip


@pytest.fixture
def toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "duetime.toml"


def test_each_foreign_setting_is_unknown_here_and_its_advice_names_known_settings():
    assert set(FOREIGN) == NAMED_BY_SEEDS
    assert not set(FOREIGN) & set(SETTINGS)
    for found in FOREIGN.values():
        assert set(re.findall(r"[A-Z]+(?:_[A-Z]+)+", found.advice)) <= set(SETTINGS)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_setting_with_our_prefix_is_refused_with_advice(toml: Path, name: str):
    with pytest.raises(BadSetting) as refused:
        load({}, {f"DUETIME_{name}": "false"})
    assert str(refused.value) == (
        f"{name}: 'false' (from DUETIME_{name}) can't be used: Duetime has no such setting: {FOREIGN[name].advice}"
    )


@pytest.mark.parametrize("name", ["tick_interval", "TICK_INTERVAL"])
def test_a_foreign_setting_in_the_file_is_refused_with_advice(toml: Path, name: str):
    toml.write_text(f'{name} = "30s"')
    with pytest.raises(BadSetting, match=r"TICK_INTERVAL: '30s' \(from duetime.toml\).*waits for the next due instant"):
        load({}, {})


@pytest.mark.parametrize(
    ("name", "value"), [("RECONCILE_ENABLED", "true"), ("METRICS_ENABLED", "TRUE"), ("DISPATCH_MODE", "db")]
)
def test_a_foreign_setting_that_equals_our_behaviour_is_accepted(toml: Path, name: str, value: str):
    toml.write_text(f'{name.lower()} = "{value}"')
    assert load({}, {f"DUETIME_{name}": value}).list_shown() == load({}, {}).list_shown()


def test_a_foreign_setting_without_our_prefix_only_causes_a_warning(toml: Path):
    environment = {"HTTP_ADDR": ":8080", "RECONCILE_ENABLED": "true", "PATH": "/bin"}
    assert load({}, environment).port == 8080
    assert list_unread(environment) == [
        "HTTP_ADDR in the environment is not read: Duetime has no such setting: set HOST and PORT"
    ]


def test_a_misspelt_variable_causes_a_warning_and_unlike_names_do_not(toml: Path):
    slips = {"DUETIME_ALLOW_PRIVATE_TARGET": "true", "DUETIME_PROT": "9000"}
    others = {
        "DUETIME_PORT": "9000",
        "DUETIME_URL": "http://x",
        "DUETIME_TOKEN": "t",
        "DUETIME_JOB_ID": "1",
        "PROT": "1",
    }
    assert list_misspelt(slips | others) == [
        "DUETIME_ALLOW_PRIVATE_TARGET in the environment is not read: did you mean DUETIME_ALLOW_PRIVATE_TARGETS?",
        "DUETIME_PROT in the environment is not read: did you mean DUETIME_PORT?",
    ]
