"""Secrets of a job: encrypted before it is stored, hidden in responses, kept if a change does not name them."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.domain.authoring import change_job
from duetime.domain.errors import InvalidRequest
from duetime.domain.http_rules import HIDDEN
from duetime.domain.job import JobSpec, JobStatus
from duetime.domain.payloads import HttpRequest
from duetime.domain.secrets import (
    decrypt_payload,
    encrypt_change,
    encrypt_job,
    encrypt_spec,
    hide_payload,
    hide_spec,
    is_encrypted,
    key_id_of,
    list_values,
    needs_encryption,
    reencrypt_spec,
)
from duetime.domain.validation import check_spec
from duetime.ports.vault import DecryptionFailed, NoVault
from duetime.vault.aes import AesVault
from duetime.vault.key_file import make_key
from samples import NOW, TENANT, URL, new_job, spec

TOKEN = "Bearer s3cret-of-ann"
VAULT = AesVault((make_key(),))


def secret_spec(**payload: Any) -> JobSpec:
    return spec(payload=HttpRequest(URL, **payload))


def open_it(job: Any, vault: Any = VAULT) -> HttpRequest:
    return decrypt_payload(job.spec.payload, lambda encrypted: vault.decrypt(job.tenant, job.job_id, encrypted))


def errors_of(new: JobSpec, old: JobSpec | None = None) -> dict[str, str]:
    try:
        check_spec(new, old)
    except InvalidRequest as refused:
        return {error.pointer: error.message for error in refused.errors}
    return {}


def change(new: JobSpec, old: Any) -> Any:
    """Changes a job like the API: checked, planned, encrypted."""
    args = (old.job_id, old.tenant, 1, NOW, JobStatus.PENDING, old.spec, new, old.due_at, 0, NOW)
    return encrypt_change(change_job(*args), old.spec, VAULT)


def patched(old: Any, **payload: Any) -> JobSpec:
    """Applies a PATCH to the stored definition: fields that it does not name are unchanged and encrypted."""
    changed = msgspec.structs.replace(old.spec.payload, **payload)
    return msgspec.structs.replace(old.spec, payload=changed)


class TestEncryption:
    def test_a_job_without_secrets_is_returned_unchanged(self):
        job = new_job(spec())
        assert encrypt_job(job, NoVault()) is job
        assert encrypt_spec(job.spec, lambda text: "never") is job.spec

    def test_header_values_and_marked_places_are_encrypted_and_decrypted(self):
        payload = {
            "headers": {"Authorization": TOKEN, "X-Empty": "", "X-Umlaut": "müde"},
            "body": {"token": "s3cret", "list": [{"pin": 4711}, {"a/b": {"deep": [1, None, True]}}], "open": "plain"},
            "secret": ("/body/token", "/body/list/0/pin", "/body/list/1/a~1b"),
        }
        job = new_job(secret_spec(**payload))
        encrypted = encrypt_job(job, VAULT)
        kept = encrypted.spec.payload
        assert all(is_encrypted(value) for value in list_values(kept))
        assert len(list(list_values(kept))) == 6
        assert kept.body["open"] == "plain"
        stored = msgspec.json.encode(encrypted.spec)
        for secret in (b"s3cret", b"4711", b"deep", b"m\xc3\xbcde"):
            assert secret not in stored
        assert open_it(encrypted) == job.spec.payload
        assert job.spec.payload.body == payload["body"]  # the given definition is not changed

    def test_a_whole_body_can_be_secret(self):
        for body in ("text", {"a": 1}, [1], 0, False, ""):
            job = new_job(secret_spec(body=body, secret=("/body",)))
            assert errors_of(job.spec) == {}
            encrypted = encrypt_job(job, VAULT)
            assert is_encrypted(encrypted.spec.payload.body)
            assert open_it(encrypted).body == body

    def test_values_that_are_not_secret_are_stored_unchanged(self):
        assert b"secret" not in msgspec.json.encode(spec())

    def test_the_longest_encrypted_header_value_can_be_read_from_the_store(self):
        long = new_job(secret_spec(headers={"X-Long": "ÿ" * 8192}))
        assert errors_of(long.spec) == {}
        encrypted = encrypt_job(long, AesVault((make_key(lambda size: b"k" * size),))).spec
        assert msgspec.json.decode(msgspec.json.encode(encrypted), type=JobSpec) == encrypted

    def test_the_same_value_is_encrypted_differently_each_time(self):
        job = new_job(secret_spec(headers={"A": TOKEN, "B": TOKEN}))
        encrypts = [
            *list_values(encrypt_job(job, VAULT).spec.payload),
            *list_values(encrypt_job(job, VAULT).spec.payload),
        ]
        assert len(set(encrypts)) == 4

    def test_without_a_key_only_secrets_are_refused(self):
        with pytest.raises(InvalidRequest, match="its operator sets ENCRYPTION_KEYS") as refused:
            encrypt_job(new_job(secret_spec(headers={"A": TOKEN})), NoVault())
        assert [error.pointer for error in refused.value.errors] == ["/payload/headers"]
        assert TOKEN not in refused.value.message
        with pytest.raises(InvalidRequest) as refused:
            encrypt_job(new_job(secret_spec(body={"a": TOKEN}, secret=("/body/a",))), NoVault())
        assert [error.pointer for error in refused.value.errors] == ["/payload/secret"]
        encrypted = encrypt_job(new_job(secret_spec(headers={"A": TOKEN})), VAULT)
        assert encrypt_job(encrypted, NoVault()).spec == encrypted.spec  # no value is left to encrypt

    def test_plain_values_of_earlier_versions_are_read(self):
        job = new_job(secret_spec(headers={"A": TOKEN}))
        assert needs_encryption(job.spec)
        assert decrypt_payload(job.spec.payload, lambda encrypted: "never") == job.spec.payload


class TestChanging:
    def test_values_that_a_change_does_not_name_stay_encrypted_unchanged(self):
        given = secret_spec(headers={"A": TOKEN, "B": "old"}, body={"t": "x1", "n": 1}, secret=("/body/t",))
        old = encrypt_job(new_job(given), VAULT)
        before = old.spec.payload
        new = patched(old, headers={**before.headers, "B": "new"}, body={**before.body, "n": 2})
        after = change(new, old).spec.payload
        assert after.headers["A"] == before.headers["A"]
        assert after.body == {"t": before.body["t"], "n": 2}
        assert is_encrypted(after.headers["B"])
        assert after.headers["B"] != before.headers["B"]
        opened = decrypt_payload(after, lambda encrypted: VAULT.decrypt(old.tenant, old.job_id, encrypted))
        assert (opened.headers, opened.body) == ({"A": TOKEN, "B": "new"}, {"t": "x1", "n": 2})

    def test_a_plain_value_of_an_earlier_version_is_encrypted_at_the_next_change(self):
        old = new_job(secret_spec(headers={"A": TOKEN}))
        assert not needs_encryption(change(patched(old, method="GET"), old).spec)

    def test_an_encrypted_text_is_refused_from_users_and_at_another_place(self):
        old = encrypt_job(new_job(secret_spec(headers={"A": TOKEN}, body={"t": "x1"}, secret=("/body/t",))), VAULT)
        encrypt, body = old.spec.payload.headers["A"], old.spec.payload.body
        refused = {
            "/payload/headers/B": secret_spec(headers={"B": encrypt}),
            "/payload/headers/A": secret_spec(headers={"A": encrypt + "A"}),
            "/payload/body/u": secret_spec(body={"u": body["t"]}, secret=("/body/u",)),
            "/payload/body/t": secret_spec(body={"t": encrypt}, secret=("/body/t",)),
        }
        for pointer, new in refused.items():
            assert list(errors_of(new, old.spec)) == [pointer]
            assert "begins with 'encrypted:', which is reserved for Duetime" in errors_of(new, old.spec)[pointer]
        assert list(errors_of(old.spec)) == ["/payload/headers/A", "/payload/body/t"]  # as for a new job
        assert errors_of(old.spec, old.spec) == {}

    def test_a_place_that_is_no_longer_secret_needs_a_new_value(self):
        old = encrypt_job(new_job(secret_spec(body={"t": "x1"}, secret=("/body/t",))), VAULT)
        assert list(errors_of(patched(old, secret=()), old.spec)) == ["/payload/body/t"]
        around = patched(old, secret=("/body",))  # otherwise an encrypted text would be encrypted again, and sent
        assert list(errors_of(around, old.spec)) == ["/payload/body/t"]
        assert errors_of(patched(old, secret=(), body={"t": "now for all to see"}), old.spec) == {}
        assert errors_of(patched(old, secret=(), body={}), old.spec) == {}


class TestMarks:
    @pytest.mark.parametrize(
        ("body", "secret", "pointer"),
        [
            ({"t": 1}, ("/body/u",), "/payload/secret/0"),
            ({"t": 1}, ("/body/t", "/url"), "/payload/secret/1"),
            ({"t": 1}, ("/headers/A",), "/payload/secret/0"),
            ({"t": 1}, ("body/t",), "/payload/secret/0"),
            ({"t": 1}, ("",), "/payload/secret/0"),
            ({"t": 1}, ("/bodyguard",), "/payload/secret/0"),
            ({"~": 1}, ("/body/~",), "/payload/secret/0"),
            ({"t": 1}, ("/body/t/0",), "/payload/secret/0"),
            ("text", ("/body/0",), "/payload/secret/0"),
            (None, ("/body",), "/payload/secret/0"),
            ([1], ("/body/1",), "/payload/secret/0"),
            ([1], ("/body/-",), "/payload/secret/0"),
            ([1], ("/body/00",), "/payload/secret/0"),
            ({"t": 1}, ("/body/t", "/body/t"), "/payload/secret/1"),
            ({"t": {"u": 1}}, ("/body/t/u", "/body/t"), "/payload/secret/1"),
            ({"t": {"u": 1}}, ("/body", "/body/t/u"), "/payload/secret/1"),
            ({"t": HIDDEN}, ("/body/t",), "/payload/body/t"),
            ({"t": "encrypted:1:k:AAAA"}, ("/body/t",), "/payload/body/t"),
        ],
    )
    def test_a_mark_that_points_at_nothing_or_is_repeated_is_refused_by_its_number(self, body, secret, pointer):
        assert list(errors_of(secret_spec(body=body, secret=secret))) == [pointer]

    def test_the_number_and_the_length_of_marks_are_limited(self):
        with pytest.raises(msgspec.ValidationError, match="secret"):
            msgspec.convert({"url": URL, "secret": ["/body"] * 21}, HttpRequest)
        with pytest.raises(msgspec.ValidationError, match="secret"):
            msgspec.convert({"url": URL, "secret": ["/body/" + "x" * 250]}, HttpRequest)

    def test_an_empty_name_and_a_null_are_places_too(self):
        job = new_job(secret_spec(body={"": {"": None}}, secret=("/body//",)))
        assert errors_of(job.spec) == {}
        assert open_it(encrypt_job(job, VAULT)) == job.spec.payload


class TestShowing:
    def test_responses_show_the_places_of_secrets_and_hide_the_values(self):
        given = HttpRequest(URL, headers={"A": TOKEN}, body={"t": ["x1"], "n": 1}, secret=("/body/t",))
        for payload in (given, encrypt_job(new_job(spec(payload=given)), VAULT).spec.payload):
            shown = hide_payload(payload)
            assert (shown.headers, shown.body, shown.secret) == (
                {"A": HIDDEN}, {"t": HIDDEN, "n": 1}, ("/body/t",)
            )  # fmt: skip
        assert hide_payload(HttpRequest(URL)) == HttpRequest(URL)

    def test_the_audit_names_the_changed_secrets_and_has_no_values(self):
        given = secret_spec(
            headers={"A": TOKEN, "B": "old"}, body={"t": "x1", "u": "x2"}, secret=("/body/t", "/body/u")
        )
        old = encrypt_job(new_job(given), VAULT)
        before = old.spec.payload
        new = patched(
            old, headers={"A": before.headers["A"], "B": "new", "C": "more"}, body={"t": "x9", "u": before.body["u"]}
        )
        shown = hide_spec(change(new, old).spec, old.spec)
        assert shown.payload.headers == {"A": HIDDEN, "B": f"{HIDDEN} (changed)", "C": HIDDEN}
        assert shown.payload.body == {"t": f"{HIDDEN} (changed)", "u": HIDDEN}
        assert hide_spec(old.spec).payload.headers == {"A": HIDDEN, "B": HIDDEN}
        assert "encrypted:" not in str(shown)
        plain = spec()
        assert hide_spec(plain) is plain


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


class TestRoundTrip:
    @given(
        headers=st.dictionaries(st.text("abc-", min_size=1), st.text(st.characters(max_codepoint=255)), max_size=3),
        value=json_values,
        other=json_values,
    )
    @example(headers={}, value="Encrypted:1:k:AAAA", other="encrypted:1:k:AAAA")
    def test_encrypted_values_are_decrypted_also_after_a_rotation(self, headers, value, other):
        payload = HttpRequest(URL, headers=headers, body={"x": value, "y": other}, secret=("/body/x",))
        job = new_job(spec(payload=payload))
        encrypted = encrypt_job(job, VAULT)
        assert open_it(encrypted) == payload
        newest = make_key()
        both = AesVault((newest, *VAULT._keys))
        again = reencrypt_spec(
            encrypted.spec, newest.id, lambda text: both.encrypt(TENANT, job.job_id, text),
            lambda text: both.decrypt(TENANT, job.job_id, text),
        )  # fmt: skip
        assert {key_id_of(text) for text in list_values(again.payload)} == {newest.id}
        assert open_it(msgspec.structs.replace(encrypted, spec=again), AesVault((newest,))) == payload
        assert again.payload.body["y"] == other

    @given(text=st.text(), bit=st.integers(min_value=0))
    def test_a_text_with_one_flipped_bit_can_not_be_decrypted(self, text, bit):
        head, _, tail = VAULT.encrypt(TENANT, "job", text).rpartition(":")
        data = bytearray(base64.urlsafe_b64decode(tail + "=" * (-len(tail) % 4)))
        bit %= 8 * len(data)
        data[bit // 8] ^= 1 << bit % 8
        flipped = f"{head}:{base64.urlsafe_b64encode(data).decode().rstrip('=')}"
        with pytest.raises(DecryptionFailed):
            VAULT.decrypt(TENANT, "job", flipped)


def test_a_second_encryption_with_the_same_key_changes_nothing():
    encrypted = encrypt_job(new_job(secret_spec(headers={"A": TOKEN})), VAULT).spec
    assert reencrypt_spec(encrypted, VAULT.key_id, lambda text: "never", lambda text: "never") is encrypted
    assert reencrypt_spec(spec(), VAULT.key_id, lambda text: "never", lambda text: "never") == spec()
