"""An OpenID Connect provider that tests can let misbehave: it signs what they want, and answers as they want.

`openid_provider` is a real provider, which behaves well.
"""

import base64
import contextlib
import dataclasses
import hashlib
import json
import secrets
import ssl
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

from joserfc import jwk, jws
from joserfc.errors import SecurityWarning

from hookmill.domain.external_identity import ExternalSignIn
from hookmill.domain.secret import SecretValue
from hookmill.oidc.provider import Provider, ProviderConfig
from tests.support.world import PUBLIC_URL, Clock

CLIENT_ID: Final = "hook mill"
CLIENT_SECRET: Final = "s3cr:t %+/ä"
"""With characters that must be encoded."""
REDIRECT_URI: Final = f"{PUBLIC_URL}/sign-in/oidc/callback"
_TLS: Final = ssl.create_default_context()
HUGE_BYTES: Final = 2_000_000
ADA: Final = {"sub": "ada", "email": "ada@example.com", "name": "Ada L", "groups": ["developers"]}


@dataclass(slots=True)
class Behaviour:
    """How the provider behaves. The defaults are those of a good provider."""

    person: dict[str, Any] = field(default_factory=lambda: dict(ADA))
    """The claims about the person who signs in."""
    claims: dict[str, Any] = field(default_factory=dict)
    """Claims of the ID token that replace the right ones. None: the claim is absent."""
    header: dict[str, Any] = field(default_factory=dict)
    """Header parameters of the ID token that replace the right ones. None: the parameter is absent."""
    signing_key: jwk.Key | None = None
    """None: the first published key."""
    id_token: str | None = None
    """The whole ID token, instead of a signed one."""
    access_token: str | None = None
    """None: a random one."""
    user_info: dict[str, Any] | None = None
    """The claims of the user info endpoint. None: there is no such endpoint."""
    discovery: dict[str, Any] = field(default_factory=dict)
    """Fields of the discovery document that replace the right ones."""
    answers: dict[str, str] = field(default_factory=dict)
    """Paths with how they answer: `500`, `hang`, `drip`, `huge`, `redirect`, `text`, or the code of an error."""
    accepts_codes_twice: bool = False


class SigningProvider:
    def __init__(self, clock: Clock, tls: ssl.SSLContext | None = None):
        self.clock = clock
        self.behaviour = Behaviour()
        self.keys: list[jwk.Key] = [new_key("ES256")]
        """The published keys."""
        self.requests: list[str] = []
        """The paths of all requests."""
        self.credentials: list[tuple[str, str]] = []
        """The ids and secrets with which clients authenticated."""
        self._codes: dict[str, dict[str, str]] = {}
        self._is_closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.issuer = f"{'http' if tls is None else 'https'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self):
        self._is_closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def client(self, **changes: Any) -> Provider:
        """The service's client of this provider. `changes` are fields of `ProviderConfig`."""
        monotonic = changes.pop("monotonic", lambda: self.clock.now / 1_000_000)
        config = ProviderConfig(
            issuer=self.issuer,
            client_id=CLIENT_ID,
            client_secret=SecretValue(CLIENT_SECRET),
            scopes="openid email profile",
            groups_claim="groups",
            redirect_uri=REDIRECT_URI,
            tls=_TLS,
        )
        return Provider(dataclasses.replace(config, **changes), self.clock, monotonic=monotonic)

    def rules(self, **changes: Any) -> ExternalSignIn:
        """Rules for this provider, without groups. `changes` are fields of `ExternalSignIn`."""
        rules = ExternalSignIn(issuer=self.issuer, provider_name="Example ID", session_hours=12)
        return dataclasses.replace(rules, **changes)

    def answer_to(self, authorization_url: str) -> dict[str, str]:
        """What a browser brings back that signs in at this URL: the parameters of the redirect to the service."""
        request = dict(parse_qsl(urlsplit(authorization_url).query))
        assert request["response_type"] == "code"
        assert request["client_id"] == CLIENT_ID
        assert request["redirect_uri"] == REDIRECT_URI
        assert request["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = request
        return {"code": code, "state": request["state"]}

    def callback_path(self, authorization_url: str, **changes: str) -> str:
        """The path to which the browser returns, with these changes of its parameters."""
        return f"/sign-in/oidc/callback?{urlencode(self.answer_to(authorization_url) | changes)}"

    # Endpoints

    def _discovery(self) -> dict[str, Any]:
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize?tenant=main",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
        }
        if self.behaviour.user_info is not None:
            document["userinfo_endpoint"] = f"{self.issuer}/userinfo"
        return document | self.behaviour.discovery

    def _redeem(self, form: Mapping[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
        if authorization.startswith("Basic "):
            encoded_id, _, encoded_secret = base64.b64decode(authorization[6:]).decode().partition(":")
            client_id, secret = unquote_plus(encoded_id), unquote_plus(encoded_secret)
        self.credentials.append((client_id, secret))
        request = self._codes.get(form["code"])
        if request is None:
            return 400, {"error": "invalid_grant"}
        if not self.behaviour.accepts_codes_twice:
            del self._codes[form["code"]]
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if challenge.decode() != request["code_challenge"] or form["redirect_uri"] != REDIRECT_URI:
            return 400, {"error": "invalid_grant"}
        access_token = self.behaviour.access_token or secrets.token_urlsafe(16)
        id_token = self.behaviour.id_token or self._sign(request["nonce"], access_token)
        return 200, {"token_type": "Bearer", "access_token": access_token, "id_token": id_token}

    def _sign(self, nonce: str, access_token: str) -> str:
        now = self.clock.now // 1_000_000
        key = self.behaviour.signing_key or self.keys[0]
        header = {"alg": key.get("alg"), "kid": key.kid} | self.behaviour.header
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "at_hash": half_hash(access_token, "sha512" if str(header["alg"]).startswith("Ed") else "sha256"),
            **self.behaviour.person,
            **self.behaviour.claims,
        }
        return sign(header, claims, key)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self._answer(b"")

            def do_POST(self):
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, body: bytes):
                path = self.path.partition("?")[0]
                provider.requests.append(path)
                with contextlib.suppress(OSError):
                    if (answer := provider.behaviour.answers.get(path)) is not None:
                        self._misbehave(answer)
                    elif path == "/.well-known/openid-configuration":
                        self._send(200, provider._discovery())
                    elif path == "/jwks":
                        self._send(200, {"keys": [key.as_dict(private=False) for key in provider.keys]})
                    elif path == "/token":
                        form = dict(parse_qsl(body.decode()))
                        self._send(*provider._redeem(form, self.headers.get("Authorization", "")))
                    elif path == "/userinfo":
                        assert self.headers["Authorization"].startswith("Bearer ")
                        self._send(200, provider.behaviour.user_info or {})

            def _misbehave(self, answer: str):
                match answer:
                    case "hang":
                        provider._is_closing.wait()
                    case "drip":
                        self.send_response(200)
                        self.send_header("Content-Length", "1000")
                        self.end_headers()
                        while not provider._is_closing.wait(0.05):
                            self.wfile.write(b" ")
                            self.wfile.flush()
                    case "huge":
                        self._send(200, {"filler": "x" * HUGE_BYTES})
                    case "redirect":
                        self._send(307, {}, Location=f"{provider.issuer}/elsewhere")
                    case "text":
                        self._send_bytes(200, b"[" * 100_000)
                    case "500":
                        self._send(500, {})
                    case _:
                        code, _, description = answer.partition(": ")
                        self._send(400, {"error": code, "error_description": description or code})

            def _send(self, status: int, content: Mapping[str, Any], **headers: str):
                self._send_bytes(status, json.dumps(content).encode(), **headers)

            def _send_bytes(self, status: int, content: bytes, **headers: str):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object):
                pass

        return Handler


_TYPES: Final[Mapping[str, tuple[str, Any]]] = {
    "RS256": ("RSA", 2048),
    "PS256": ("RSA", 2048),
    "RS512": ("RSA", 2048),
    "ES256": ("EC", "P-256"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}


def new_key(algorithm: str) -> jwk.Key:
    """A new private key for this algorithm. Each has an id of its own."""
    key_type, size = _TYPES[algorithm]
    return jwk.JWKRegistry.generate_key(key_type, size, {"alg": algorithm, "use": "sig", "kid": secrets.token_hex(4)})


def sign(header: Mapping[str, Any], claims: Mapping[str, Any], key: jwk.Key) -> str:
    """A JWT with this header and these claims, without those that are None. With the algorithm `none`, it is not
    signed."""
    payload = json.dumps({name: value for name, value in claims.items() if value is not None})
    present = {name: value for name, value in header.items() if value is not None}
    if present["alg"] == "none":
        parts = (json.dumps(present).encode(), payload.encode(), b"")
        return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)
    with warnings.catch_warnings():
        # Of algorithms that the library discourages.
        warnings.simplefilter("ignore", SecurityWarning)
        registry = jws.JWSRegistry(algorithms=list(jws.JWSRegistry.algorithms), strict_check_header=False)
        return jws.serialize_compact(present, payload, key, registry=registry)


def half_hash(text: str, algorithm: str) -> str:
    digest = hashlib.new(algorithm, text.encode()).digest()
    return base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()


@contextmanager
def signing_provider(
    clock: Clock, certificate: Path | None = None, key: Path | None = None
) -> Iterator[SigningProvider]:
    """A provider, with TLS if there is a certificate."""
    tls = None
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)
    provider = SigningProvider(clock, tls)
    try:
        yield provider
    finally:
        provider.close()
