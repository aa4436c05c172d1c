"""How a GitHub App identifies itself: its JSON Web Token, and which keys and permissions are usable."""

import base64
import functools

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from hookmill.domain.errors import Invalid
from hookmill.domain.github_app import app_jwt, app_key, permissions_to_request
from hookmill.domain.results import ResultKind
from hookmill.domain.secret import SecretValue

NOW = 1_764_000_000


# Keys take long to generate, so tests that are only collected generate none.
@functools.cache
def own_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65_537, 2_048)


def pem(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey,
    encryption: serialization.KeySerializationEncryption | None = None,
    form: serialization.PrivateFormat = serialization.PrivateFormat.TraditionalOpenSSL,
) -> str:
    return key.private_bytes(serialization.Encoding.PEM, form, encryption or serialization.NoEncryption()).decode()


def test_jwt_is_verified_by_another_library():
    token = app_jwt("Iv23liabc", app_key(SecretValue(pem(own_key()))), NOW)

    claims = jwt.decode(
        token.reveal(),
        own_key().public_key(),
        algorithms=["RS256"],
        issuer="Iv23liabc",
        options={"verify_exp": False, "require": ["iat", "exp", "iss"]},
    )
    assert jwt.get_unverified_header(token.reveal()) == {"typ": "JWT", "alg": "RS256"}
    assert claims == {"iat": NOW - 60, "exp": NOW + 480, "iss": "Iv23liabc"}
    assert claims["exp"] - claims["iat"] < 600
    assert "eyJ" not in repr(token)


def encrypted() -> str:
    return pem(own_key(), serialization.BestAvailableEncryption(b"x"), serialization.PrivateFormat.PKCS8)


def public() -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return own_key().public_key().public_bytes(serialization.Encoding.PEM, form).decode()


@pytest.mark.parametrize(
    "text",
    [
        lambda: pem(own_key()),
        lambda: pem(own_key(), form=serialization.PrivateFormat.PKCS8),
        lambda: base64.b64encode(pem(own_key()).encode()).decode(),
        lambda: base64.encodebytes(pem(own_key()).encode()).decode(),
        lambda: pem(own_key()).replace("\n", "\\n"),
        lambda: '"' + pem(own_key()).replace("\n", "\\n") + '"',
        lambda: "'" + pem(own_key()).replace("\n", "\r\n") + "'\n",
        lambda: pem(own_key()).replace("\n", "\\r\\n"),
        lambda: "\n".join(f"    {line}" for line in pem(own_key()).splitlines()),
        lambda: pem(own_key()).replace("\n", " "),
        lambda: '"' + base64.b64encode(pem(own_key()).encode()).decode() + '"\n',
        lambda: "\ufeff" + pem(own_key()),
    ],
    ids=[
        "pkcs1",
        "pkcs8",
        "base64",
        "base64-lines",
        "escapes",
        "quoted-escapes",
        "quoted-crlf",
        "crlf-escapes",
        "indented",
        "spaces",
        "quoted-base64",
        "byte-order-mark",
    ],
)
def test_key_is_read_in_each_form(text):
    assert app_key(SecretValue(text())).private_numbers() == own_key().private_numbers()


@pytest.mark.parametrize(
    "text",
    [
        lambda: "",
        lambda: "secret-of-the-test",
        lambda: "c2VjcmV0",
        lambda: "kéy",
        lambda: "-----BEGIN \udcff",
        lambda: pem(own_key())[:-100],
        encrypted,
        lambda: pem(rsa.generate_private_key(65_537, 1_024)),
        lambda: pem(ec.generate_private_key(ec.SECP256R1())),
        public,
    ],
    ids=["empty", "text", "base64", "not-ascii", "not-utf-8", "cut", "encrypted", "short", "elliptic", "public"],
)
def test_unusable_key_is_refused_without_its_value(text):
    with pytest.raises(Invalid) as caught:
        app_key(SecretValue(text()))

    assert str(caught.value) == (
        "It must be the PEM file of the app's private key, which GitHub generates, or this file in base64."
    )


@pytest.mark.parametrize(
    ("kind", "granted", "requested"),
    [
        (ResultKind.GITHUB_CHECK, {"checks": "write", "contents": "write"}, {"checks": "write"}),
        (ResultKind.GITHUB_CHECK, {"checks": "read"}, {}),
        (ResultKind.GITHUB_STATUS, {"statuses": "write", "checks": "write"}, {"statuses": "write"}),
        (ResultKind.GITHUB_COMMENT, {"issues": "write", "pull_requests": "read"}, {"issues": "write"}),
        (ResultKind.GITHUB_COMMENT, {}, {}),
        (ResultKind.GITHUB_COMMENT, None, {}),
    ],
)
def test_token_gets_only_permissions_that_the_result_needs(kind, granted, requested):
    assert permissions_to_request(kind, granted) == requested
