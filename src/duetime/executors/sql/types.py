"""PostgreSQL's built-in types by their numbers (OIDs), which are the same on every server."""

from __future__ import annotations

UNKNOWN = 705
# For each of these types, the size of a value limits the time and memory that the driver needs to decode it. Values of
# other types are sent and received as text.
SIMPLE = frozenset({
    16, 17, 18, 19, 20, 21, 23, 25, 26, 28, 29, 114, 142, 700, 701, UNKNOWN, 1042, 1043, 1082, 1083, 1114, 1184, 1186,
    1266, 2278, 2950, 3802,
})  # fmt: skip
_NAMES = {
    16: "bool", 17: "bytea", 18: "char", 19: "name", 20: "int8", 21: "int2", 23: "int4", 25: "text", 26: "oid",
    114: "json", 142: "xml", 600: "point", 601: "lseg", 602: "path", 603: "box", 604: "polygon", 628: "line",
    650: "cidr", 700: "float4", 701: "float8", 718: "circle", 790: "money", 829: "macaddr", 869: "inet",
    1042: "bpchar", 1043: "varchar", 1082: "date", 1083: "time", 1114: "timestamp", 1184: "timestamptz",
    1186: "interval", 1266: "timetz", 1560: "bit", 1562: "varbit", 1700: "numeric", 2278: "void", 2950: "uuid",
    3802: "jsonb", 3904: "int4range", 3906: "numrange", 3908: "tsrange", 3910: "tstzrange", 3912: "daterange",
    3926: "int8range",
}  # fmt: skip
_ARRAYS = {
    143: 142, 199: 114, 651: 650, 1000: 16, 1001: 17, 1003: 19, 1005: 21, 1007: 23, 1009: 25, 1014: 1042, 1015: 1043,
    1016: 20, 1017: 600, 1021: 700, 1022: 701, 1028: 26, 1041: 869, 1115: 1114, 1182: 1082, 1183: 1083, 1185: 1184,
    1187: 1186, 1231: 1700, 1270: 1266, 1561: 1560, 1563: 1562, 2951: 2950, 3807: 3802,
}  # fmt: skip


def name_of(number: int) -> str:
    """Returns a type's name: for an array, its item type and []; for a user-defined or unlisted type, `unknown`."""
    if number in _ARRAYS:
        return f"{_NAMES[_ARRAYS[number]]}[]"
    return _NAMES.get(number, "unknown")
