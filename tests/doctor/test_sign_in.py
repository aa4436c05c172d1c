"""`hookmill doctor` checks the OpenID Connect provider, and names the redirect URI to register."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from hookmill.app.doctor.check import Check, findings_of
from hookmill.app.doctor.host import check_proxies
from hookmill.app.doctor.sign_in import check_provider
from hookmill.domain.finding import Finding, Status
from hookmill.settings import Settings
from tests.notices.receivers import closed_port
from tests.support.certificates import certificates_in
from tests.support.signing_provider import REDIRECT_URI, signing_provider
from tests.support.world import PUBLIC_URL, Clock

SECRET: Final = "secret-of-the-client"
DISCOVERY: Final = "/.well-known/openid-configuration"


@pytest.fixture
def provider():
    with signing_provider(Clock()) as running:
        yield running


def finding_about(issuer: str, **settings: Any) -> Finding:
    """The finding about the provider. The redirect URI is named, whatever this finding is."""
    required: Mapping[str, Any] = {"base_url": PUBLIC_URL, "oidc_issuer": issuer, "oidc_client_id": "hookmill"}
    configured = Settings(**{**required, "oidc_client_secret": SECRET, **settings})
    redirect, finding = findings_of(Check("OpenID Connect", check_provider), configured)
    assert redirect.observation == f"the client hookmill at the provider needs the redirect URI {REDIRECT_URI}"
    assert redirect.status is Status.OK
    assert SECRET not in f"{finding}{redirect}"
    return finding


def test_suitable_provider_has_no_problem(provider):
    finding = finding_about(provider.issuer)

    assert finding.observation == f"the provider {provider.issuer} answers, and has what a sign-in needs"
    assert finding.status is Status.OK
    # Nobody signs in.
    assert provider.requests == [DISCOVERY, "/jwks"]


def test_proxy_that_cannot_be_used_is_a_problem_of_the_sign_in(provider, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://user:canary@127.0.0.1:1080")

    finding = finding_about(provider.issuer)
    [of_proxies] = findings_of(Check("proxies", lambda _: check_proxies()), None)

    for each in (finding, of_proxies):
        assert each.observation.startswith("ALL_PROXY names a proxy of the kind socks5 that can't be used.")
        assert each.status is Status.PROBLEM
        assert "canary" not in str(each)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert finding_about(provider.issuer).status is Status.OK


def test_nothing_is_checked_without_a_provider():
    assert list(check_provider(Settings())) == []


@pytest.mark.parametrize(
    ("document", "observation"),
    [
        (
            {"issuer": "https://id.test/"},
            "is the document of the issuer 'https://id.test/'. Set oidc_issuer to exactly",
        ),
        ({"token_endpoint": None}, "has no usable token_endpoint"),
        ({"response_types_supported": ["id_token"]}, "does not support the authorization code flow"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not support PKCE with S256"),
        (
            {"id_token_signing_alg_values_supported": ["HS256"]},
            "signs ID tokens with none of RS256, PS256, ES256, EdDSA, Ed25519",
        ),
        (
            {"token_endpoint_auth_methods_supported": ["private_key_jwt"]},
            "accepts a client secret by none of client_secret_basic, client_secret_post",
        ),
    ],
)
def test_unsuitable_discovery_document_is_a_problem(provider, document, observation):
    provider.behaviour.discovery = document

    finding = finding_about(provider.issuer)

    assert finding.status is Status.PROBLEM
    assert observation in finding.observation
    assert finding.advice


def test_provider_that_lists_what_is_needed_has_no_problem(provider):
    provider.behaviour.discovery = {
        "response_types_supported": ["code", "id_token"],
        "code_challenge_methods_supported": ["plain", "S256"],
        "id_token_signing_alg_values_supported": ["HS256", "ES256"],
        "token_endpoint_auth_methods_supported": ["client_secret_post"],
    }

    assert finding_about(provider.issuer).status is Status.OK


def test_public_client_needs_no_way_to_send_a_secret(provider):
    provider.behaviour.discovery = {"token_endpoint_auth_methods_supported": ["none"]}

    assert finding_about(provider.issuer, oidc_client_secret=None).status is Status.OK


def test_provider_without_a_usable_key_is_a_problem(provider):
    provider.keys = []

    assert finding_about(provider.issuer).observation == f"{provider.issuer}/jwks answered with no usable key"


def test_unreachable_provider_is_a_problem():
    with closed_port() as port:
        finding = finding_about(f"http://127.0.0.1:{port}")

    assert finding.status is Status.PROBLEM
    assert finding.observation.startswith(f"Could not connect to http://127.0.0.1:{port}{DISCOVERY}")
    assert "oidc_issuer" in finding.advice


def test_unusable_file_with_authorities_is_a_problem(tmp_path):
    finding = finding_about("https://127.0.0.1:1", oidc_ca_file=tmp_path / "missing.pem")

    assert finding.status is Status.PROBLEM
    assert "The file of oidc_ca_file" in finding.observation


def test_own_certificate_authority_is_trusted_if_its_file_is_set(tmp_path):
    ca, certificate, key = certificates_in(tmp_path)
    with signing_provider(Clock(), certificate, key) as provider:
        without_file, with_file = finding_about(provider.issuer), finding_about(provider.issuer, oidc_ca_file=ca)

    assert "is not valid: unable to get local issuer certificate" in without_file.observation
    assert "oidc_ca_file" in without_file.advice
    assert with_file.status is Status.OK
