"""Tokens and keys: the key decides the algorithm, and nothing that was touched verifies."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from kblockd.policy.bundles.jws import BadKey, BadToken, Token, VerificationKey
from tests.contract.policy.bundles import KeyPair, encoded

RSA_2048 = rsa.generate_private_key(65537, 2048)
PAIRS = [
    KeyPair(),
    KeyPair(algorithm="RS256", private=RSA_2048),
    KeyPair(algorithm="PS256", private=RSA_2048),
    KeyPair(algorithm="EdDSA", private=ed25519.Ed25519PrivateKey.generate()),
]
BY_ALGORITHM = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.algorithm)


@BY_ALGORITHM
def test_token_of_the_key(pair: KeyPair) -> None:
    token = Token.read(pair.token({"files": [], "scope": "x"}))
    assert pair.verifying.verify(token)
    assert (token.key, token.algorithm, token.claims["scope"]) == ("release", pair.algorithm, "x")
    assert "PUBLIC" not in repr(pair.verifying)


@BY_ALGORITHM
def test_pol_05_nothing_that_was_touched_verifies(pair: KeyPair) -> None:
    """Each part of the token changed, cut or exchanged with that of another token."""
    text, other = pair.token({"files": [], "n": 1}), pair.token({"files": [], "n": 2})
    header, claims, signature = text.split(".")
    assert not pair.verifying.verify(Token.read(f"{header}.{other.split('.')[1]}.{signature}"))
    assert not pair.verifying.verify(Token.read(f"{header}.{claims}."))
    assert not pair.verifying.verify(Token.read(f"{header}.{claims}.{encoded(bytes(64))}"))
    for position in range(0, len(signature) - 4, 9):
        swapped = "A" if signature[position] != "A" else "B"
        changed = f"{header}.{claims}.{signature[:position]}{swapped}{signature[position + 1 :]}"
        assert not pair.verifying.verify(Token.read(changed))


def test_signature_of_another_length_with_the_same_numbers() -> None:
    """RFC 7518 section 3.4: both halves have the length of the field."""
    head, claims, signature = PAIRS[0].token({}).split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    padded = encoded(raw[:32] + b"\0" + raw[32:])
    assert not PAIRS[0].verifying.verify(Token.read(f"{head}.{claims}.{padded}"))


def test_another_key_of_the_same_kind() -> None:
    assert not KeyPair().verifying.verify(Token.read(KeyPair().token({})))


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS256", "ES384", ""])
def test_pol_05_the_key_decides_which_algorithm(algorithm: str) -> None:
    """RFC 8725 section 3.1: no ``none``, and no public key taken for a shared secret."""
    pair = PAIRS[0]
    assert not pair.verifying.verify(Token.read(pair.token({}, {"alg": algorithm, "kid": "release"})))


@BY_ALGORITHM
@pytest.mark.parametrize("extra", [{"b64": False}, {"kid": "release", "b64": False}], ids=["unnamed", "named"])
def test_a_payload_that_is_not_base64_is_not_verified(pair: KeyPair, extra: dict[str, Any]) -> None:
    """RFC 7797 section 6: ``b64`` counts only where ``crit`` lists it, which is refused; a reader that knows it would
    take other bytes for the payload."""
    assert not pair.verifying.verify(Token.read(pair.token({}, {"alg": pair.algorithm, **extra})))


@BY_ALGORITHM
def test_pol_05_a_key_in_the_header_verifies_nothing(pair: KeyPair) -> None:
    """RFC 8725 section 3.10: neither ``jwk`` nor a reference to a key is followed."""
    other = KeyPair(algorithm="EdDSA", private=ed25519.Ed25519PrivateKey.generate())
    raw = other.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    own = {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": encoded(raw)}, "jku": "https://evil.example/", "x5c": ["AA=="]}
    for algorithm in (pair.algorithm, "EdDSA"):
        token = Token.read(other.token({}, {"alg": algorithm, "kid": "release", **own}))
        assert not pair.verifying.verify(token)


def test_rsa_key_of_one_padding_does_not_verify_the_other() -> None:
    pkcs1, pss = PAIRS[1], PAIRS[2]
    forged = pkcs1.token({}, {"alg": "PS256"})
    assert not pss.verifying.verify(Token.read(forged))
    assert not pkcs1.verifying.verify(Token.read(pkcs1.token({}, {"alg": "PS256"})))


@pytest.mark.parametrize(
    ("header", "claims", "key"),
    [
        ({"alg": "ES256", "kid": "a"}, {}, "a"),
        ({"alg": "ES256"}, {"keyid": "a"}, "a"),
        ({"alg": "ES256", "kid": "a"}, {"keyid": "a"}, "a"),
        ({"alg": "ES256", "typ": "JWT"}, {}, ""),
    ],
)
def test_which_key_it_names(header: dict[str, Any], claims: dict[str, Any], key: str) -> None:
    assert Token.read(PAIRS[0].token(claims, header)).key == key


def _token(header: str, claims: str = "{}", signature: str = "AA") -> str:
    return f"{encoded(header.encode())}.{encoded(claims.encode())}.{signature}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a.b",
        "a.b.c.d",
        _token('{"alg":"ES256"}', signature="A="),
        _token('{"alg":"ES256"}', signature="AB"),
        _token('{"alg":"ES256"}', signature="+/AA"),
        _token('{"alg":"ES256"}', signature="é"),
        _token("[]"),
        _token('{"alg":"ES256","alg":"none"}'),
        _token('{"alg":7}'),
        _token('{"alg":"ES256","kid":7}'),
        _token('{"alg":"ES256","kid":["a"]}'),
        _token('{"alg":"ES256","kid":"a"}', '{"keyid":"b"}'),
        _token('{"alg":"ES256","crit":["b64"],"b64":false}'),
        _token('{"alg":"ES256"}', '{"files":[],"files":[]}'),
        _token('{"alg":"ES256"}', '{"exp":1e400}'),
        _token('{"alg":"ES256"}', "[" * 10_000),
    ],
)
def test_what_is_no_token(text: str) -> None:
    with pytest.raises(BadToken):
        Token.read(text)


def _pem(private: Any) -> bytes:
    return KeyPair(private=private).public_pem


@pytest.mark.parametrize(
    ("algorithm", "pem", "message"),
    [
        ("ES256", _pem(ec.generate_private_key(ec.SECP384R1())), "cannot verify ES256"),
        ("ES256", _pem(ec.generate_private_key(ec.SECP256K1())), "cannot verify ES256"),
        ("ES384", _pem(ec.generate_private_key(ec.SECP256R1())), "cannot verify ES384"),
        ("ES256", _pem(RSA_2048), "cannot verify ES256"),
        ("RS256", _pem(PAIRS[0].private), "cannot verify RS256"),
        ("EdDSA", _pem(PAIRS[0].private), "cannot verify EdDSA"),
        ("RS256", _pem(rsa.generate_private_key(65537, 1024)), "1024 bits, at least 2048"),
        ("HS256", _pem(RSA_2048), "cannot verify HS256"),
        ("none", _pem(PAIRS[0].private), "cannot verify none"),
        ("ES256", b"secret", "no public key in PEM"),
        ("ES256", b"", "no public key in PEM"),
        (
            "ES256",
            PAIRS[0].private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
            "holds a private key",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "pem",  # the keys are new in each process
)
def test_key_that_does_not_fit(algorithm: str, pem: bytes, message: str) -> None:
    """No key verifies by two algorithms, none by a shared secret; the message never quotes the file."""
    with pytest.raises(BadKey, match=message) as raised:
        VerificationKey.from_pem("release", algorithm, pem)
    assert "secret" not in str(raised.value)
    assert "BEGIN" not in str(raised.value)


def test_claims_are_read_once_and_strictly() -> None:
    claims = {"files": [{"name": "é", "hash": "0", "algorithm": "SHA-256"}], "iat": 1.5}
    assert json.loads(json.dumps(claims)) == Token.read(PAIRS[0].token(claims)).claims
