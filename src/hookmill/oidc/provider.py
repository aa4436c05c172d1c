"""The client of an OpenID Connect provider: creates the URL at which a browser signs in, and verifies who signed in."""

import base64
import hashlib
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

from joserfc.jwk import Key

from hookmill.domain import json_pointer
from hookmill.domain.errors import ProviderUnavailable, SignInRefused
from hookmill.domain.external_identity import ExternalIdentity, IdentityKey, SignInAttempt, usable_groups
from hookmill.domain.secret import SecretValue
from hookmill.oidc.cached import CachedDocument
from hookmill.oidc.http import HttpClient, JsonResponse
from hookmill.oidc.id_token import ACCEPTED_ALGORITHMS, UnknownKey, usable_keys, verified_claims
from hookmill.oidc.metadata import Metadata, load_metadata
from hookmill.outbound.answer_text import has_part

ANSWER_CHARACTERS_MAX: Final = 8_192
"""The maximum length of each parameter in the provider's answer."""
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,60}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderConfig:
    issuer: str
    client_id: str
    client_secret: SecretValue | None
    """None for a public client."""
    scopes: str
    groups_claim: str
    """The name of the claim with the groups, or a JSON pointer to it."""
    redirect_uri: str
    tls: ssl.SSLContext
    """Verifies the provider's certificate."""


class Provider:
    """An OpenID Connect provider, for one event loop. The methods raise `ProviderUnavailable` and `SignInRefused`."""

    def __init__(
        self,
        config: ProviderConfig,
        now_us: Callable[[], int],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`now_us`: the time in µs since 1970. `monotonic`: in seconds, for the age of cached documents."""
        self._config = config
        self._now_us = now_us
        self._http = HttpClient(config.tls)
        self._metadata = CachedDocument(self._load_metadata, monotonic=monotonic)
        self._keys = CachedDocument(self._load_keys, monotonic=monotonic)

    async def check(self) -> Sequence[str]:
        """Load what a sign-in needs, and return what the provider lacks for it. Raises `ProviderUnavailable`."""
        metadata = await self._metadata.get()
        faults = metadata.unsupported(ACCEPTED_ALGORITHMS, has_client_secret=self._config.client_secret is not None)
        if not faults:
            await self._keys.get()
        return faults

    async def authorization_url(self, attempt: SignInAttempt) -> str:
        """The URL at which the browser signs in for this attempt."""
        endpoint = (await self._metadata.get()).authorization_endpoint
        challenge = hashlib.sha256(attempt.code_verifier.encode()).digest()
        query = urlencode(
            {
                "response_type": "code",
                "response_mode": "query",
                "client_id": self._config.client_id,
                "redirect_uri": self._config.redirect_uri,
                "scope": self._config.scopes,
                "state": attempt.state,
                "nonce": attempt.nonce,
                "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{query}"

    async def identify(self, attempt: SignInAttempt, answer: Mapping[str, str]) -> ExternalIdentity:
        """The person whom the provider's answer is about.

        `answer`: the parameters with which the browser returned. The caller has compared their state with the
        attempt's.
        """
        metadata = await self._metadata.get()
        tokens = await self._redeem(metadata, attempt, self._code_in(metadata, answer))
        id_token, access_token = tokens.get("id_token"), tokens.get("access_token")
        if not isinstance(id_token, str):
            raise ProviderUnavailable(f"{metadata.token_endpoint} sent no ID token. Check oidc_scopes.")
        # Other characters can't be sent in a header.
        if not isinstance(access_token, str) or not access_token.isascii() or not access_token.isprintable():
            raise ProviderUnavailable(f"{metadata.token_endpoint} sent no usable access token.")
        claims = await self._verify(id_token, access_token, attempt)
        user_info: Mapping[str, Any] = {}
        if _text(claims.get("email")) is None or self._groups_in(claims) is None:
            user_info = await self._user_info(metadata, access_token, claims["sub"])
        return self._identity(claims, user_info)

    def _code_in(self, metadata: Metadata, answer: Mapping[str, str]) -> str:
        """The authorization code in the answer."""
        if any(len(value) > ANSWER_CHARACTERS_MAX for value in answer.values()):
            raise SignInRefused("The answer of the sign-in service is too long.", is_suspicious=False)
        # A code of another provider must not be sent to this provider's token endpoint (mix-up attack).
        issuer = answer.get("iss", None if metadata.has_issuer_in_answers else self._config.issuer)
        if issuer != self._config.issuer:
            raise SignInRefused("The answer is from another sign-in service.")
        if (error := answer.get("error")) is not None:
            code = error if _ERROR_CODE.match(error) else "unknown error"
            raise SignInRefused(f"The sign-in service refused the sign-in: {code}.", is_suspicious=False)
        if not answer.get("code"):
            raise SignInRefused("The answer of the sign-in service has no code.", is_suspicious=False)
        return answer["code"]

    async def _redeem(self, metadata: Metadata, attempt: SignInAttempt, code: str) -> Mapping[str, Any]:
        """The answer of the token endpoint for this code."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._config.redirect_uri,
            "code_verifier": attempt.code_verifier,
        }
        headers: dict[str, str] = {}
        secret = self._config.client_secret
        if secret is None:
            form["client_id"] = self._config.client_id
        elif metadata.client_auth_method == "client_secret_basic":
            # RFC 6749, section 2.3.1: both parts are encoded like the fields of a form.
            credentials = f"{quote_plus(self._config.client_id)}:{quote_plus(secret.reveal())}"
            headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        elif metadata.client_auth_method == "client_secret_post":
            form |= {"client_id": self._config.client_id, "client_secret": secret.reveal()}
        else:
            raise ProviderUnavailable(
                "The provider accepts a client secret neither by client_secret_basic nor by client_secret_post."
            )
        secrets = [code, attempt.code_verifier, *([secret.reveal(), *headers.values()] if secret is not None else [])]
        response = await self._http.post(metadata.token_endpoint, form, headers=headers, secrets=secrets)
        if response.status != 200:
            _raise_token_error(metadata, response, secrets)
        return response.content

    async def _verify(self, id_token: str, access_token: str, attempt: SignInAttempt) -> Mapping[str, Any]:
        """The claims of the ID token. The keys are loaded again if none of them fits, because keys are rotated."""
        try:
            return self._claims(id_token, access_token, attempt, await self._keys.get())
        except UnknownKey:
            return self._claims(id_token, access_token, attempt, await self._keys.get_newer())

    def _claims(
        self, id_token: str, access_token: str, attempt: SignInAttempt, keys: Sequence[Key]
    ) -> Mapping[str, Any]:
        return verified_claims(
            id_token,
            keys,
            issuer=self._config.issuer,
            client_id=self._config.client_id,
            nonce=attempt.nonce,
            access_token=access_token,
            now_seconds=self._now_us() // 1_000_000,
        )

    async def _user_info(self, metadata: Metadata, access_token: str, subject: str) -> Mapping[str, Any]:
        """The claims of the user info endpoint; none if the provider has no such endpoint."""
        if metadata.userinfo_endpoint is None:
            return {}
        user_info = await self._http.get(
            metadata.userinfo_endpoint, headers={"Authorization": f"Bearer {access_token}"}, secrets=[access_token]
        )
        if user_info.get("sub") != subject:
            raise SignInRefused("The user info is about another person than the ID token.")
        return user_info

    def _identity(self, claims: Mapping[str, Any], user_info: Mapping[str, Any]) -> ExternalIdentity:
        """The person. A claim of the ID token, which is signed, is preferred to the same claim of the user info."""
        groups = next((groups for each in (claims, user_info) if (groups := self._groups_in(each)) is not None), None)
        distributed = claims.get("_claim_names")
        if groups is None and isinstance(distributed, Mapping) and self._config.groups_claim in distributed:
            raise SignInRefused(
                "You are in more groups than the sign-in service sends. Ask the operator of Hookmill to let it send "
                "only the groups that Hookmill needs."
            )

        def first_text(*names: str) -> str | None:
            texts = (_text(each.get(name)) for name in names for each in (claims, user_info))
            return next((text for text in texts if text is not None), None)

        # Entra ID has the address of a person without a mailbox in `preferred_username` only.
        return ExternalIdentity(
            key=IdentityKey(self._config.issuer, claims["sub"]),
            email=first_text("email", "preferred_username"),
            name=first_text("name", "preferred_username"),
            groups=usable_groups(groups),
        )

    def _groups_in(self, claims: Mapping[str, Any]) -> object:
        """The value of the claim with the groups; None if there is none."""
        name = self._config.groups_claim
        value: object = claims
        for step in json_pointer.steps_of(name) if name.startswith("/") else [name]:
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    async def _load_metadata(self) -> Metadata:
        return await load_metadata(self._http, self._config.issuer)

    async def _load_keys(self) -> Sequence[Key]:
        metadata = await self._metadata.get()
        keys = usable_keys(await self._http.get(metadata.jwks_uri))
        if not keys:
            raise ProviderUnavailable(f"{metadata.jwks_uri} answered with no usable key.")
        return keys


def _raise_token_error(metadata: Metadata, response: JsonResponse, secrets: Sequence[str]) -> None:
    error = _text(response.content.get("error")) or ""
    code = error if _ERROR_CODE.match(error) and not has_part(error, secrets) else "unknown error"
    if code == "invalid_grant":
        raise SignInRefused("The sign-in took too long, or was used before. Try again.", is_suspicious=False)
    raise ProviderUnavailable(
        f"{metadata.token_endpoint} refused the request: {code} (status {response.status}){response.words}. Check "
        f"oidc_client_id, oidc_client_secret and the redirect URI at the provider."
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
