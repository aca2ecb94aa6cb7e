"""Tokens: forged and invalid ones are refused, and cause no defect."""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from structlog.testing import capture_logs

from duetime.api.auth import tokens as module
from duetime.api.auth.jwks import BadKeys, load_jwks
from duetime.api.auth.tokens import MOST_CHARACTERS, Tokens, sign
from duetime.domain.errors import Unauthorized
from duetime.domain.identity import EVERY_RIGHT, Caller, Right, Role, Tier

SECRET = "correct-horse-battery-staple-correct-horse-battery-staple-0123456789"
NOW = 1_767_225_600_000  # 2026-01-01T00:00Z
SECONDS = NOW // 1000
USER = frozenset({Right.READ, Right.WRITE, Right.RUN})


@cache
def rsa(bits: int = 2048, number: int = 0) -> RSAPrivateKey:
    """Created once: it takes a moment."""
    return generate_rsa(65537, bits)


@cache
def ed25519(number: int = 0) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def public_jwk(key: Any, **more: Any) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, RSAPrivateKey) else OKPAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), **more}


def private_jwk(key: Any, **more: Any) -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, RSAPrivateKey) else OKPAlgorithm
    return {**algorithm.to_jwk(key, as_dict=True), **more}


def jwks(folder: Path, *keys: Any) -> Path:
    file = folder / "jwks.json"
    file.write_text(json.dumps({"keys": keys}))
    return file


def tokens(secret: str = SECRET, file: Path | None = None) -> Tokens:
    return Tokens(secret=secret, jwks_file=file, issuer="duetime", audience="duetime")


def claims(**more: Any) -> dict[str, Any]:
    return {"user_id": "ann", "iss": "duetime", "aud": "duetime", "iat": SECONDS, "exp": SECONDS + 3600, **more}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in claims().items() if key != name}


@pytest.mark.parametrize(
    ("payload", "taken"),
    [(without("iss"), True), (claims(iss="https://issuer.example"), True), (claims(aud="other"), False)],
)
def test_an_issuer_that_is_not_set_is_not_checked(payload: dict[str, Any], taken: bool):
    unchecked = Tokens(secret=SECRET, jwks_file=None, issuer="", audience="duetime")
    if taken:
        assert unchecked.verify(signed(payload), NOW).user_id == "ann"
    else:
        with pytest.raises(Unauthorized, match="aud"):
            unchecked.verify(signed(payload), NOW)


@pytest.mark.parametrize(
    ("payload", "taken"),
    [(without("aud"), True), (claims(aud=["a", "b"]), True), (claims(aud=7), True), (claims(iss="other"), False)],
)
def test_an_audience_that_is_not_set_is_not_checked(payload: dict[str, Any], taken: bool):
    unchecked = Tokens(secret=SECRET, jwks_file=None, issuer="duetime", audience="")
    if taken:
        assert unchecked.verify(signed(payload), NOW).user_id == "ann"
    else:
        with pytest.raises(Unauthorized, match="iss"):
            unchecked.verify(signed(payload), NOW)


def test_a_signed_token_has_no_issuer_or_audience_unless_they_are_set():
    made = sign(SECRET, "", "", {"user_id": "ann"}, NOW, 60)
    assert jwt.decode(made, options={"verify_signature": False}).keys() == {"user_id", "iat", "exp"}
    assert Tokens(secret=SECRET, jwks_file=None, issuer="", audience="").verify(made, NOW).user_id == "ann"


def signed(payload: dict[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> str:
    return jwt.encode(payload, key, algorithm, headers=header or None)


def part(text: str | bytes) -> str:
    return base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).decode().rstrip("=")


def raw(header: str | bytes, payload: str | bytes, secret: bytes = SECRET.encode()) -> str:
    """Returns a token that is signed with HS256 whatever its header is. Libraries refuse to sign such tokens."""
    beginning = f"{part(header)}.{part(payload)}"
    return f"{beginning}.{part(hmac.digest(secret, beginning.encode(), 'sha256'))}"


def refused(verifier: Tokens, token: str, at: int = NOW) -> str:
    """Returns the message of the refusal. It never holds a part of the token."""
    with pytest.raises(Unauthorized) as raised:
        verifier.verify(token, at)
    assert raised.value.status == 401
    return raised.value.message


# Accepted tokens


def test_a_token_gives_its_caller() -> None:
    token = signed(claims(user_id=17, email="ann@example.com", role="admin", tier="pro", tenant="acme"))
    expected = Caller("acme", "17", Role.ADMIN, Tier.PRO, EVERY_RIGHT, "jwt", "ann@example.com")
    assert tokens().verify(token, NOW) == expected


def test_missing_claims_give_the_fewest_rights() -> None:
    assert tokens().verify(signed(claims()), NOW) == Caller("default", "ann", Role.USER, Tier.FREE, USER, "jwt")


def test_a_token_without_user_id_uses_its_sub() -> None:
    assert tokens().verify(signed({**without("user_id"), "sub": "auth0|7"}), NOW).user_id == "auth0|7"


def test_the_role_enterprise_has_the_tier() -> None:
    caller = tokens().verify(signed(claims(role="enterprise")), NOW)
    assert (caller.tier, caller.rights) == (Tier.ENTERPRISE, USER)


@pytest.mark.parametrize(
    ("role", "scopes", "rights"),
    [
        ("user", ["read"], {Right.READ}),
        ("user", "read  run", {Right.READ, Right.RUN}),
        ("user", ["read", "admin"], {Right.READ}),
        ("user", ["script"], {Right.SCRIPT}),
        ("admin", "read", {Right.READ}),
        ("admin", ["admin"], set(EVERY_RIGHT)),
        ("admin", [], set()),
        ("admin", "", set()),
    ],
)
def test_scopes_limit_the_rights(role: str, scopes: Any, rights: set[Right]) -> None:
    assert tokens().verify(signed(claims(role=role, scopes=scopes)), NOW).rights == rights


@pytest.mark.parametrize("audience", ["duetime", ["duetime"], ["other", "duetime"]])
def test_an_audience_may_be_one_of_several(audience: Any) -> None:
    assert tokens().verify(signed(claims(aud=audience)), NOW).user_id == "ann"


@pytest.mark.parametrize(("key", "algorithm"), [(rsa, "RS256"), (ed25519, "EdDSA")])
def test_a_key_of_the_file_verifies_its_own_algorithm(tmp_path: Path, key: Callable[[], Any], algorithm: str) -> None:
    alone = tokens("", jwks(tmp_path, public_jwk(key())))
    assert alone.verify(signed(claims(), key(), algorithm), NOW).user_id == "ann"
    named = tokens("", jwks(tmp_path, public_jwk(key(), kid="a", use="sig", alg=algorithm)))
    assert named.verify(signed(claims(), key(), algorithm, kid="a"), NOW).user_id == "ann"


def test_the_secret_and_a_file_work_together(tmp_path: Path) -> None:
    verifier = tokens(SECRET, jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b")))
    for token in (
        signed(claims()),
        signed(claims(), rsa(), "RS256", kid="a"),
        signed(claims(), ed25519(), "EdDSA", kid="b"),
    ):
        assert verifier.verify(token, NOW).user_id == "ann"


def test_a_token_signed_here_is_valid_until_its_expiry() -> None:
    token = sign(SECRET, "duetime", "duetime", {"user_id": "cli", "role": "admin"}, NOW, 60)
    assert tokens().verify(token, NOW + 59_999).is_admin
    refused(tokens(), token, NOW + 60_000)


def test_nothing_is_signed_with_a_short_secret() -> None:
    with pytest.raises(BadKeys, match="at least 32 bytes"):
        sign("short", "duetime", "duetime", {}, NOW, 60)


# Attacks on the algorithm and the key


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_a_token_that_is_not_signed_is_refused(name: str) -> None:
    header = json.dumps({"alg": name, "typ": "JWT"})
    for signature in ("", part("x"), part(hmac.digest(SECRET.encode(), b"", "sha256"))):
        refused(tokens(), f"{part(header)}.{part(json.dumps(claims()))}.{signature}")


@pytest.mark.parametrize("name", ["none", "RS256", "EdDSA", "HS384", "hs256", "HS256 ", None, 1, True, ["HS256"], {}])
def test_the_header_does_not_choose_the_algorithm(name: Any) -> None:
    """The signature is valid. The token is refused because of its header."""
    assert "must be signed with HS256, the algorithm of its key" in refused(
        tokens(), raw(json.dumps({"alg": name}), json.dumps(claims()))
    )


def test_a_header_without_an_algorithm_is_refused() -> None:
    refused(tokens(), raw("{}", json.dumps(claims())))


@pytest.mark.parametrize("algorithm", ["HS384", "HS512"])
def test_another_hash_with_the_right_secret_is_refused(algorithm: str) -> None:
    refused(tokens(), signed(claims(), SECRET, algorithm))


@pytest.mark.parametrize("with_secret", [True, False])
@pytest.mark.parametrize("key", [rsa, ed25519])
@pytest.mark.parametrize("form", ["pem", "pem without the last line end", "der", "the file", "the entry"])
def test_a_public_key_is_not_used_as_a_secret(
    tmp_path: Path, form: str, key: Callable[[], Any], with_secret: bool
) -> None:
    entry = public_jwk(key(), kid="a")
    file = jwks(tmp_path, entry)
    public = key().public_key()
    known = {
        "pem": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        "pem without the last line end": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).strip(),
        "der": public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "the file": file.read_bytes(),
        "the entry": json.dumps(entry).encode(),
    }[form]
    verifier = tokens(SECRET if with_secret else "", file)
    for header in ({"alg": "HS256"}, {"alg": "HS256", "kid": "a"}):
        refused(verifier, raw(json.dumps(header), json.dumps(claims()), known))


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
def test_a_key_of_the_file_has_one_algorithm(tmp_path: Path, algorithm: str) -> None:
    refused(tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a"))), signed(claims(), rsa(), algorithm, kid="a"))


def test_a_key_is_not_used_with_another_algorithm(tmp_path: Path) -> None:
    verifier = tokens(SECRET, jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b")))
    refused(verifier, signed(claims(), rsa(), "RS256", kid="b"))
    refused(verifier, signed(claims(), ed25519(), "EdDSA", kid="a"))
    refused(verifier, signed(claims(), SECRET, "HS256", kid="a"))
    refused(verifier, signed(claims(), rsa(), "RS256"))  # with several keys a token has to name one


def test_a_token_of_another_key_is_refused(tmp_path: Path) -> None:
    refused(tokens(), signed(claims(), "another-secret-that-is-long-enough-0123"))
    verifier = tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b")))
    refused(verifier, signed(claims(), rsa(number=1), "RS256", kid="a"))
    refused(verifier, signed(claims(), ed25519(1), "EdDSA", kid="b"))


@pytest.mark.parametrize(
    "kid",
    ["b", "", "A", "a ", "../../../../dev/null", "/etc/passwd", "' OR '1'='1", "a\x00", "a' UNION SELECT 'x", "ａ",
     "💥", "\ud800", None, 0, False, ["a"], {"a": "a"}],
)  # fmt: skip
@pytest.mark.parametrize("with_secret", [True, False])
def test_a_kid_names_a_key_of_the_file_or_nothing(tmp_path: Path, kid: Any, with_secret: bool) -> None:
    verifier = tokens(SECRET if with_secret else "", jwks(tmp_path, public_jwk(rsa(), kid="a")))
    header, payload = part(json.dumps({"alg": "RS256", "kid": kid})), part(json.dumps(claims()))
    signature = RSAAlgorithm(RSAAlgorithm.SHA256).sign(f"{header}.{payload}".encode(), rsa())
    assert "kid" in refused(verifier, f"{header}.{payload}.{part(signature)}")
    for secret in (SECRET.encode(), b""):  # of /dev/null
        refused(verifier, raw(json.dumps({"alg": "HS256", "kid": kid}), json.dumps(claims()), secret))


def test_with_several_keys_a_token_needs_a_kid(tmp_path: Path) -> None:
    verifier = tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(rsa(number=1), kid="b")))
    assert "kid" in refused(verifier, signed(claims(), rsa(), "RS256"))


def test_a_key_inside_the_token_is_ignored(tmp_path: Path) -> None:
    own = rsa(number=1)
    brought = {
        "jwk": public_jwk(own, kid="a"), "jku": "https://evil.example/jwks.json", "x5u": "https://evil.example/x",
        "x5c": [part(own.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))],
    }  # fmt: skip
    verifier = tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a")))
    refused(verifier, signed(claims(), own, "RS256", kid="a", **brought))
    assert verifier.verify(signed(claims(), rsa(), "RS256", kid="a", **brought), NOW).user_id == "ann"


@pytest.mark.parametrize("critical", [["exp"], ["b64"], [], "exp", None, {}])
def test_a_crit_header_is_refused(critical: Any) -> None:
    header = {"alg": "HS256", "crit": critical, "exp": 1, "b64": True}
    assert "crit" in refused(tokens(), raw(json.dumps(header), json.dumps(claims())))


def test_a_payload_that_is_not_encoded_is_refused() -> None:
    refused(tokens(), raw('{"alg":"HS256","b64":false}', json.dumps(claims())))


def test_without_keys_no_token_is_accepted() -> None:
    refused(tokens(""), signed(claims()))
    refused(tokens(""), raw('{"alg":"HS256"}', json.dumps(claims()), b""))


# Attacks on the form


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "." * 1000, "{}", "null", "Bearer x.y.z", "=.=.=", "ä.ö.ü",
     "\x00.\x00.\x00", "e30.e30.e30", "W10.W10.W10", "bnVsbA.bnVsbA.", "💥" * 9, "\ud800.\udfff.x", " . . ", "\n.\n.\n",
     part("{" * 3000) + ".e30.e30", part("[" * 6000) + ".e30.e30", part('{"alg":' + "[" * 3000) + ".e30.e30"],
)  # fmt: skip
def test_garbage_is_refused(token: str) -> None:
    refused(tokens(), token)


def test_a_huge_token_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = signed(claims(more="x" * 5800))
    assert len(fits) <= MOST_CHARACTERS
    assert tokens().verify(fits, NOW).user_id == "ann"
    monkeypatch.setattr(module, "_object", lambda text: pytest.fail("it was read"))
    assert "longer than 8,192" in refused(tokens(), signed(claims(more="x" * 6100)))
    refused(tokens(), "." * 10_000_000)


def test_every_changed_character_is_detected() -> None:
    token, verifier = signed(claims()), tokens()
    for at in range(len(token)):
        other = "A" if token[at] != "A" else "B"
        refused(verifier, token[:at] + other + token[at + 1 :])


def test_a_signature_that_is_cut_or_longer_is_refused(tmp_path: Path) -> None:
    file = jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b"))
    verifier = tokens(SECRET, file)
    for token in (
        signed(claims()),
        signed(claims(), rsa(), "RS256", kid="a"),
        signed(claims(), ed25519(), "EdDSA", kid="b"),
    ):
        beginning, signature = token.rsplit(".", 1)
        for other in ("", signature[:-1], signature[:-4], signature[: len(signature) // 2], signature + "A",
                      signature + "AAAA", signature * 2, signature + " ", signature + "\n",
                      signature + "="):  # fmt: skip
            refused(verifier, f"{beginning}.{other}")


def test_parts_may_not_be_added_or_left_out() -> None:
    token = signed(claims())
    header, payload, signature = token.split(".")
    for other in (f"{token}.", f".{token}", f"{token}.{signature}", f"{header}.{payload}", f"{header}..{signature}",
                  f".{payload}.{signature}", f"{header}.{payload}.", f" {token}", f"{token}\n"):  # fmt: skip
        refused(tokens(), other)


@pytest.mark.parametrize(
    "header",
    ['{"alg":"none","alg":"HS256"}', '{"alg":"HS256","alg":"none"}', '{"alg":"HS256","alg":"HS256"}',
     '{"alg":"HS256","kid":"x","kid":"y"}', '{"alg":"HS256","\\u0061lg":"HS256"}',
     '{"alg":"HS256","more":{"a":1,"a":2}}'],
)  # fmt: skip
def test_a_name_that_comes_twice_in_the_header_is_refused(header: str) -> None:
    refused(tokens(), raw(header, json.dumps(claims())))


def test_a_name_that_comes_twice_in_the_claims_is_refused() -> None:
    payload = json.dumps(claims())[:-1]
    assert tokens().verify(raw('{"alg":"HS256"}', payload + "}"), NOW)
    assert "not a JSON object" in refused(tokens(), raw('{"alg":"HS256"}', payload + ',"user_id":"bob"}'))


@pytest.mark.parametrize(
    "payload",
    [b"", b"null", b"[]", b'"text"', b"17", b"{", b"\xff\xfe", b"\xff", b"{'a':1}", b"[" * 4000, b'{"a":' * 1200,
     b'{"exp":NaN}', b'{"exp":-Infinity}', b'{"exp":' + b"9" * 5000 + b"}", b'\xef\xbb\xbf{"a":1}'],
)  # fmt: skip
def test_claims_that_are_not_an_object_are_refused(payload: bytes) -> None:
    refused(tokens(), raw('{"alg":"HS256"}', payload))


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_json_that_only_python_accepts_is_refused(constant: str) -> None:
    payload = f'{json.dumps(claims())[:-1]},"x":{constant}}}'
    assert "not a JSON object" in refused(tokens(), raw('{"alg":"HS256"}', payload))


def test_deeply_nested_claims_are_refused() -> None:
    for depth in (10, 500, 900, 990, 1100, 2500):
        token = raw('{"alg":"HS256"}', json.dumps(claims())[:-1] + ',"x":' + "[" * depth + "]" * depth + "}")
        assert len(token) <= MOST_CHARACTERS
        try:
            assert tokens().verify(token, NOW).user_id == "ann"
        except Unauthorized:
            assert depth > 800


# Attacks on the claims


@pytest.mark.parametrize("name", ["exp", "iat", "iss", "aud", "user_id"])
def test_no_claim_may_be_missing(name: str) -> None:
    assert name in refused(tokens(), signed(without(name)))


@pytest.mark.parametrize("name", ["exp", "iat", "nbf"])
@pytest.mark.parametrize("value", ["1", "", None, True, False, [], {}, -1, -0.5, 1e999, 10**18, 10**300, "9" * 30])
def test_an_instant_is_a_number_of_seconds(name: str, value: Any) -> None:
    payload = json.dumps(claims(**{name: value})).replace("Infinity", "1e999")
    assert f"'{name}'" in refused(tokens(), raw('{"alg":"HS256"}', payload))


def test_an_instant_may_have_a_fraction() -> None:
    token = signed(claims(exp=SECONDS + 0.5))
    assert tokens().verify(token, NOW + 499)
    refused(tokens(), token, NOW + 500)


def test_an_expired_token_is_refused_to_the_millisecond() -> None:
    token = signed(claims(exp=SECONDS + 10))
    assert tokens().verify(token, NOW + 9_999)
    assert "expired" in refused(tokens(), token, NOW + 10_000)
    assert "expired" in refused(tokens(), signed(claims(exp=0)))


def test_expiry_uses_the_given_time_and_not_the_system_clock() -> None:
    long_ago = 1_000_000_000
    token = signed(claims(iat=long_ago, nbf=long_ago, exp=long_ago + 1))
    assert tokens().verify(token, long_ago * 1000).user_id == "ann"


@pytest.mark.parametrize(("name", "says"), [("iat", "future"), ("nbf", "not valid yet")])
def test_an_issuers_clock_may_be_half_a_minute_ahead_and_no_more(name: str, says: str) -> None:
    assert tokens().verify(signed(claims(**{name: SECONDS + 30})), NOW)
    token = signed(claims(**{name: SECONDS + 31}))
    assert says in refused(tokens(), token)
    assert tokens().verify(token, NOW + 1000)


@pytest.mark.parametrize("issuer", ["other", "", "Duetime", "duetime ", "duetime/", None, 1, ["duetime"]])
def test_another_issuer_is_refused(issuer: Any) -> None:
    assert "iss" in refused(tokens(), raw('{"alg":"HS256"}', json.dumps(claims(iss=issuer))))


@pytest.mark.parametrize(
    "audience",
    ["other", "", "Duetime", "duetime2", "a duetime", None, 1, [], ["other"], ["duetime", 1], [["duetime"]], {}],
)
def test_another_audience_is_refused(audience: Any) -> None:
    assert "aud" in refused(tokens(), raw('{"alg":"HS256"}', json.dumps(claims(aud=audience))))


@pytest.mark.parametrize(
    "user",
    [True, False, None, "", "x" * 129, "a b", " a", "a\n", "a\x00", "a\u200b", "\ud800", 1.5, [], ["ann"], {}, 10**130],
)
def test_a_user_id_must_be_visible_text(user: Any) -> None:
    message = refused(tokens(), raw('{"alg":"HS256"}', json.dumps(claims(user_id=user, sub="bob"))))
    assert "user_id" in message


@pytest.mark.parametrize("user", ["x" * 128, 0, -5, "Änne", "山田", "ann@example.com"])
def test_many_forms_of_ids_are_accepted(user: Any) -> None:
    assert tokens().verify(signed(claims(user_id=user)), NOW).user_id == str(user)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("role", value) for value in ("root", "ADMIN", "admin ", "", None, 1, ["admin"], {})),
        *(("tier", value) for value in ("gold", "FREE", "", None, 0, ["free"], {})),
        *(("scopes", value) for value in ("read everything", ["READ"], [1], [None], [["read"]], {"read": 1}, None, 1)),
        *(
            ("tenant", value)
            for value in ("", "Acme", "-a", ".a", "a/b", "a b", "a\n", "x" * 64, "ä", "٣", None, 1, [])
        ),
        *(("email", value) for value in ("x" * 321, "a\r\nb", None, 1, ["a@b"])),
    ],
)
def test_a_malformed_claim_is_refused_and_not_replaced_by_its_default(name: str, value: Any) -> None:
    message = refused(tokens(), raw('{"alg":"HS256"}', json.dumps(claims(**{name: value}))))
    assert name in message


def test_no_refusal_shows_the_content_of_the_token() -> None:
    hidden = "hush-hush"
    for token in (
        signed(claims(role=hidden)), signed(claims(tenant=hidden.upper())), signed(claims(iss=hidden)),
        signed(claims(aud=hidden)), signed(claims(scopes=hidden)), signed(claims(user_id=f"{hidden} {hidden}")),
        signed(claims(), SECRET, kid=hidden), raw(json.dumps({"alg": hidden}), json.dumps(claims())), hidden,
    ):  # fmt: skip
        message = refused(tokens(), token)
        assert hidden not in message.lower()
        assert SECRET not in message


# Random input


@given(st.text(max_size=200) | st.from_regex(r"[\w=-]{0,60}\.[\w=-]{0,60}\.[\w=-]{0,60}", fullmatch=True))
def test_any_text_is_verified_or_refused(text: str) -> None:
    refused(tokens(), text)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_names = st.sampled_from(["alg", "kid", "crit", "b64", "typ", "cty", "jwk", "zip"])


@given(st.dictionaries(_names, _json | st.sampled_from(["HS256", "none", "RS256"])))
def test_any_header_is_verified_or_refused(header: dict[str, Any]) -> None:
    token = raw(json.dumps(header), json.dumps(claims()))
    try:
        assert tokens().verify(token, NOW).user_id == "ann"
    except Unauthorized:
        return
    assert header["alg"] == "HS256"
    assert not {"kid", "crit"} & set(header)


@given(st.dictionaries(st.sampled_from([*claims(), "sub", "role", "tier", "tenant", "scopes", "email", "nbf"]), _json))
def test_any_claims_are_verified_or_refused(changed: dict[str, Any]) -> None:
    try:
        caller = tokens().verify(raw('{"alg":"HS256"}', json.dumps(claims(**changed))), NOW)
    except Unauthorized:
        return
    assert isinstance(caller.user_id, str)
    assert not caller.is_admin


# The key file


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (lambda: public_jwk(rsa(1024), kid="a"), "key 'a': has 1024 bits; RSA keys need at least 2048"),
        (lambda: private_jwk(rsa(), kid="a"), "key 'a': is a private key"),
        (lambda: private_jwk(ed25519(), kid="a"), "key 'a': is a private key"),
        (lambda: private_jwk(ed25519()), "key 1: is a private key"),
        (lambda: {"kty": "oct", "k": part(SECRET), "kid": "a"}, "key 'a': is a shared secret"),
        (lambda: {**public_jwk(rsa()), "k": part(SECRET)}, "key 1: is a shared secret"),
        (lambda: public_jwk(rsa(), use="enc", kid="a"), "key 'a': is not for signatures"),
        (lambda: public_jwk(rsa(), key_ops=["encrypt"], kid="a"), "key 'a': is not for signatures"),
        (lambda: public_jwk(rsa(), alg="RS512", kid="a"), "key 'a': its 'alg' must be RS256"),
        (lambda: public_jwk(rsa(), alg="HS256", kid="a"), "key 'a': its 'alg' must be RS256"),
        (lambda: public_jwk(ed25519(), alg="RS256", kid="a"), "key 'a': its 'alg' must be EdDSA"),
        (lambda: public_jwk(ed25519(), crv="Ed448"), "key 1: has an unsupported type"),
        (
            lambda: ECAlgorithm.to_jwk(generate_private_key(SECP256R1()).public_key(), as_dict=True),
            "key 1: has an unsupported type",
        ),
        (lambda: public_jwk(rsa(), kid=7), "key 1: 'kid' must be text"),
        (lambda: public_jwk(rsa(), kid=""), "key '': 'kid' must be text"),
        (lambda: public_jwk(rsa(), n="!!"), "key 1: is not a complete RSA public key"),
        (lambda: public_jwk(rsa(), e="AA"), "key 1: is not a complete RSA public key"),
        (lambda: {"kty": "RSA", "e": "AQAB"}, "key 1: is not a complete RSA public key"),
        (lambda: public_jwk(ed25519(), x="AAAA"), "key 1: is not a complete OKP public key"),
        (lambda: public_jwk(ed25519(), x=7), "key 1: is not a complete OKP public key"),
        (lambda: "text", "key 1: is not an object"),
        (lambda: {}, "key 1: has an unsupported type"),
    ],
)
def test_a_file_with_a_doubtful_key_is_refused_at_the_start(
    tmp_path: Path, entry: Callable[[], Any], says: str
) -> None:
    file = jwks(tmp_path, entry())
    with pytest.raises(BadKeys) as raised:
        tokens(SECRET, file)
    assert str(raised.value).startswith(f"JWKS_FILE: {file}: {says}")
    assert isinstance(raised.value, ValueError)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "is not JSON"), ("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a JWKS"),
     ("{}", "is not a JWKS"),
     ('{"keys": {}}', "is not a JWKS"), ('{"keys": []}', "is empty"), (" " * 1_048_577, "is larger than")],
)  # fmt: skip
def test_a_file_that_is_not_a_jwks_is_refused_at_the_start(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(text)
    with pytest.raises(BadKeys, match=says):
        tokens("", file)


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match="can't be read: No such file"):
        tokens("", tmp_path / "jwks.json")
    with pytest.raises(BadKeys, match="can't be read: Is a directory"):
        tokens("", tmp_path)


def test_several_keys_need_unique_kids(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match="key 2 has no 'kid'"):
        tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519())))
    with pytest.raises(BadKeys, match="two keys have the kid 'a'"):
        tokens("", jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="a")))


@pytest.mark.parametrize("secret", ["short", "x" * 31, "ä" * 15])
def test_a_short_secret_is_refused_at_the_start(secret: str) -> None:
    with pytest.raises(BadKeys, match="at least 32 bytes") as raised:
        tokens(secret)
    assert secret not in str(raised.value)


def test_a_public_key_as_the_secret_is_refused_at_the_start() -> None:
    pem = rsa().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(BadKeys, match="JWT_SECRET: is a public key"):
        tokens(pem)


def test_no_key_is_shown_where_objects_are_printed() -> None:
    verifier = tokens()
    assert SECRET not in repr(vars(verifier))


# Rotation


def rotate(file: Path, *keys: Any) -> None:
    """Replaces the file in one step, as an operator should."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"keys": keys}))
    os.replace(new, file)


def test_keys_are_rotated_without_a_restart(tmp_path: Path) -> None:
    file = jwks(tmp_path, public_jwk(rsa(), kid="a"))
    verifier = tokens("", file)
    before = signed(claims(), rsa(), "RS256", kid="a")
    after = signed(claims(), ed25519(), "EdDSA", kid="b")
    assert verifier.verify(before, NOW)
    refused(verifier, after)
    rotate(file, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b"))
    assert verifier.verify(after, NOW + 1000)
    assert verifier.verify(before, NOW + 1000)
    rotate(file, public_jwk(ed25519(), kid="b"))
    assert verifier.verify(after, NOW + 2000)
    refused(verifier, before, NOW + 2000)  # although it was verified and cached


def test_a_change_of_the_file_is_found_after_the_clock_was_set_back(tmp_path: Path) -> None:
    file = jwks(tmp_path, public_jwk(rsa(), kid="a"))
    verifier = tokens("", file)
    assert verifier.verify(signed(claims(), rsa(), "RS256", kid="a"), NOW)
    rotate(file, public_jwk(ed25519(), kid="b"))
    refused(verifier, signed(claims(), rsa(), "RS256", kid="a"), NOW - 5000)


def test_a_file_that_became_invalid_changes_nothing_and_is_logged_once(tmp_path: Path) -> None:
    file = jwks(tmp_path, public_jwk(rsa(), kid="a"))
    verifier = tokens("", file)
    token = signed(claims(), rsa(), "RS256", kid="a")
    with capture_logs() as logs:
        file.write_text('{"keys": [')
        for second in range(1, 4):
            assert verifier.verify(token, NOW + second * 1000)
        file.unlink()
        for second in range(4, 7):
            assert verifier.verify(signed(claims(n=second), rsa(), "RS256", kid="a"), NOW + second * 1000)
    assert [(entry["log_level"], str(file) in entry["error"]) for entry in logs] == [("warning", True)] * 2
    rotate(file, public_jwk(ed25519(), kid="b"))
    refused(verifier, token, NOW + 8000)


# The cache


def test_a_cached_token_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    verifier, token = tokens(), signed(claims())
    first = verifier.verify(token, NOW)
    monkeypatch.setattr(Tokens, "_read", lambda *_: pytest.fail("it was verified again"))
    assert verifier.verify(token, NOW + 1) is first


def test_a_cached_token_expires() -> None:
    verifier, token = tokens(), signed(claims(exp=SECONDS + 10))
    assert verifier.verify(token, NOW)
    assert verifier.verify(token, NOW + 9_999)
    for _ in range(2):
        assert "expired" in refused(verifier, token, NOW + 10_000)
    assert not verifier._cache


def test_the_cache_is_limited_and_drops_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CACHED", 3)
    verifier = tokens()
    made = [signed(claims(user_id=number)) for number in range(5)]
    for token in made:
        verifier.verify(token, NOW)
    assert list(verifier._cache) == made[2:]


def test_a_refused_token_is_not_cached() -> None:
    verifier = tokens()
    for token in ("x", signed(claims(role="root")), signed(claims(exp=1)), signed(claims(), "y" * 32)):
        refused(verifier, token)
    assert not verifier._cache


def test_the_keys_of_a_file_are_read_as_they_are(tmp_path: Path) -> None:
    keys = load_jwks(jwks(tmp_path, public_jwk(rsa(), kid="a"), public_jwk(ed25519(), kid="b")))
    assert [(key.kid, key.algorithm) for key in keys] == [("a", "RS256"), ("b", "EdDSA")]
    assert keys[0].key == rsa().public_key()
    assert keys[1].key == ed25519().public_key()
