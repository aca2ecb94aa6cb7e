"""Shows what a job runs: a request, a script, a SQL statement or a function."""

from __future__ import annotations

import json
import shlex
from typing import Any

SHELL = "/bin/sh"  # the default interpreter

Facts = list[tuple[str, str | None]]


def payload_facts(job: dict[str, Any]) -> Facts:
    """`job`: as in the response of the API."""
    kind, payload = job["type"], job["payload"]
    match kind:
        case "http_request":
            return [("calls", f"{payload['method']} {payload['url']}"), ("headers", ", ".join(payload["headers"]))]
        case "script":
            return _script_facts(payload)
        case "sql_query":
            return [
                ("runs", payload["statement"]),
                ("on", f"connection {payload['connection']}"),
                ("parameters", ", ".join(map(_json, payload["parameters"]))),
            ]
        case "python":
            return [("calls", _call(payload))]
        case _:  # a type that only a newer server has
            return [("runs", f"{kind} {_json(payload)}")]


def _script_facts(payload: dict[str, Any]) -> Facts:
    argv, text = payload["argv"], payload["script"]
    return [
        ("runs", shlex.join(argv) if argv else text),
        ("by", None if argv else payload["interpreter"] or SHELL),
        ("environment", ", ".join(payload["env"])),
        ("in", payload["cwd"]),
    ]


def _call(payload: dict[str, Any]) -> str:
    arguments = [_json(value) for value in payload["args"]]
    arguments += [f"{name}={_json(value)}" for name, value in payload["kwargs"].items()]
    return f"{payload['function']}({', '.join(arguments)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
