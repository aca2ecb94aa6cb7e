"""Hides secrets on the command line from the list of processes, which every user of the machine can read.

Otherwise a script that a node runs could read the password of the node's database. This works on Linux only, and not
for the first moment of the process: the environment and duetime.toml are safer places for secrets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

SECRET_OPTIONS = ("--database-url", "--token")
SECRET_SCHEMES = ("postgresql://", "postgres://")  # also as an argument without an option
_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1
_AFTER_COMMAND = 3  # the field after the command's name, which may contain spaces


def hide_typed_secrets(arguments: Sequence[str]) -> None:
    """Overwrites the secrets in the memory that the kernel shows as the command line. `arguments` do not change."""
    if secrets := list(typed_secrets(arguments)):
        _overwrite(secrets)


def typed_secrets(arguments: Sequence[str]) -> Iterator[str]:
    """Yields the secrets among these arguments."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        option, equals, value = argument.partition("=")
        if equals and option in SECRET_OPTIONS:
            secret = value
        elif before in SECRET_OPTIONS or argument.startswith(SECRET_SCHEMES):
            secret = argument
        else:
            continue
        scheme, separator, rest = secret.partition("://")
        if hidden := rest if separator and f"{scheme}://" in SECRET_SCHEMES else secret:
            yield hidden


def _overwrite(secrets: Sequence[str]) -> None:
    import ctypes  # slow to import, and rarely needed

    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        typed = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        return  # not Linux, or a container without /proc
    start, end = (int(fields[number - _AFTER_COMMAND]) for number in (_ARG_START, _ARG_END))
    if not start or end - start != len(typed) or ctypes.string_at(start, len(typed)) != typed:
        return  # the command line is not where the kernel says: write nothing
    for secret in secrets:
        data = os.fsencode(secret)
        at = typed.find(data)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(data))
            at = typed.find(data, at + 1)
