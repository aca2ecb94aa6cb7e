"""Settings: flag > environment (DUETIME_…) > duetime.toml > default, each with its source.

`table.py` declares them as attributes of `Settings`. `loading.py` finds their texts, and `values.py` parses them.
`names.py` gives advice on unknown names.

This file imports none of them: `duetime --help` needs only the error.
"""

from __future__ import annotations


class BadSetting(Exception):
    """A setting can't be used. The message has its name, its source and the expected form."""
