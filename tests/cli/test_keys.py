"""`duetime keys`: next to a running node, on a folder, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duetime.domain import commands as c
from duetime.domain.encryption_keys import Key, parse_keys
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import decrypt_payload, encrypt_job, key_id_of, list_values
from duetime.operate.rotate import FIRST_ID
from duetime.store.sqlite import SqliteStore
from duetime.vault.aes import AesVault
from duetime.vault.key_file import KeyFile, make_key
from patience import PATIENCE_SECONDS
from samples import NOW, URL, new_job, spec
from served import served
from store.postgres_server import fresh_database, patient_store

SECRET = "Bearer s3cret-of-ann"
PAYLOAD = HttpRequest(URL, headers={"Authorization": SECRET}, body={"pin": 4711}, secret=("/body/pin",))


async def fill(store: Any, *vaults: AesVault | None) -> None:
    """Adds a job for each vault, encrypted with it. None: in plain text, as an earlier version stored it."""
    await store.start()
    try:
        for vault in vaults:
            job = new_job(spec(payload=PAYLOAD))
            assert await store.apply([c.CreateJobs(NOW, (job if vault is None else encrypt_job(job, vault),))]) == [
                None
            ]
    finally:
        await store.stop()


async def read(store: Any, vault: AesVault) -> tuple[set[str | None], list[HttpRequest]]:
    """Returns the ids of the keys in use, and all decrypted payloads."""
    await store.start()
    try:
        specs = await store.list_specs(FIRST_ID, 1000)
    finally:
        await store.stop()
    ids = {key_id_of(value) for *_, spec in specs for value in list_values(spec.payload)}
    opened = [
        decrypt_payload(spec.payload, lambda text, own=(tenant, job_id): vault.decrypt(*own, text))
        for job_id, tenant, _, spec in specs
    ]
    return ids, opened


def env_of(*keys: Key) -> dict[str, str]:
    return {"DUETIME_ENCRYPTION_KEYS": ",".join(key.text for key in keys)}


def test_create_prints_a_key_that_can_be_used(alone: Any) -> None:
    first, second = alone.ok("keys", "create"), alone.json("keys", "create")
    (key,) = parse_keys([first])
    assert len(key.secret) == 32
    assert parse_keys([second["key"]])[0].id == second["id"] != key.id


def test_rotate_encrypts_all_of_a_folder_again(alone: Any, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    vault = AesVault(file=KeyFile(folder))
    vault.start()
    first = vault.key_id
    asyncio.run(fill(SqliteStore(folder), vault, vault, None))
    done = alone.json("keys", "rotate", "--data", "data")
    counts = {"encrypted": 3, "left": 0, "broken": {}, "kept": [first], "removed": []}
    assert done == {"key_id": KeyFile(folder).list_keys()[0].id, **counts}
    ids, opened = asyncio.run(read(SqliteStore(folder), AesVault(file=KeyFile(folder))))
    assert (ids, opened) == ({done["key_id"]}, [PAYLOAD] * 3)
    output_text = alone.ok("keys", "rotate", "--data", "data")
    assert output_text.startswith("3 jobs encrypted again with key k")
    assert f"; 0 left. {done['key_id']} stays until the next rotation" in output_text
    assert output_text.rstrip().endswith(f"Removed: {first}.")
    assert b"s3cret" not in b"".join(file.read_bytes() for file in folder.glob("duetime.db*"))


def test_rotate_with_the_setting_encrypts_with_its_first_key_and_makes_no_file(alone: Any, tmp_path: Path) -> None:
    old, newest = make_key(), make_key()
    asyncio.run(fill(SqliteStore(tmp_path / "data"), AesVault((old,)), None))
    result = alone("keys", "rotate", "--data", "data", "--json", env=env_of(newest, old))
    assert result.exit_code == 0, result.stderr
    done = json.loads(result.stdout)
    assert (done["key_id"], done["encrypted"], done["left"]) == (newest.id, 2, 0)
    assert asyncio.run(read(SqliteStore(tmp_path / "data"), AesVault((newest,)))) == ({newest.id}, [PAYLOAD] * 2)
    assert not (tmp_path / "data" / "encryption.keys").exists()


def test_a_secret_that_cannot_be_decrypted_is_named_without_its_content_and_exits_1(alone: Any, tmp_path: Path) -> None:
    lost = make_key()
    asyncio.run(fill(SqliteStore(tmp_path / "data"), AesVault((lost,)), None))
    result = alone("keys", "rotate", "--data", "data")
    assert result.exit_code == 1
    assert result.stdout.startswith("1 job encrypted again")
    assert "1 left" in result.stdout
    assert f"was encrypted with the key {lost.id}, which this node does not have" in result.stderr.replace("\n", " ")
    assert "s3cret" not in result.stdout + result.stderr


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (["--data", "nowhere"], {}, "holds no duetime.db"),
        (["--database-url", "postgresql://u:p4ss@127.0.0.1:9/x"], {}, "there are no ENCRYPTION_KEYS"),
        (["--database-url", "postgresql://u:p4ss@127.0.0.1:9/x"], env_of(make_key()), "can't be used"),
    ],
)
def test_a_failure_is_one_sentence_and_exits_1(alone: Any, args: list[str], env: Any, said: str) -> None:
    result = alone("keys", "rotate", *args, env=env)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert "p4ss" not in result.stderr
    assert not Path("nowhere").exists()


def test_a_bad_key_in_the_setting_is_bad_usage_and_not_repeated(alone: Any) -> None:
    result = alone("keys", "rotate", env={"DUETIME_ENCRYPTION_KEYS": "a:s3cret"})
    assert result.exit_code == 2
    assert "ENCRYPTION_KEYS" in result.stderr
    assert "s3cret" not in result.stderr


@pytest.mark.slow
def test_rotate_on_postgresql(alone: Any) -> None:
    old, newest = make_key(), make_key()

    async def on(url: str, deed: Callable[..., Any], *args: Any) -> Any:
        return await deed(patient_store(url), *args)

    with asyncio.Runner() as runner:
        database = fresh_database()
        url = runner.run(database.__aenter__())
        try:
            runner.run(on(url, fill, AesVault((old,)), None))
            result = alone("keys", "rotate", "--database-url", url, "--json", env=env_of(newest, old))
            assert result.exit_code == 0, result.stderr
            done = json.loads(result.stdout)
            assert (done["key_id"], done["encrypted"], done["left"]) == (newest.id, 2, 0)
            assert runner.run(on(url, read, AesVault((newest,)))) == ({newest.id}, [PAYLOAD] * 2)
        finally:
            runner.run(database.__aexit__(None, None, None))


@pytest.mark.slow
def test_rotate_works_next_to_a_running_node(alone: Any, tmp_path: Path) -> None:
    with served(tmp_path) as url:
        alone.url = url
        flags = ("--schedule", "0 0 1 1 *", "--url", "https://example.com/", "--header", f"Authorization: {SECRET}")
        job_id = alone.json("job", "create", "--name", "before", *flags)["job_id"]
        done = alone.json("keys", "rotate", "--data", "data")
        assert (done["encrypted"], done["left"]) == (1, 0)
        alone.json("job", "create", "--name", "after", *flags)  # the node encrypts with the new key
        assert alone.json("job", "show", job_id)["payload"]["headers"] == {"Authorization": "********"}
    ids, opened = asyncio.run(read(SqliteStore(tmp_path / "data"), AesVault(file=KeyFile(tmp_path / "data"))))
    assert ids == {done["key_id"]}
    assert [payload.headers for payload in opened] == [{"Authorization": SECRET}] * 2


@pytest.mark.slow
def test_a_node_does_not_start_on_keys_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "encryption.keys").write_text("k1:s3cret")
    command = [sys.executable, "-m", "duetime.cli.main", "serve", "--port", "0", "--data", "data"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert ended.returncode == 1
    assert "duetime: data/encryption.keys can't be used: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "s3cret" not in ended.stdout + ended.stderr
