"""The client of an OpenID Connect provider: what it accepts, and which answers it refuses."""

import asyncio
import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from joserfc import jwk
from joserfc.errors import SecurityWarning

from hookmill.domain.errors import ProviderUnavailable, SignInRefused
from hookmill.domain.external_identity import ExternalIdentity, IdentityKey, SignInAttempt
from hookmill.oidc import http, id_token
from hookmill.oidc.cached import RELOAD_SECONDS, RETRY_SECONDS, VALID_SECONDS
from hookmill.oidc.provider import ANSWER_CHARACTERS_MAX, Provider
from hookmill.outbound.connection import LOOKUPS_MAX
from tests.support.certificates import certificates_in
from tests.support.signing_provider import (
    ADA,
    CLIENT_ID,
    CLIENT_SECRET,
    SigningProvider,
    new_key,
    sign,
    signing_provider,
)
from tests.support.waiting import LONG_SECONDS, stalls
from tests.support.world import Clock

ATTEMPT: Final = SignInAttempt(state="state", nonce="nonce", code_verifier="v" * 43, started_at=0)
METADATA, TOKEN, KEYS, USER_INFO = "/.well-known/openid-configuration", "/token", "/jwks", "/userinfo"


def identify(provider: SigningProvider, client: Provider | None = None, /, **answer: str | None) -> ExternalIdentity:
    """Sign in once. `answer` has changes of the provider's answer; None removes a parameter."""

    async def sign_in() -> ExternalIdentity:
        used_client = client or provider.client()
        parameters: Mapping[str, str | None] = {
            **provider.answer_to(await used_client.authorization_url(ATTEMPT)),
            **answer,
        }
        return await used_client.identify(
            ATTEMPT, {name: value for name, value in parameters.items() if value is not None}
        )

    return asyncio.run(sign_in())


def refusal(provider: SigningProvider, **answer: str | None) -> str:
    """The reason for which the client refuses the provider's answer."""
    with pytest.raises(SignInRefused) as raised:
        identify(provider, **answer)
    return str(raised.value)


def failure(provider: SigningProvider, client: Provider | None = None) -> str:
    """The reason for which the provider counts as unavailable."""
    with pytest.raises(ProviderUnavailable) as raised:
        identify(provider, client)
    return str(raised.value)


# People


def test_person_is_described_by_the_id_token(provider):
    identity = identify(provider)

    assert identity == ExternalIdentity(
        key=IdentityKey(provider.issuer, "ada"),
        email="ada@example.com",
        name="Ada L",
        groups=frozenset({"developers"}),
    )
    assert provider.requests == [METADATA, TOKEN, KEYS]


def test_claims_that_the_id_token_lacks_come_from_the_user_info(provider):
    provider.behaviour.person = {"sub": "ada", "email": "from@id.token"}
    provider.behaviour.user_info = dict(ADA)

    identity = identify(provider)

    assert (identity.email, identity.name, identity.groups) == (
        "from@id.token",
        "Ada L",
        frozenset({"developers"}),
    )
    assert provider.requests[-1] == USER_INFO


def test_user_info_about_another_person_is_refused(provider):
    provider.behaviour.person = {"sub": "ada"}
    provider.behaviour.user_info = ADA | {"sub": "mallory", "groups": ["admins"]}

    assert refusal(provider) == "The user info is about another person than the ID token."


@pytest.mark.parametrize(
    ("claims", "name", "groups"),
    [
        ({"groups": "one"}, "groups", {"one"}),
        ({"groups": ["a", "a", 5, None, "", "b", "x" * 513]}, "groups", {"a", "b"}),
        ({"groups": [str(number) for number in range(3_000)]}, "groups", {str(number) for number in range(2_000)}),
        ({"groups": {"admins": True}}, "groups", set()),
        ({"realm_access": {"roles": ["a"]}}, "/realm_access/roles", {"a"}),
        ({"realm_access": ["a"]}, "/realm_access/roles", set()),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", {"a"}),
        ({"a/b": ["a"]}, "/a~1b", {"a"}),
        ({}, "groups", set()),
    ],
)
def test_groups_are_read_from_the_claim_of_the_settings(provider, claims, name, groups):
    provider.behaviour.person = {"sub": "ada", "email": "ada@example.com", **claims}

    assert identify(provider, provider.client(groups_claim=name)).groups == groups


def test_groups_that_do_not_fit_into_the_token_are_reported(provider):
    provider.behaviour.person = {"sub": "ada", "_claim_names": {"groups": "src1"}}

    assert "more groups than the sign-in service sends" in refusal(provider)


def test_address_may_be_in_the_preferred_username(provider):
    provider.behaviour.person = {"sub": "ada", "preferred_username": "ada@corp.example", "groups": []}

    identity = identify(provider)

    assert (identity.email, identity.name) == ("ada@corp.example", "ada@corp.example")


# The client's own identity


def test_secret_is_sent_in_a_header_that_encodes_it(provider):
    identify(provider)

    assert provider.credentials == [(CLIENT_ID, CLIENT_SECRET)]


def test_secret_is_sent_in_the_body_if_the_provider_wants_this(provider):
    provider.behaviour.discovery = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}

    identify(provider)

    assert provider.credentials == [(CLIENT_ID, CLIENT_SECRET)]


def test_public_client_sends_only_its_id(provider):
    identify(provider, provider.client(client_secret=None))

    assert provider.credentials == [(CLIENT_ID, "")]


def test_provider_that_accepts_no_secret_is_reported(provider):
    provider.behaviour.discovery = {"token_endpoint_auth_methods_supported": ["private_key_jwt"]}

    assert "neither by client_secret_basic nor by client_secret_post" in failure(provider)


# ID tokens


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA", "Ed25519"])
def test_token_with_an_accepted_algorithm_signs_in(provider, algorithm):
    provider.keys = [new_key(algorithm)]

    assert identify(provider).key.subject == "ada"


WRONG_CLAIMS: Final[Mapping[str, tuple[dict[str, Any], str]]] = {
    "another issuer": ({"iss": "https://evil.example"}, "another issuer"),
    "issuer with a slash": ({"iss": "{issuer}/"}, "another issuer"),
    "issuers": ({"iss": ["{issuer}"]}, "another issuer"),
    "no issuer": ({"iss": None}, "incomplete: Missing claim: 'iss'"),
    "another audience": ({"aud": "another client"}, "another client: its audience"),
    "other audiences": ({"aud": ["another client", "a third"]}, "another client: its audience"),
    "no audience": ({"aud": None}, "incomplete: Missing claim: 'aud'"),
    "several audiences without azp": ({"aud": [CLIENT_ID, "another client"]}, "another client: its azp"),
    "another azp": ({"azp": "another client"}, "another client: its azp"),
    "several audiences, another azp": ({"aud": [CLIENT_ID, "b"], "azp": "b"}, "another client: its azp"),
    "expired": ({"exp": -61}, "has expired"),
    "no end": ({"exp": None}, "incomplete: Missing claim: 'exp'"),
    "end that is no number": ({"exp": "never"}, "invalid exp"),
    "issued in the future": ({"iat": 61}, "issued in the future"),
    "no issue time": ({"iat": None}, "incomplete: Missing claim: 'iat'"),
    "not valid yet": ({"nbf": 61}, "not valid yet"),
    "another nonce": ({"nonce": "of another sign-in"}, "its nonce differs"),
    "nonces": ({"nonce": ["nonce", "another"]}, "its nonce differs"),
    "no nonce": ({"nonce": None}, "its nonce differs"),
    "hash of another access token": ({"at_hash": "A" * 22}, "its at_hash differs"),
    "no subject": ({"sub": None}, "incomplete: Missing claim: 'sub'"),
    "empty subject": ({"sub": ""}, "invalid sub"),
    "long subject": ({"sub": "s" * 256}, "unusable subject"),
    "subject with a control character": ({"sub": "ada\x00"}, "unusable subject"),
    "subject that is no text": ({"sub": 5}, "invalid sub"),
}
"""Claims with the reason of their refusal. Numbers are seconds from now."""


@pytest.mark.parametrize(("claims", "reason"), WRONG_CLAIMS.values(), ids=WRONG_CLAIMS)
def test_token_with_a_wrong_claim_is_refused(provider, clock, claims, reason):
    provider.behaviour.claims = {name: relative(value, provider, clock) for name, value in claims.items()}

    assert reason in refusal(provider)


def relative(value: Any, provider: SigningProvider, clock: Clock) -> Any:
    match value:
        case int() if value != 5:
            return clock.now // 1_000_000 + value
        case str():
            return value.replace("{issuer}", provider.issuer)
        case list():
            return [relative(each, provider, clock) for each in value]
        case _:
            return value


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": -59},
        {"iat": 60},
        {"nbf": 60},
        {"aud": [CLIENT_ID]},
        {"aud": [CLIENT_ID, "another client"], "azp": CLIENT_ID},
        {"at_hash": None},
    ],
)
def test_token_within_the_rules_signs_in(provider, clock, claims):
    provider.behaviour.claims = {name: relative(value, provider, clock) for name, value in claims.items()}

    assert identify(provider).key.subject == "ada"


def base64_of(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def forged_without_signature(provider: SigningProvider):
    provider.behaviour.header = {"alg": "none"}


def forged_with_the_public_key(provider: SigningProvider):
    # The attack on libraries that verify an HMAC with the key that they know.
    public_key = provider.keys[0].as_pem(private=False)  # type: ignore[union-attr]
    provider.behaviour.signing_key = jwk.OctKey.import_key(public_key.hex())
    provider.behaviour.header = {"alg": "HS256", "kid": provider.keys[0].kid}


def signed_by_another_key(provider: SigningProvider):
    provider.behaviour.signing_key = new_key("ES256")
    provider.behaviour.header = {"kid": provider.keys[0].kid}


def signed_by_a_key_that_the_token_brings(provider: SigningProvider):
    key = provider.behaviour.signing_key = new_key("ES256")
    provider.behaviour.header = {"jwk": key.as_dict(private=False), "kid": None}


def signed_by_an_unpublished_key(provider: SigningProvider):
    provider.behaviour.signing_key = new_key("ES256")


def signed_with_an_unaccepted_algorithm(provider: SigningProvider):
    provider.keys = [new_key("RS512")]


def signed_by_a_key_for_another_algorithm(provider: SigningProvider):
    provider.keys = [new_key("RS256")]
    private_key = jwk.RSAKey.import_key(provider.keys[0].as_pem(private=True))  # type: ignore[union-attr]
    provider.behaviour.id_token = sign({"alg": "PS256", "kid": provider.keys[0].kid}, {"sub": "ada"}, private_key)


def signed_by_a_short_key(provider: SigningProvider):
    with pytest.warns(SecurityWarning):
        short_key = jwk.RSAKey.generate_key(1024, {"alg": "RS256", "kid": "short"}, private=True)
    provider.keys = [short_key, *provider.keys]


def signed_by_a_key_for_encryption(provider: SigningProvider):
    encryption_key = jwk.ECKey.generate_key("P-256", {"use": "enc", "alg": "ES256", "kid": "enc"}, private=True)
    provider.keys = [encryption_key, *provider.keys]
    provider.behaviour.id_token = sign(
        {"alg": "ES256", "kid": "enc"}, {"sub": "ada"}, jwk.ECKey.import_key(encryption_key.as_pem(private=True))
    )


def changed_after_signing(provider: SigningProvider):
    token = sign({"alg": "ES256", "kid": provider.keys[0].kid}, {"sub": "ada"}, provider.keys[0])
    other = sign({"alg": "ES256", "kid": provider.keys[0].kid}, {"sub": "eve"}, provider.keys[0])
    head, _, signature = token.split(".")
    provider.behaviour.id_token = ".".join([head, other.split(".")[1], signature])


def no_token_at_all(provider: SigningProvider):
    provider.behaviour.id_token = "not.a-token"


def header_with_a_wrong_type(provider: SigningProvider):
    header = base64_of(b'{"alg": "ES256", "crit": 5}')
    provider.behaviour.id_token = f"{header}.e30.AA"


def deep_claims(provider: SigningProvider):
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    provider.behaviour.claims = {"sub": deep}


FORGERIES: Final[Mapping[Callable[[SigningProvider], None], str]] = {
    forged_without_signature: "signed with 'none'",
    forged_with_the_public_key: "signed with 'HS256'",
    signed_by_another_key: "signature of the ID token is wrong",
    signed_by_a_key_that_the_token_brings: "signature of the ID token is wrong",
    signed_by_an_unpublished_key: "a key that the provider does not publish",
    signed_with_an_unaccepted_algorithm: "signed with 'RS512'",
    signed_by_a_key_for_another_algorithm: "a key that the provider does not publish",
    signed_by_a_short_key: "a key that the provider does not publish",
    signed_by_a_key_for_encryption: "a key that the provider does not publish",
    changed_after_signing: "signature of the ID token is wrong",
    no_token_at_all: "not a signed token",
    header_with_a_wrong_type: "signature of the ID token is wrong",
    deep_claims: "invalid sub",
}


@pytest.mark.parametrize(
    ("forge", "reason"), FORGERIES.items(), ids=[forge.__name__.replace("_", " ") for forge in FORGERIES]
)
def test_forged_token_is_refused(provider, forge, reason):
    forge(provider)

    assert reason in refusal(provider)


def test_key_without_an_id_verifies_a_token_without_one(provider):
    provider.keys = [new_key("ES256"), new_key("ES256")]
    provider.behaviour.signing_key = provider.keys[1]
    provider.behaviour.header = {"kid": None}

    assert identify(provider).key.subject == "ada"


def test_unusable_keys_are_ignored():
    good = new_key("ES256")
    entries: list[Any] = [
        5,
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": "!", "e": 5},
        {"kty": "RSA", "n": base64_of(b"\xff" * 128), "e": "AQAB"},
        {"kty": "RSA", "n": base64_of(b"\x00" * 256 + b"\xff" * 128), "e": "AQAB"},
        {"kty": "RSA", "n": base64_of(b"\xff" * 2_049), "e": "AQAB"},
        {"kty": "RSA", "n": "_" * 200_000, "e": "AQAB"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA"},
        {"kty": ["EC"]},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA"},
        good.as_dict(private=False),
    ]

    assert [key.kid for key in id_token.usable_keys({"keys": entries})] == [good.kid]
    assert id_token.usable_keys({"keys": "none"}) == []
    assert len(id_token.usable_keys({"keys": [good.as_dict(private=False)] * 1_000})) == id_token.KEYS_MAX


# Rotation of keys, and documents in memory


def test_rotated_key_is_loaded_at_the_next_sign_in(provider, clock):
    client = provider.client()
    identify(provider, client)
    provider.keys = [new_key("ES256")]
    clock.advance(seconds=RELOAD_SECONDS)

    identity = identify(provider, client)

    assert identity.key.subject == "ada"
    assert provider.requests.count(KEYS) == 2


def test_removed_key_is_no_longer_accepted(provider, clock):
    client = provider.client()
    stolen = provider.keys[0]
    identify(provider, client)
    provider.keys = [new_key("ES256")]
    provider.behaviour.signing_key = stolen
    clock.advance(seconds=VALID_SECONDS)

    with pytest.raises(SignInRefused, match="does not publish"):
        identify(provider, client)


def test_unknown_keys_cause_one_request_a_minute(provider, clock):
    client = provider.client()
    provider.behaviour.signing_key = new_key("ES256")
    for _ in range(5):
        with pytest.raises(SignInRefused):
            identify(provider, client)
    requests_before = provider.requests.count(KEYS)
    clock.advance(seconds=RELOAD_SECONDS)
    for _ in range(5):
        with pytest.raises(SignInRefused):
            identify(provider, client)

    assert (requests_before, provider.requests.count(KEYS)) == (1, 2)


def test_simultaneous_sign_ins_share_one_request_for_the_discovery_document(provider):
    client = provider.client()

    async def start_many():
        return set(await asyncio.gather(*(client.authorization_url(ATTEMPT) for _ in range(20))))

    [url] = asyncio.run(start_many())

    assert url.startswith(f"{provider.issuer}/authorize?tenant=main&response_type=code&")
    assert provider.requests == [METADATA]


def test_failed_discovery_is_not_repeated_for_every_sign_in(provider, clock):
    client = provider.client()
    provider.behaviour.answers = {METADATA: "500"}
    reasons = {failure(provider, client) for _ in range(5)}
    provider.behaviour.answers = {}
    clock.advance(seconds=RETRY_SECONDS)

    assert identify(provider, client).key.subject == "ada"
    assert len(reasons) == 1
    assert provider.requests.count(METADATA) == 2


def test_client_that_disconnects_does_not_cancel_the_load_of_others(provider):
    client = provider.client()

    async def start_two():
        first = asyncio.create_task(client.authorization_url(ATTEMPT))
        second = asyncio.create_task(client.authorization_url(ATTEMPT))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(start_two()).startswith(provider.issuer)


# Discovery


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"issuer": "https://evil.example"}, "is the document of the issuer 'https://evil.example'"),
        ({"issuer": None}, "/.well-known/openid-configuration names no issuer"),
        ({"issuer": 5}, "/.well-known/openid-configuration names no issuer"),
        ({"authorization_endpoint": None}, "has no usable authorization_endpoint"),
        ({"token_endpoint": "javascript:alert(1)"}, "token_endpoint in the discovery document"),
        ({"token_endpoint": "https://[broken/"}, "token_endpoint in the discovery document"),
        ({"authorization_endpoint": "https://id.example/\r\nSet-Cookie: a=b"}, "no usable authorization_endpoint"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri in the discovery document"),
        ({"jwks_uri": 5}, "has no usable jwks_uri"),
    ],
)
def test_unusable_discovery_document_is_reported(provider, document, reason):
    provider.behaviour.discovery = document

    assert reason in failure(provider)


# Answers of the browser


def test_answer_of_another_issuer_is_refused(provider):
    assert refusal(provider, iss="https://evil.example") == "The answer is from another sign-in service."
    assert TOKEN not in provider.requests


def test_answer_without_the_issuer_is_refused_if_the_provider_sends_it(provider):
    provider.behaviour.discovery = {"authorization_response_iss_parameter_supported": True}

    assert refusal(provider) == "The answer is from another sign-in service."
    assert identify(provider, iss=provider.issuer).key.subject == "ada"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"error": "access_denied", "code": None}, "refused the sign-in: access_denied."),
        ({"error": "<b>Call 555-1234 now</b>"}, "refused the sign-in: unknown error."),
        ({"code": None}, "has no code"),
        ({"code": ""}, "has no code"),
        ({"code": "c" * (ANSWER_CHARACTERS_MAX + 1)}, "too long"),
        ({"code": "guessed"}, "took too long, or was used before"),
    ],
)
def test_answer_that_signs_nobody_in_is_refused(provider, answer, reason):
    with pytest.raises(SignInRefused, match=reason) as raised:
        identify(provider, **answer)

    assert not raised.value.is_suspicious


def test_code_of_another_attempt_is_refused(provider):
    client = provider.client()
    other = SignInAttempt(state="s", nonce="nonce", code_verifier="w" * 43, started_at=0)

    async def inject():
        answer = provider.answer_to(await client.authorization_url(other))
        await client.identify(ATTEMPT, answer)

    with pytest.raises(SignInRefused, match="took too long"):
        asyncio.run(inject())


# Providers that fail


@pytest.mark.parametrize("path", [METADATA, TOKEN, KEYS, USER_INFO])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("500", "answered with the status 500"),
        ("huge", "answered with more than 262,144 bytes"),
        ("redirect", "answered with a redirect (307)"),
        ("text", "with no JSON object"),
        ("server_error", "(400|refused the request: server_error)"),
    ],
)
def test_provider_that_fails_is_unavailable(provider, path, answer, reason):
    provider.behaviour.person = {"sub": "ada"}
    provider.behaviour.user_info = dict(ADA)
    provider.behaviour.answers = {path: answer}

    with pytest.raises(ProviderUnavailable, match=reason.replace("(307)", r"\(307\)")):
        identify(provider)

    assert "/elsewhere" not in provider.requests


def test_error_about_keys_names_only_what_is_wrong(provider):
    provider.behaviour.answers = {KEYS: "invalid_request"}
    with_wrong_status = failure(provider)
    provider.behaviour.answers = {}
    provider.keys = []
    provider.behaviour.signing_key = new_key("ES256")

    assert with_wrong_status == f'{provider.issuer}/jwks answered with the status 400: "invalid_request".'
    assert failure(provider) == f"{provider.issuer}/jwks answered with no usable key."


@pytest.mark.parametrize("path", [METADATA, TOKEN])
@pytest.mark.parametrize("answer", ["hang", "drip"])
def test_provider_that_hangs_is_given_up(provider, path, answer, monkeypatch):
    client = provider.client()
    if path == TOKEN:
        # The client keeps the metadata, so that only the request that hangs has the short limit.
        asyncio.run(client.authorization_url(ATTEMPT))
    monkeypatch.setattr(http, "REQUEST_SECONDS", 2)
    provider.behaviour.answers = {path: answer}
    started_at = time.monotonic()

    with stalls() as stalls_seconds:
        reason = failure(provider, client)

    assert reason == f"{provider.issuer}{path} did not answer within 2 seconds."
    assert time.monotonic() - started_at - sum(stalls_seconds) < 20


def test_provider_that_is_down_is_reported_without_a_secret(provider):
    client = provider.client(issuer="http://127.0.0.1:9")

    reason = failure(provider, client)

    assert reason.startswith("Could not connect to http://127.0.0.1:9/.well-known/openid-configuration")


@pytest.mark.parametrize("code", ["invalid_client", "unauthorized_client", "invalid_request"])
def test_refused_client_is_reported_with_the_settings_to_check(provider, code):
    provider.behaviour.answers = {TOKEN: f"{code}: AADSTS7000215: Invalid\nclient secret"}

    reason = failure(provider)

    assert f'refused the request: {code} (status 400): "AADSTS7000215: Invalid client secret". Check oidc' in reason
    provider.behaviour.answers = {TOKEN: f"{code}: {CLIENT_SECRET} is wrong"}
    reason = failure(provider)
    assert "(status 400): its text contains a part of the credential and is not shown. Check oidc_client_id" in reason
    assert CLIENT_SECRET not in reason


@pytest.mark.parametrize("access_token", ["t\u00f6ken", "a\r\nb"])
def test_access_token_that_fits_into_no_header_is_reported_without_it(provider, access_token):
    provider.behaviour.access_token = access_token
    provider.behaviour.person = {"sub": "ada"}
    provider.behaviour.user_info = dict(ADA)

    assert failure(provider) == f"{provider.issuer}/token sent no usable access token."


def test_proxy_that_cannot_be_used_is_named_unless_the_provider_is_excluded(provider, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    assert failure(provider).startswith("ALL_PROXY names a proxy of the kind socks5 that can't be used.")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    assert identify(provider).email == "ada@example.com"


def test_certificate_must_be_trusted(clock, tmp_path):
    ca, certificate, key = certificates_in(tmp_path)
    with signing_provider(clock, certificate, key) as provider:
        reason = failure(provider)
        identity = identify(provider, provider.client(tls=ssl.create_default_context(cafile=ca)))

    assert "is not valid: unable to get local issuer certificate" in reason
    assert identity.key == IdentityKey(provider.issuer, "ada")


def test_endpoint_without_tls_is_refused_if_the_issuer_has_tls(clock, tmp_path):
    ca, certificate, key = certificates_in(tmp_path)
    with signing_provider(clock, certificate, key) as provider:
        provider.behaviour.discovery = {"token_endpoint": "http://127.0.0.1/token"}

        reason = failure(provider, provider.client(tls=ssl.create_default_context(cafile=ca)))

    assert "token_endpoint in the discovery document" in reason


def test_look_ups_of_names_that_hang_leave_the_threads_of_the_service_free(monkeypatch):
    is_over = threading.Event()
    look_ups: list[str] = []

    def hang(host, *_, **__):
        look_ups.append(host)
        is_over.wait()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.3)
    client = http.HttpClient(ssl.create_default_context())

    async def work_while_look_ups_hang():
        try:
            requests = [client.get("https://id.example/") for _ in range(40)]
            failures = await asyncio.gather(*requests, return_exceptions=True)
            return failures, await asyncio.wait_for(asyncio.to_thread(lambda: "done"), timeout=LONG_SECONDS)
        finally:
            is_over.set()

    failures, work = asyncio.run(work_while_look_ups_hang())

    assert {str(failure) for failure in failures} <= {
        "https://id.example/ did not answer within 0.3 seconds.",
        "The name of https://id.example/ can't be looked up: too many look-ups wait for an answer.",
    }
    assert work == "done"
    assert 0 < len(look_ups) <= LOOKUPS_MAX
