"""Loaded by a node of the tests through PYTHONPATH: resolves the names in the file `NAMES_OF_TESTS`.

The file has a list of answers for each name: they are given in turn, and then always the last one. The system resolves
all other names.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

_system = socket.getaddrinfo
_names: dict[str, list[list[str]]] = json.loads(Path(os.environ["NAMES_OF_TESTS"]).read_text(encoding="utf-8"))
_turn = threading.Lock()


def _getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> list[Any]:
    answers = _names.get(host)
    if answers is None:
        return _system(host, port, *arguments, **options)
    with _turn:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
    return [found for address in answer for found in _system(address, port, *arguments, **options)]


socket.getaddrinfo = _getaddrinfo
