"""The tokens with which a GitHub App sends results. Each is for one repository and for one kind of result.

The app signs a JSON Web Token, finds its installation for the repository, and gets a token that is valid for an hour.
Tokens are kept in memory only.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import DestinationUnavailable, Invalid
from hookmill.domain.github_app import PERMISSIONS, app_jwt, app_key, permissions_to_request
from hookmill.domain.moment import parse_iso
from hookmill.domain.results import ResultKind
from hookmill.domain.secret import SecretValue
from hookmill.outbound import http
from hookmill.outbound.connection import MessageDeadline
from hookmill.results.api import DestinationApi, Reply
from hookmill.results.destinations import AppCredential
from hookmill.store.results import NotSent

Value = TypeVar("Value")

TOKENS_MAX: Final = 1_000
MARGIN_US: Final = 300_000_000
"""A token is not used in its last five minutes, because the clocks of the hosts may differ."""
_USED_US_MAX: Final = 3_600_000_000 - MARGIN_US
"""The longest time for which a token is used. If this host's clock is behind, GitHub's expiry seems too far away; this
limit then applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationToken:
    value: SecretValue
    app_number: int
    """The number that GitHub calls App ID, also if the settings name a client ID."""
    usable_until: int
    """In µs since 1970."""
    app_slug: str | None = None
    """The app's name in URLs, of which the login of its account consists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPurpose:
    """What a token is for: an app at the URL of an API, a repository and a kind of result."""

    url: str
    credential: AppCredential
    repository: str
    kind: ResultKind


class AppTokens:
    """Gets tokens, and keeps them until shortly before they expire. Threads may share it."""

    def __init__(self, api: DestinationApi, now_us: Callable[[], int]) -> None:
        self._api = api
        self._now_us = now_us
        self._lock = threading.Lock()
        self._tokens: OrderedDict[TokenPurpose, InstallationToken] = OrderedDict()

    def get(
        self, purpose: TokenPurpose, key: SecretValue, deadline: MessageDeadline, *, rejected: bool = False
    ) -> InstallationToken | NotSent:
        """A token, or why there is none. `rejected`: GitHub has refused the one that is kept.

        Raises `DestinationUnavailable`, but never its subclass `NoDestinationResponse`, because no message was sent.
        """
        with self._lock:
            kept = self._tokens.pop(purpose, None)
            if kept is not None and not rejected and self._now_us() < kept.usable_until:
                self._tokens[purpose] = kept
                return kept
        try:
            token = self._new(purpose, key, deadline)
        except http.NoDestinationResponse as error:
            raise DestinationUnavailable(str(error)) from None
        if isinstance(token, InstallationToken):
            with self._lock:
                self._tokens[purpose] = token
                while len(self._tokens) > TOKENS_MAX:
                    self._tokens.popitem(last=False)
        return token

    def app(self, url: str, credential: AppCredential, key: SecretValue, deadline: MessageDeadline) -> Reply:
        """GitHub's description of the app. The request proves that the key belongs to the app."""
        return self._request("GET", f"{url}/app", self._headers(credential, key), None, deadline)

    def _new(self, purpose: TokenPurpose, key: SecretValue, deadline: MessageDeadline) -> InstallationToken | NotSent:
        app = purpose.credential.app_id
        headers = self._headers(purpose.credential, key)
        url = f"{purpose.url}/repos/{purpose.repository}/installation"
        outcome, installation = self._request("GET", url, headers, None, deadline)
        if isinstance(outcome, NotSent):
            return _failure(outcome, f"The GitHub App {app} is not installed for {purpose.repository}. Install it.")
        number, app_number = _field(installation, "id", int), _field(installation, "app_id", int)
        permissions = permissions_to_request(purpose.kind, _field(installation, "permissions", dict))
        if not permissions:
            names = " or ".join(PERMISSIONS[purpose.kind])
            return NotSent(
                problem=f"The GitHub App {app} may not send a {purpose.kind.value} to {purpose.repository}. Give it "
                f"write access to {names}, and accept this for the installation.",
                status=outcome.status,
            )
        body = {"repositories": [purpose.repository.partition("/")[2]], "permissions": permissions}
        url = f"{purpose.url}/app/installations/{number}/access_tokens"
        outcome, answer = self._request("POST", url, headers, body, deadline)
        if isinstance(outcome, NotSent):
            return _failure(outcome, f"The GitHub App {app} gets no token for {purpose.repository}.")
        now = self._now_us()
        try:
            expires_at = parse_iso(_field(answer, "expires_at", str))
        except ValueError:
            raise DestinationUnavailable("GitHub answered with a token without the time at which it expires.") from None
        return InstallationToken(
            value=SecretValue(_field(answer, "token", str)),
            app_number=app_number,
            usable_until=min(expires_at - MARGIN_US, now + _USED_US_MAX),
            app_slug=installation.get("app_slug"),
        )

    def _headers(self, credential: AppCredential, key: SecretValue) -> dict[str, str]:
        return app_headers(credential, key, self._now_us() // 1_000_000)

    def _request(self, method: str, url: str, headers: dict[str, str], body: Any, deadline: MessageDeadline) -> Reply:
        content = json.dumps(body).encode() if body is not None else None
        return self._api.request(method, parsed_url(SecretValue(url)), content, headers, deadline)


def api_headers(token: SecretValue) -> dict[str, str]:
    """The headers of a request to GitHub or Gitea."""
    value = token.reveal()
    if not value.isascii() or not value.isprintable():
        raise DestinationUnavailable("The token has characters that no header can have. Correct its variable.")
    return {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {value}",
        "X-GitHub-Api-Version": "2022-11-28",
    }


def _failure(outcome: NotSent, text: str) -> NotSent:
    """Why there is no token. An operator may correct everything that leads to it, so another attempt follows."""
    if outcome.status == 401:
        text = "GitHub refused the key of the app. Check app_id and the variable of app_key_from."
    elif outcome.status not in (404, 422):
        text = ""
    return NotSent(
        problem=f"{text} {outcome.problem}".strip(),
        status=outcome.status,
        retry_after_seconds=outcome.retry_after_seconds,
    )


def _field(answer: Any, name: str, kind: type[Value]) -> Value:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DestinationUnavailable(f"GitHub answered without the field {name}.")
    return value


def app_headers(credential: AppCredential, key: SecretValue, now_seconds: int) -> dict[str, str]:
    """The headers of a request as the app. Raises `DestinationUnavailable` for an unusable key."""
    try:
        jwt = app_jwt(credential.app_id, app_key(key), now_seconds)
    except Invalid as error:
        raise DestinationUnavailable(f"The variable {credential.variable} has no usable key. {error}") from None
    return api_headers(jwt)
