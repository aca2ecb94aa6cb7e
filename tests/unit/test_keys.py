from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.keys import KEY_BYTES, hash_secret, is_secret, make_key, parse_key


@given(st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES))
def test_a_key_is_parsed_as_it_was_created(random: bytes) -> None:
    key_id, secret, token = make_key(random)
    assert token == f"dt_{key_id}_{secret}"
    assert re.fullmatch(r"[a-z0-9]{16}", key_id)
    assert re.fullmatch(r"[a-z0-9]{52}", secret)  # 32 bytes in base 32
    assert parse_key(token) == (key_id, secret)


def test_all_random_bytes_are_in_the_key() -> None:
    made = {make_key(bytes(KEY_BYTES))[2]}
    for bit in range(KEY_BYTES * 8):
        made.add(make_key((1 << bit).to_bytes(KEY_BYTES, "big"))[2])
    assert len(made) == KEY_BYTES * 8 + 1


@pytest.mark.parametrize("size", [0, KEY_BYTES - 1, KEY_BYTES + 1])
def test_a_key_needs_enough_random_bytes(size: int) -> None:
    with pytest.raises(ValueError, match="42 random bytes"):
        make_key(bytes(size))


@pytest.mark.parametrize(
    "text",
    ["", "dt_", "dt__", f"dt_{'a' * 16}", f"dt_{'a' * 16}_", f"dt_{'a' * 16}_{'b' * 42}", f"dt_{'a' * 16}_{'b' * 129}",
     f"dt_{'a' * 15}_{'b' * 52}", f"dt_{'a' * 17}_{'b' * 52}", f"dt_{'A' * 16}_{'b' * 52}", f"DT_{'a' * 16}_{'b' * 52}",
     f"dt_{'a' * 16}_{'b' * 52}\n", f" dt_{'a' * 16}_{'b' * 52}", f"dt_{'ä' * 16}_{'b' * 52}",
     f"dt_{'٣' * 16}_{'b' * 52}", f"dt_{'a' * 16}_{'b' * 51}'", f"dt_../../../../../x_{'b' * 52}",
     f"dt_{'a' * 16}_" + "\ud800" * 52],
)  # fmt: skip
def test_text_that_is_no_key_is_refused(text: str) -> None:
    assert parse_key(text) is None


@given(st.text())
def test_any_text_can_be_parsed_without_an_exception(text: str) -> None:
    assert parse_key(text) is None


def test_only_a_hash_of_the_secret_is_stored() -> None:
    assert hash_secret("s3cret") == hashlib.sha256(b"s3cret").hexdigest()
    assert is_secret("s3cret", hash_secret("s3cret"))


@pytest.mark.parametrize("other", ["", "s3cre", "s3cret ", "S3cret", "s3creT", hash_secret("s3cret")])
def test_another_secret_does_not_match_the_hash(other: str) -> None:
    assert not is_secret(other, hash_secret("s3cret"))


@pytest.mark.parametrize("kept", ["", "ä", hash_secret("s3cret")[:-1], hash_secret("s3cret").upper()])
def test_an_incomplete_hash_matches_no_secret(kept: str) -> None:
    assert not is_secret("s3cret", kept)
