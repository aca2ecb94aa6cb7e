"""A page's columns as the values of a statement.

Most columns of a page hold the same in every row: the tenant, the state, often the instant. That goes alone, as
`:same_…`, and its array is NULL: `unnest` fills a missing column up with NULL, and `coalesce` puts the value in.
To encode an array takes the node 0.5 to 0.9 µs a row, which was most of what it did for a fire or a finish.
"""

from __future__ import annotations

from typing import Any


def columns(**lists: list[Any]) -> dict[str, Any]:
    """Each `name` as `:name` and `:same_name`, one of which is NULL. No list may be empty."""
    values: dict[str, Any] = {}
    for name, column in lists.items():
        is_same = column.count(column[0]) == len(column)
        values[name] = None if is_same else column
        values[f"same_{name}"] = column[0] if is_same else None
    return values
