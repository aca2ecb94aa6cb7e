"""`duetime keys`: creates keys that encrypt secrets, and encrypts all secrets with the newest key."""

from __future__ import annotations

import sys
from typing import Any

import typer

from duetime.cli.errors import CommandFailed
from duetime.cli.options import Data, DatabaseUrl, Json, storage_settings
from duetime.cli.output import print_failure, print_json, print_line

INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, help="Keys that encrypt the secrets of jobs: create one, rotate them.")


@app.command()
def create(as_json: Json = False) -> None:
    """Print a new key for ENCRYPTION_KEYS. Nothing is stored: keep it like a password.

    \b
    export DUETIME_ENCRYPTION_KEYS=$(duetime keys create)
    duetime keys create --json
    """
    from duetime.vault.key_file import make_key

    key = make_key()
    if as_json:
        print_json({"id": key.id, "key": key.text})
    else:
        sys.stdout.write(f"{key.text}\n")


@app.command()
def rotate(database_url: DatabaseUrl = None, data: Data = None, as_json: Json = False) -> None:
    """Encrypt all secrets with the newest key. Nodes may be running. Secrets in plain text are encrypted, too.

    With a data folder, a new key is created in its file encryption.keys; the previous key stays there until the next
    rotation. With ENCRYPTION_KEYS, its first key is the newest: add a new key at the end on every node, then move it
    to the front on every node, then run this, then remove the old key.

    \b
    duetime keys rotate --data /var/lib/duetime
    duetime keys rotate --database-url postgresql://user@host/duetime
    duetime keys rotate --json
    """
    done = _rotate(storage_settings(database_url, data))
    if as_json:
        print_json(
            {
                "key_id": done.key_id, "encrypted": done.encrypted, "left": done.left, "broken": done.broken,
                "kept": list(done.kept), "removed": list(done.removed),
            }
        )  # fmt: skip
    else:
        print_line(_summary(done))
    if done.left:
        print_failure(
            f"{done.left:,} jobs are not encrypted with {done.key_id}; no key was removed. "
            + ("Change them and send their secrets again:" if done.broken else "Run this again."),
            done.broken.values(),
        )
        raise typer.Exit(1)


def _rotate(settings: Any) -> Any:
    import asyncio

    from duetime.cli.progress import Progress
    from duetime.domain.errors import DuetimeError
    from duetime.operate.rotate import rotate as rotate_keys
    from duetime.ports.vault import KeysUnusable
    from duetime.store import StoreUnusable

    with Progress("jobs") as progress:
        try:
            return asyncio.run(rotate_keys(settings, progress.show))
        except (KeysUnusable, StoreUnusable, OSError) as error:
            raise CommandFailed(str(error)) from None
        except DuetimeError as error:
            raise CommandFailed(f"{error.message}. Run this again to go on.") from None
        except KeyboardInterrupt:
            raise CommandFailed("interrupted; run it again to go on", exit_code=INTERRUPTED) from None


def _summary(done: Any) -> str:
    text = f"{_jobs(done.encrypted)} encrypted again with key {done.key_id}; {done.left:,} left."
    if done.kept:
        text += f" {', '.join(done.kept)} stays until the next rotation, for changes under way."
    if done.removed:
        text += f" Removed: {', '.join(done.removed)}."
    return text


def _jobs(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
