"""`duetime audit`: the record of who changed what, and its verification."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from duetime.cli.errors import BadUsage, CommandFailed
from duetime.cli.options import Data, DatabaseUrl, Json, Limit, client_of, storage_settings
from duetime.cli.output import print_failure, print_json, print_line, print_table

INTERRUPTED = 130

app = typer.Typer(no_args_is_help=True, help="The record of who changed what, and its verification.")


@app.command("list")
def list_entries(
    context: typer.Context,
    actor: Annotated[str | None, typer.Option(help="Only changes of this user.")] = None,
    action: Annotated[
        str | None, typer.Option(help="Only this action: job.create, job.change, api_key.revoke, …")
    ] = None,
    resource: Annotated[str | None, typer.Option(help="Only this job, execution or key, by its id.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="At or after this instant.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="Before this instant.")] = None,
    limit: Limit = 20,
    as_json: Json = False,
) -> None:
    """List who changed what, the latest first. For admins, of their own tenant.

    \b
    duetime audit list --actor ann
    duetime audit list --resource 0198c0de-1234-7abc-8def-0123456789ab --json
    """
    wanted = {"actor": actor, "action": action, "resource": resource, "from": since, "to": until}
    entries: list[dict[str, Any]] = []
    for page in client_of(context).pages("/audit", "entries", wanted, limit):
        entries += page["entries"]
    if as_json:
        print_json({"entries": entries})
        return
    rows = [(it["at"], it["actor"], it["via"], it["action"], it["resource"], it["request_id"]) for it in entries]
    print_table(("at", "who", "by", "what", "of", "request"), rows, "no changes yet")


@app.command()
def verify(
    database_url: DatabaseUrl = None,
    data: Data = None,
    save: Annotated[Path | None, typer.Option(help="Write the chains' heads to this file, to keep elsewhere.")] = None,
    against: Annotated[Path | None, typer.Option(help="A file of earlier heads: each must still be there.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", help="Verify this export, or folder of exports, instead of a database."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute every link of the audit's chains, to detect entries that were altered or removed. Nodes may be running.

    Exit code 1 if the audit is not whole. A chain that was cut off at its end, or replaced as a whole, is detected only
    with --against: keep the heads that --save writes in a place where users of the database can't change them.
    Pruned entries are not missing: a chain continues from its checkpoint. They are in files, which --file verifies.
    Save the heads of the files with --save, and verify the database against them.

    \b
    duetime audit verify
    duetime audit verify --against heads.json --save heads.json
    duetime audit verify --file duetime-data/audit
    """
    if file:
        if database_url or data or against:
            raise BadUsage("--file verifies files alone: leave out --database-url, --data and --against")
        done = _verify_files(file)
    else:
        earlier = None if against is None else _read_heads(against)
        done = _run("verify", storage_settings(database_url, data), earlier)
    heads = {str(chain): {"link": link, "hash": hash} for chain, (link, hash) in sorted(done.heads.items())}
    if as_json:
        print_json({"entries": done.entries, "whole": done.broken is None, "broken": done.broken, "heads": heads})
    elif done.broken is None:
        print_line(f"The audit is whole: {_count(done.entries, 'entry', 'entries')} in {_count(len(heads), 'chain')}.")
    if done.broken is not None:
        if not as_json:
            sentence = f"{done.broken[:1].upper()}{done.broken[1:]}"
            print_failure(
                f"the export was altered. In {done.broken}" if file else f"the audit was altered. {sentence}", ()
            )
        raise typer.Exit(1)
    if save is not None:
        _write_heads(save, heads)


@app.command()
def export(
    path: Annotated[Path, typer.Argument(help="The file to write; it must not exist yet.")],
    database_url: DatabaseUrl = None,
    data: Data = None,
    as_json: Json = False,
) -> None:
    """Write the whole audit of the database to a file of JSON lines, one for each link. Nodes may be running.

    `duetime audit verify --file` verifies it without a database.

    \b
    duetime audit export audit.jsonl
    duetime audit verify --file audit.jsonl
    """
    if path.exists():
        raise CommandFailed(f"{path} exists already; name another file, or remove it first")
    done = _run("export", storage_settings(database_url, data), path)
    if as_json:
        print_json({"entries": done.entries, "file": str(path)})
    else:
        print_line(f"Exported {_count(done.entries, 'entry', 'entries')} to {path}.")


def _count(count: int, one: str, many: str = "") -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def _verify_files(paths: list[Path]) -> Any:
    from duetime.audit_files import files_of, verify_files

    files = [found for path in paths for found in files_of(path)]
    if not files:
        raise CommandFailed(f"{paths[0]} holds no exports of the audit (*.jsonl)")
    try:
        return verify_files(files)
    except OSError as error:
        raise CommandFailed(f"{error.filename} can't be read: {error.strerror}") from None


def _run(what: str, settings: Any, argument: Any) -> Any:
    import asyncio

    from duetime.cli.progress import Progress
    from duetime.domain.errors import DuetimeError
    from duetime.operate import verify
    from duetime.store import StoreUnusable

    with Progress("entries") as progress:
        try:
            return asyncio.run(getattr(verify, what)(settings, argument, progress.show))
        except (StoreUnusable, OSError) as error:
            raise CommandFailed(str(error)) from None
        except DuetimeError as error:
            raise CommandFailed(error.message) from None
        except KeyboardInterrupt:
            raise CommandFailed("interrupted; nothing was changed", exit_code=INTERRUPTED) from None


def _read_heads(path: Path) -> dict[int, tuple[int, str]]:
    import json

    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {int(chain): (int(head["link"]), str(head["hash"])) for chain, head in found.items()}
    except OSError as error:
        raise CommandFailed(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadUsage(f"{path} holds no heads, as `duetime audit verify --save` writes them") from None


def _write_heads(path: Path, heads: dict[str, dict[str, Any]]) -> None:
    import json

    try:
        path.write_text(json.dumps(heads, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path} can't be written: {error.strerror}") from None
