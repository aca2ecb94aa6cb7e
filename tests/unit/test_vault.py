"""Keys and encrypted texts: their tenant and job, their key, and a key file that changes while a node runs."""

from __future__ import annotations

import os
import stat
import threading
from base64 import b64encode
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from duetime.domain.encryption_keys import Key, parse_keys
from duetime.ports.vault import DecryptionFailed, KeysUnusable, NoVault
from duetime.settings import BadSetting
from duetime.settings.loading import load
from duetime.settings.table import Settings
from duetime.vault.aes import AesVault, open_vault
from duetime.vault.key_file import FILE_NAME, KeyFile, make_key

TEXT = "Bearer s3cret-of-ann"
ACME, JOB = "acme", "019b76da-a800-7000-8000-000000000001"


@pytest.fixture
def key() -> Key:
    return make_key()


@pytest.fixture
def vault(key: Key) -> AesVault:
    return AesVault((key,))


class TestEncryption:
    def test_an_encrypted_text_names_its_key_and_reveals_nothing_of_the_content(self, vault, key):
        encrypted = vault.encrypt(ACME, JOB, TEXT)
        assert encrypted.startswith(f"encrypted:1:{key.id}:")
        assert "s3cret" not in encrypted
        assert vault.decrypt(ACME, JOB, encrypted) == TEXT
        assert encrypted.isascii()
        assert encrypted.isprintable()

    @pytest.mark.parametrize(
        ("tenant", "job_id"),
        [("other", JOB), (ACME, JOB[:-1] + "2"), ("", ACME + JOB), (ACME + JOB, ""), (ACME + JOB[0], JOB[1:])],
    )
    def test_a_text_is_decrypted_only_for_its_own_tenant_and_job(self, vault, tenant, job_id):
        encrypted = vault.encrypt(ACME, JOB, TEXT)
        with pytest.raises(DecryptionFailed, match="does not belong to this job") as broken:
            vault.decrypt(tenant, job_id, encrypted)
        assert "s3cret" not in str(broken.value)

    def test_another_key_with_the_same_id_does_not_decrypt_a_text(self, vault, key):
        with pytest.raises(DecryptionFailed, match="is not the key that it had"):
            AesVault((Key(key.id, os.urandom(32)),)).decrypt(ACME, JOB, vault.encrypt(ACME, JOB, TEXT))

    def test_the_same_key_with_another_id_does_not_decrypt_a_text(self, vault, key):
        encrypted = vault.encrypt(ACME, JOB, TEXT).replace(key.id, "other")
        with pytest.raises(DecryptionFailed):
            AesVault((Key("other", key.secret),)).decrypt(ACME, JOB, encrypted)

    def test_a_missing_key_is_named(self, vault, key):
        with pytest.raises(
            DecryptionFailed, match=f"was encrypted with the key {key.id}, which this node does not have"
        ):
            AesVault((make_key(),)).decrypt(ACME, JOB, vault.encrypt(ACME, JOB, TEXT))
        with pytest.raises(DecryptionFailed, match="this node has no keys"):
            NoVault().decrypt(ACME, JOB, vault.encrypt(ACME, JOB, TEXT))

    @pytest.mark.parametrize("rest", ["", "AAAA", "A" * 16, "!!!!", "A", "é", "A" * 40])
    def test_an_invalid_text_is_not_decrypted(self, vault, key, rest):
        for encrypted in (f"encrypted:1:{key.id}:{rest}", f"encrypted:2:{key.id}:{rest}", f"encrypted:{rest}"):
            with pytest.raises(DecryptionFailed):
                vault.decrypt(ACME, JOB, encrypted)

    def test_the_first_key_encrypts_and_all_decrypt(self, vault, key):
        newest = make_key()
        both = AesVault((newest, key))
        assert both.key_id == newest.id
        assert both.decrypt(ACME, JOB, vault.encrypt(ACME, JOB, TEXT)) == TEXT
        assert both.encrypt(ACME, JOB, TEXT).startswith(f"encrypted:1:{newest.id}:")


class TestKeys:
    def test_repr_does_not_show_a_key(self, key):
        assert repr(key) == f"Key('{key.id}')"
        assert parse_keys([key.text]) == (key,)

    @pytest.mark.parametrize(
        "text",
        ["s3cret", ":czNjcmV0", "a:s3cret", "a:" + b64encode(b"s3cret" * 5).decode(), "a:" + "s3cr" * 12, "ä:AAAA"],
    )
    def test_an_invalid_key_is_refused_by_its_number_and_not_shown(self, key, text):
        with pytest.raises(ValueError, match="key number 2") as refused:
            parse_keys([key.text, text])
        assert "s3cr" not in str(refused.value)

    def test_two_keys_with_the_same_id_are_refused(self, key):
        with pytest.raises(ValueError, match=f"the key id {key.id} occurs twice"):
            parse_keys([key.text, Key(key.id, os.urandom(32)).text])

    def test_the_setting_is_read_and_never_shown(self, key, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        second = make_key()
        settings = load({}, {"DUETIME_ENCRYPTION_KEYS": f" {key.text}, {second.text},"})
        assert settings.encryption_keys == (key, second)
        assert Settings.encryption_keys.show(settings) == "********"
        assert load({}, {}).encryption_keys == ()
        with pytest.raises(BadSetting) as refused:
            load({}, {"DUETIME_ENCRYPTION_KEYS": f"{key.text},a:{key.text[-9:]}"})
        assert "ENCRYPTION_KEYS" in str(refused.value)
        assert key.text[-9:] not in str(refused.value)


class TestKeyFile:
    def test_the_first_start_creates_a_key_file_for_its_owner_only(self, tmp_path: Path):
        old = os.umask(0)
        try:
            open_vault((), tmp_path / "data").start()
        finally:
            os.umask(old)
        file = tmp_path / "data" / FILE_NAME
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert os.listdir(file.parent) == [FILE_NAME]  # no temporary file is left
        (key,) = KeyFile(file.parent).list_keys()
        assert len(key.secret) == 32

    def test_the_next_start_uses_the_same_key(self, tmp_path: Path):
        first = open_vault((), tmp_path)
        first.start()
        encrypted = first.encrypt(ACME, JOB, TEXT)
        second = open_vault((), tmp_path)
        second.start()
        assert second.decrypt(ACME, JOB, encrypted) == TEXT

    def test_two_concurrent_starts_use_the_same_key(self, tmp_path: Path):
        vaults = [open_vault((), tmp_path) for _ in range(8)]
        gate = threading.Barrier(len(vaults))

        encrypts: list[str] = []

        def start(vault) -> None:
            gate.wait()
            vault.start()
            encrypts.append(vault.encrypt(ACME, JOB, TEXT))

        threads = [threading.Thread(target=start, args=(vault,)) for vault in vaults]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        later = open_vault((), tmp_path)
        assert [later.decrypt(ACME, JOB, encrypted) for encrypted in encrypts] == [TEXT] * len(vaults)

    def test_other_open_vaults_use_the_key_of_a_rotation(self, tmp_path: Path):
        running = open_vault((), tmp_path)
        running.start()
        before = running.encrypt(ACME, JOB, TEXT)
        beside = KeyFile(tmp_path)
        newest = make_key()
        with beside.locked():
            beside.replace([newest, *beside.list_keys()])
        assert running.key_id == newest.id
        after = running.encrypt(ACME, JOB, TEXT)
        assert after.startswith(f"encrypted:1:{newest.id}:")
        assert running.decrypt(ACME, JOB, before) == running.decrypt(ACME, JOB, after) == TEXT
        assert stat.S_IMODE(beside.path.stat().st_mode) == 0o600

    def test_a_text_of_another_process_with_a_newer_key_is_decrypted(self, tmp_path: Path):
        running, beside = open_vault((), tmp_path), KeyFile(tmp_path)
        running.start()
        beside.replace([make_key(), *beside.list_keys()])
        assert running.decrypt(ACME, JOB, AesVault(file=beside).encrypt(ACME, JOB, TEXT)) == TEXT

    def test_a_removed_key_is_still_in_the_memory_of_an_open_vault(self, tmp_path: Path):
        running, beside = open_vault((), tmp_path), KeyFile(tmp_path)
        running.start()
        encrypted = running.encrypt(ACME, JOB, TEXT)
        beside.replace([make_key()])
        assert running.key_id == beside.list_keys()[0].id
        assert running.decrypt(ACME, JOB, encrypted) == TEXT

    def test_a_key_file_that_others_can_read_is_logged(self, tmp_path: Path):
        open_vault((), tmp_path).start()
        (tmp_path / FILE_NAME).chmod(0o644)
        with capture_logs() as logs:
            open_vault((), tmp_path).start()
        assert [(log["log_level"], "chmod 600" in log["event"]) for log in logs] == [("warning", True)]

    @pytest.mark.parametrize("content", ["", "\n", "s3cret", "a:s3cret", "\xff\xfe", "a:" + "A" * 44])
    def test_an_invalid_key_file_stops_the_start_and_is_not_changed(self, tmp_path: Path, content):
        file = tmp_path / FILE_NAME
        file.write_text(content, encoding="latin-1")
        with capture_logs() as logs, pytest.raises(KeysUnusable, match=FILE_NAME) as refused:
            open_vault((), tmp_path).start()
        assert "s3cret" not in str(refused.value) + str(logs)
        assert file.read_text(encoding="latin-1") == content

    def test_without_a_valid_key_file_a_vault_decrypts_and_does_not_encrypt(self, tmp_path: Path):
        vault = open_vault((), tmp_path)
        vault.start()
        encrypted = vault.encrypt(ACME, JOB, TEXT)
        file = tmp_path / FILE_NAME
        content = file.read_text()
        for harm in (file.unlink, lambda: file.write_text("garbage")):
            with capture_logs() as logs:
                harm()
                assert not vault.can_encrypt
                assert not vault.can_encrypt
            assert len(logs) == 1  # logged once
            with pytest.raises(KeysUnusable):
                vault.encrypt(ACME, JOB, TEXT)
            assert vault.decrypt(ACME, JOB, encrypted) == TEXT
            file.write_text(content)
            assert vault.can_encrypt

    def test_the_second_of_two_concurrent_rotations_is_refused(self, tmp_path: Path):
        first, second = KeyFile(tmp_path), KeyFile(tmp_path)
        with first.locked(), pytest.raises(KeysUnusable, match="is under way"), second.locked():
            raise AssertionError("both have it")
        with second.locked():
            assert True

    def test_a_folder_that_cannot_be_written_is_reported(self, tmp_path: Path):
        (tmp_path / "file").touch()
        with pytest.raises(KeysUnusable, match="can't be"):
            open_vault((), tmp_path / "file").start()


class TestWhichKeys:
    def test_the_setting_precedes_the_file_whose_keys_still_decrypt(self, tmp_path: Path, key):
        by_file = open_vault((), tmp_path)
        by_file.start()
        encrypted = by_file.encrypt(ACME, JOB, TEXT)
        by_setting = open_vault((key,), tmp_path)
        by_setting.start()
        assert by_setting.key_id == key.id
        assert by_setting.decrypt(ACME, JOB, encrypted) == TEXT

    def test_with_the_setting_no_key_file_is_created(self, tmp_path: Path, key):
        vault = open_vault((key,), tmp_path)
        vault.start()
        vault.encrypt(ACME, JOB, TEXT)
        assert os.listdir(tmp_path) == []

    def test_without_a_folder_and_the_setting_there_is_no_key(self, key):
        none = open_vault((), None)
        none.start()
        assert (none.can_encrypt, none.key_id) == (False, "")
        with pytest.raises(KeysUnusable, match="duetime keys create"):
            none.encrypt(ACME, JOB, TEXT)
        assert open_vault((key,), None).can_encrypt
