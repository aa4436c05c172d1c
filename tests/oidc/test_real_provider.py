"""The client with a real provider: a person signs in, and the keys are rotated."""

import asyncio
import http.client
import ssl
import time
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from hookmill.app.doctor.sign_in import check_provider
from hookmill.domain.errors import SignInRefused
from hookmill.domain.external_identity import ExternalIdentity, IdentityKey, SignInAttempt
from hookmill.domain.secret import SecretValue
from hookmill.oidc.cached import RELOAD_SECONDS
from hookmill.oidc.provider import Provider, ProviderConfig
from hookmill.settings import Settings
from tests.dashboard.client import Elements
from tests.support.openid_provider import CLIENT_ID, OpenIdProvider, serving_openid
from tests.support.world import PUBLIC_URL

REDIRECT_URI: Final = f"{PUBLIC_URL}/sign-in/oidc/callback"
ADA: Final[dict[str, Any]] = {"email": "ada@example.com", "name": "Ada L", "groups": ["developers"]}
ATTEMPT: Final = SignInAttempt(state="state", nonce="nonce", code_verifier="v" * 43, started_at=0)


@pytest.fixture(scope="module")
def provider(tmp_path_factory):
    with serving_openid(tmp_path_factory.mktemp("provider"), REDIRECT_URI, {"ada": ADA}) as running:
        yield running


class Client:
    """The service's client, with a clock for the age of its documents, and a person who signs in."""

    def __init__(self, provider: OpenIdProvider):
        self.seconds = 0.0
        self._issuer = provider.issuer
        config = ProviderConfig(
            issuer=provider.issuer,
            client_id=CLIENT_ID,
            client_secret=SecretValue(provider.client_secret),
            scopes="openid email profile",
            groups_claim="groups",
            redirect_uri=REDIRECT_URI,
            tls=ssl.create_default_context(),
        )
        self._provider = Provider(config, lambda: time.time_ns() // 1_000, monotonic=lambda: self.seconds)

    def answer(self, attempt: SignInAttempt = ATTEMPT) -> dict[str, str]:
        """What the browser brings back after the person has signed in."""
        _, form, _ = request("GET", asyncio.run(self._provider.authorization_url(attempt)))
        [token] = [field for field in Elements(form).with_tag("input") if field.attributes["name"] == "token"]
        fields = {"token": token.attributes["value"], "username": "ada", "password": "ada"}
        status, _, location = request("POST", f"{self._issuer}/login", fields)
        assert status == 303
        assert location.startswith(REDIRECT_URI)
        return dict(parse_qsl(urlsplit(location).query))

    def identify(self, answer: dict[str, str], attempt: SignInAttempt = ATTEMPT) -> ExternalIdentity:
        return asyncio.run(self._provider.identify(attempt, answer))


def request(method: str, url: str, fields: dict[str, str] | None = None) -> tuple[int, bytes, str]:
    """The status, the body and the target of a redirect."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, target, urlencode(fields or {}))
        response = connection.getresponse()
        return response.status, response.read(), response.headers.get("Location", "")
    finally:
        connection.close()


def test_person_signs_in(provider):
    client = Client(provider)

    identity = client.identify(client.answer())

    assert identity.key.issuer == provider.issuer
    assert identity == ExternalIdentity(
        key=IdentityKey(provider.issuer, identity.key.subject),
        email="ada@example.com",
        name="Ada L",
        groups=frozenset({"developers"}),
    )
    assert client.identify(client.answer()).key == identity.key


def test_code_works_once(provider):
    client = Client(provider)
    answer = client.answer()
    client.identify(answer)

    with pytest.raises(SignInRefused, match="was used before"):
        client.identify(answer)


def test_code_works_only_with_the_verifier_of_its_attempt(provider):
    client = Client(provider)
    other = SignInAttempt(state="state", nonce="nonce", code_verifier="w" * 43, started_at=0)

    with pytest.raises(SignInRefused, match="was used before"):
        client.identify(client.answer(other))


def test_token_has_the_nonce_of_its_attempt(provider):
    client = Client(provider)
    other = SignInAttempt(state="state", nonce="another", code_verifier="v" * 43, started_at=0)

    with pytest.raises(SignInRefused, match="its nonce differs"):
        client.identify(client.answer(other))


def test_rotated_key_is_loaded_a_minute_later(provider):
    client = Client(provider)
    client.identify(client.answer())
    provider.rotate_keys()

    with pytest.raises(SignInRefused, match="does not publish"):
        client.identify(client.answer())
    client.seconds = RELOAD_SECONDS

    assert client.identify(client.answer()).name == "Ada L"


def test_doctor_finds_no_problem(provider):
    settings = Settings(base_url=PUBLIC_URL, **provider.settings())

    about_redirect, about_provider = check_provider(settings)

    assert about_provider.observation == f"the provider {provider.issuer} answers, and has what a sign-in needs"
    assert about_redirect.observation.endswith(f"needs the redirect URI {REDIRECT_URI}")
