"""Settings: flag > environment (DUETIME_…) > duetime.toml > default, each with where it came from.

`table.py` declares them, one attribute of `Settings` each. `values.py` reads their texts. `loading.py` finds the texts.
`names.py` and `foreign.py` give advice on names that are not those of settings.

This file imports none of them: `duetime --help` needs only the error.
"""

from __future__ import annotations

__all__ = ["BadSetting"]


class BadSetting(Exception):
    """A setting can't be used. The message names it, where it came from, and what it should look like."""
