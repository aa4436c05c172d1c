"""How a GitHub App identifies itself: with a JSON Web Token (JWT) that its private key signs."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from hookmill.domain.errors import Invalid
from hookmill.domain.results import ResultKind
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import trimmed_text

APP_ID_PATTERN: Final = "[A-Za-z0-9._-]{1,64}"
"""A client ID, such as Iv23liabcdefghijklmn, or the number that GitHub calls App ID."""
RSA_BITS_MIN: Final = 2_048
_PEM: Final = re.compile(
    rb"(?P<begin>-----BEGIN [A-Z ]+-----)(?P<content>[A-Za-z0-9+/=\s]+)(?P<end>-----END [A-Z ]+-----)"
)
_JWT_AGE_SECONDS: Final = 60
"""How far in the past `iat` is, because the clock of GitHub may be late."""
_JWT_SECONDS: Final = 480
"""How long a JWT is valid from now on. From `iat`, it is valid for less than the 10 minutes that GitHub permits."""

PERMISSIONS: Final[Mapping[ResultKind, tuple[str, ...]]] = {
    ResultKind.GITHUB_CHECK: ("checks",),
    ResultKind.GITHUB_STATUS: ("statuses",),
    ResultKind.GITHUB_COMMENT: ("issues", "pull_requests"),
    ResultKind.GITHUB_REVIEW: ("pull_requests",),
}
"""To send a result, an app needs write permission for one of these."""


def app_key(text: SecretValue) -> RSAPrivateKey:
    """The private key in a PEM file, or in the base64 text of a PEM file. Raises `Invalid` without any part of it.

    Lines may be joined by `\\n`, indented or quoted: environment files and YAML often change a text of several lines.
    """
    try:
        # A variable that is not UTF-8 can't be encoded.
        source = trimmed_text(text.reveal()).encode().replace(b"\\r", b"").replace(b"\\n", b"\n").strip(b"\"' \t\r\n")
        if not source.startswith(b"-----BEGIN"):
            source = base64.b64decode(b"".join(source.split()), validate=True)
        if (parts := _PEM.fullmatch(source.strip())) is None:
            raise ValueError("not one key in PEM")
        content = b"".join(parts["content"].split())
        lines = [content[start : start + 64] for start in range(0, len(content), 64)]
        source = b"\n".join([parts["begin"], *lines, parts["end"], b""])
        key = serialization.load_pem_private_key(source, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error):
        key = None
    if not isinstance(key, RSAPrivateKey) or key.key_size < RSA_BITS_MIN:
        raise Invalid(
            "It must be the PEM file of the app's private key, which GitHub generates, or this file in base64."
        )
    return key


def app_jwt(app_id: str, key: RSAPrivateKey, now_seconds: int) -> SecretValue:
    """The JWT with which the app asks for tokens."""
    claims = {"iat": now_seconds - _JWT_AGE_SECONDS, "exp": now_seconds + _JWT_SECONDS, "iss": app_id}
    content = ".".join(_encoded(json.dumps(each).encode()) for each in ({"typ": "JWT", "alg": "RS256"}, claims))
    signature = key.sign(content.encode(), PKCS1v15(), hashes.SHA256())
    return SecretValue(f"{content}.{_encoded(signature)}")


def permissions_to_request(kind: ResultKind, granted: object) -> dict[str, str]:
    """The permissions of a token for one result, of those that the app has been granted. Empty: it can't be sent."""
    grants = granted if isinstance(granted, dict) else {}
    return {name: "write" for name in PERMISSIONS[kind] if grants.get(name) == "write"}


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
