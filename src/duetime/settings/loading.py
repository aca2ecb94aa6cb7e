"""Finds the text of each setting: in flags, in the environment, in duetime.toml, or in its default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duetime.settings import BadSetting
from duetime.settings.names import CONFIG_FILE, PREFIX, check_names
from duetime.settings.setting import Given, Setting
from duetime.settings.table import SETTINGS, Settings


def load(flags: Mapping[str, str | None], environment: Mapping[str, str] = os.environ) -> Settings:
    """Returns settings after all values were parsed. Raises BadSetting."""
    configured = _read_file()
    check_names(configured, environment)
    settings = _find_all(flags, environment, configured)
    for setting in SETTINGS.values():
        getattr(settings, setting.attribute)
    return settings


def load_on_demand(environment: Mapping[str, str] = os.environ) -> Settings:
    """Returns settings that parse each value at its first use, which may raise BadSetting.

    Raises BadSetting if the file can't be read.
    """
    return _find_all({}, environment, _read_file())


def _find_all(
    flags: Mapping[str, str | None], environment: Mapping[str, str], configured: Mapping[str, str]
) -> Settings:
    return Settings({name: _find(setting, flags, environment, configured) for name, setting in SETTINGS.items()})


def _find(
    setting: Setting[Any], flags: Mapping[str, str | None], environment: Mapping[str, str],
    configured: Mapping[str, str],
) -> Given:  # fmt: skip
    name, attribute = setting.name, setting.attribute
    for text, source in (
        (flags.get(name), f"--{attribute.replace('_', '-')}"),
        (environment.get(PREFIX + name), PREFIX + name),
        (environment.get(setting.also_from) if setting.also_from else None, setting.also_from or ""),
        (configured.get(attribute), CONFIG_FILE),
    ):
        if text is not None:
            return Given(text, source)
    return Given(setting.default, "default")


def _read_file() -> dict[str, str]:
    file = Path(CONFIG_FILE)
    if not file.exists():
        return {}
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(f"{file}: {error}") from None
    return {name.lower(): _as_text(value) for name, value in values.items()}


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
