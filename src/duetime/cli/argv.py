"""Hides secrets that were typed on the command line from the list of processes, which every user can read.

A script that a node runs could otherwise read the password of the node's database. Only Linux has the list as files,
where this works; and for a moment at start, before any of this runs, the secrets are there to see. So the environment
or duetime.toml is the place for them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

SECRET_OPTIONS = ("--database-url", "--token")
SECRET_SCHEMES = ("postgresql://", "postgres://")  # also where they are no option's value, as in `duetime promote`
_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1
_AFTER_COMMAND = 3  # the number of the field after the command's name, which may hold blanks


def hide_typed_secrets(arguments: Sequence[str]) -> None:
    """Overwrites them where the kernel reads the command line from. The arguments themselves stay as they are."""
    if secrets := list(typed_secrets(arguments)):
        _overwrite(secrets)


def typed_secrets(arguments: Sequence[str]) -> Iterator[str]:
    """What of these arguments nobody else should see."""
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
    import ctypes  # slow to load, and nearly never needed

    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        typed = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        return  # not Linux, or a container without /proc
    start, end = (int(fields[number - _AFTER_COMMAND]) for number in (_ARG_START, _ARG_END))
    if not start or end - start != len(typed) or ctypes.string_at(start, len(typed)) != typed:
        return  # the command line is not where it should be: nothing is written
    for secret in secrets:
        data = os.fsencode(secret)
        at = typed.find(data)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(data))
            at = typed.find(data, at + 1)
