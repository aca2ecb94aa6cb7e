"""What a job runs: a webhook, a script, a SQL statement or a Python function; one struct for each type of job.

A notice, which tells people of an alert, is a type of its own: Duetime creates such jobs, users can't.

Types express most bounds; `validation.py` checks the others. `secrets.py` describes which values are secret, and how
they are stored.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A struct that users write: unknown fields are refused."""


Label = Annotated[str, Meta(min_length=1, max_length=255)]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
HttpStatus = Annotated[int, Meta(ge=100, le=599)]
Secret = Annotated[str, Meta(max_length=24_000)]  # encrypted; the values that users send have a smaller bound
Pointers = Annotated[tuple[Annotated[str, Meta(max_length=255)], ...], Meta(max_length=20)]


class HttpRequest(Fields, frozen=True, omit_defaults=True):
    """`body`: a string is sent as it is, any other JSON value as JSON, null not at all.

    `secret`: JSON pointers to secret values in the body, such as /body/token. All header values are secret.
    """

    encrypted_field: ClassVar[str] = "headers"  # all of its values are secret
    marked_field: ClassVar[str] = "body"  # `secret` points into it

    url: Annotated[str, Meta(min_length=1, max_length=2048)]
    method: Method = "POST"
    headers: dict[str, Secret] = {}
    body: Any = None
    expect_status: Annotated[tuple[HttpStatus, ...], Meta(max_length=50)] = ()  # empty: any 2xx
    secret: Pointers = ()


class Script(Fields, frozen=True, omit_defaults=True):
    """Either `argv`, run as it is and never through a shell, or the text of a `script` and its `interpreter`.

    `cwd`: the folder in which it runs; by default an empty one, which is removed after the run.
    """

    encrypted_field: ClassVar[str] = "env"
    marked_field: ClassVar[str] = ""

    argv: Annotated[tuple[Annotated[str, Meta(max_length=8192)], ...], Meta(max_length=256)] = ()
    script: Annotated[str, Meta(max_length=65_536)] = ""
    interpreter: Annotated[str, Meta(max_length=1024)] = ""  # of the script; /bin/sh if none is named
    env: Annotated[dict[Annotated[str, Meta(min_length=1, max_length=255)], Secret], Meta(max_length=100)] = {}
    cwd: Annotated[str, Meta(max_length=4096)] = ""


class SqlQuery(Fields, frozen=True, omit_defaults=True):
    """One statement on a registered connection. `parameters` are bound in order: $1, $2 (PostgreSQL), ? (SQLite)."""

    encrypted_field: ClassVar[str] = ""
    marked_field: ClassVar[str] = "parameters"

    connection: Label  # its name
    statement: Annotated[str, Meta(min_length=1, max_length=65_536)]
    parameters: Annotated[list[Any], Meta(max_length=1000)] = []
    secret: Pointers = ()
    # The server and database of the connection when its secret parameters were sent. Duetime sets it.
    bound_to: Annotated[str, Meta(max_length=2048)] = ""


class PythonCall(Fields, frozen=True, omit_defaults=True):
    """A function by the name that a worker registers it under."""

    encrypted_field: ClassVar[str] = ""
    marked_field: ClassVar[str] = "kwargs"

    function: Label
    args: Annotated[list[Any], Meta(max_length=1000)] = []
    kwargs: Annotated[dict[str, Any], Meta(max_length=1000)] = {}
    secret: Pointers = ()


Severity = Literal["info", "warning", "critical"]
NoticeStatus = Literal["firing", "resolved", "test"]
MOST_CHANNELS = 20  # of one notice
LONGEST_TITLE = 255
LONGEST_TEXT = 4000


class Notice(Fields, frozen=True, omit_defaults=True):
    """A message to people about an alert, for one or more alert channels of the tenant, by name.

    An attempt sends it to each of the channels. If one of them fails, all get it again: `domain.notices` makes a job
    for each channel. `data`: for machines; the body of a webhook has it.
    """

    encrypted_field: ClassVar[str] = ""
    marked_field: ClassVar[str] = ""

    channels: Annotated[tuple[Label, ...], Meta(min_length=1, max_length=MOST_CHANNELS)]
    title: Annotated[str, Meta(min_length=1, max_length=LONGEST_TITLE)]
    body: Annotated[str, Meta(max_length=LONGEST_TEXT)] = ""
    severity: Severity = "warning"
    status: NoticeStatus = "firing"
    dedup_key: Annotated[str, Meta(max_length=255)] = ""  # the same for all notices of one alert
    data: dict[str, Any] = {}


Payload = HttpRequest | Script | SqlQuery | PythonCall | Notice
