"""Advice on wrong names of settings."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from duetime.settings import BadSetting
from duetime.settings.foreign import FOREIGN, refusal
from duetime.settings.table import SETTINGS

PREFIX = "DUETIME_"  # of the variables of the environment
CONFIG_FILE = "duetime.toml"

# Other variables with the prefix: those of the command line, and of the environment of scripts.
_OF_OTHER_PARTS = frozenset(
    {"URL", "TOKEN", "JOB_ID", "EXECUTION_ID", "ATTEMPT", "FENCING_TOKEN", "SCHEDULED_AT", "TRIGGER"}
)


def check_names(configured: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Raises BadSetting for an unknown name in the file, and for a setting of another scheduler in either."""
    for name, value in configured.items():
        if name.upper() in FOREIGN:
            _check_foreign(name.upper(), value, CONFIG_FILE)
        elif name.upper() not in SETTINGS:
            raise BadSetting(f"{CONFIG_FILE}: unknown setting '{name}'; {_advice(name)}")
    for name in FOREIGN:
        if (given := environment.get(PREFIX + name)) is not None:
            _check_foreign(name, given, PREFIX + name)


def list_misspelt(environment: Mapping[str, str]) -> list[str]:
    """Returns a sentence for each variable whose name is close to a setting's. Others may belong to other programs."""
    sentences = []
    for given in sorted(environment):
        name = given.removeprefix(PREFIX)
        if name == given or name in SETTINGS or name in FOREIGN or name in _OF_OTHER_PARTS:
            continue
        if near := get_close_matches(name, SETTINGS, n=1, cutoff=0.75):
            sentences.append(f"{given} in the environment is not read: did you mean {PREFIX}{near[0]}?")
    return sentences


def _check_foreign(name: str, value: str, source: str) -> None:
    if (sentence := refusal(name, value)) is not None:
        raise BadSetting(f"{name}: '{value}' (from {source}) can't be used: {sentence}")


def _advice(name: str) -> str:
    near = get_close_matches(name.upper(), SETTINGS, n=1)
    return f"did you mean '{near[0].lower()}'?" if near else "`duetime config show` lists them all"
