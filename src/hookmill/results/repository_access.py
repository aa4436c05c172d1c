"""Requests to a GitHub or a Gitea with the credential of a destination: a token, or the key of a GitHub App."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from hookmill.domain.alarm_destination import parsed_url
from hookmill.domain.errors import DestinationUnavailable
from hookmill.domain.results import ResultKind
from hookmill.domain.secret import SecretValue
from hookmill.outbound.connection import MessageDeadline
from hookmill.results.api import DestinationApi, Reply
from hookmill.results.app_tokens import AppTokens, TokenPurpose, api_headers
from hookmill.results.destinations import AppCredential, RepositoryDestination, TokenCredential
from hookmill.store.results import NotSent, Sent

_RESULTS_BY_PERMISSION: Final[Mapping[str, str]] = {
    "checks": "check runs",
    "statuses": "commit statuses",
    "issues": "comments on issues",
    "pull_requests": "comments and reviews on pull requests",
}


@dataclass(slots=True, kw_only=True)
class RepositoryAccess:
    """Requests about one message, with the credential of its destination."""

    api: DestinationApi
    tokens: AppTokens
    destination: RepositoryDestination
    secret: SecretValue
    repository: str
    kind: ResultKind
    deadline: MessageDeadline
    app_number: int | None = field(default=None, init=False)
    """The number of the app whose token was used."""
    _app_slug: str | None = field(default=None, init=False)
    _is_renewed: bool = field(default=False, init=False)
    _account: int | None = field(default=None, init=False)
    """The number of the token's user."""
    _is_account_read: bool = field(default=False, init=False)

    def call(self, method: str, path: str, content: Any = None) -> Reply:
        """Send a request to a path of the repository. A token of an app that has become invalid is replaced once."""
        body = json.dumps(content).encode() if content is not None else None
        return self._call(method, f"/repos/{self.repository}{path}", body)

    def text(self, path: str, accept: str) -> Reply:
        """Get the beginning of a text from a path of the repository."""
        return self._call("GET", f"/repos/{self.repository}{path}", None, accept)

    def is_author(self, source: Any) -> bool | NotSent | None:
        """Whether the account or the app of the credential has written this comment or review.

        None: the token may not read its user, as those for few things. `NotSent`: the user could not be read now.
        """
        if isinstance(self.destination.credential, AppCredential):
            app, user = _member(source, "performed_via_github_app"), _member(source, "user")
            if app is not None:
                return number_of(app) == self.app_number
            # A review does not name its app. People's logins have no brackets.
            return self._app_slug is not None and _member(user, "login") == f"{self._app_slug}[bot]"
        if not self._is_account_read:
            outcome, account = self._call("GET", "/user", None)
            if isinstance(outcome, NotSent) and outcome.status not in (403, 404):
                return outcome
            self._account, self._is_account_read = number_of(account), True
        return None if self._account is None else number_of(_member(source, "user")) == self._account

    def _call(self, method: str, path: str, body: bytes | None, accept: str | None = None) -> Reply:
        headers = self._headers(accept)
        if isinstance(headers, NotSent):
            return headers, None
        # Each part of the path is verified, or escaped.
        url = parsed_url(SecretValue(f"{self.destination.url}{path}"))
        as_text = accept is not None
        reply = self.api.request(method, url, body, headers, self.deadline, as_text=as_text)
        is_refused = isinstance(reply[0], NotSent) and reply[0].status == 401
        if not is_refused or self._is_renewed or not isinstance(self.destination.credential, AppCredential):
            return reply
        self._is_renewed = True
        headers = self._headers(accept, rejected=True)
        if isinstance(headers, NotSent):
            return headers, None
        return self.api.request(method, url, body, headers, self.deadline, as_text=as_text)

    def _headers(self, accept: str | None, *, rejected: bool = False) -> dict[str, str] | NotSent:
        headers = self._credential_headers(rejected=rejected)
        return headers if isinstance(headers, NotSent) or accept is None else headers | {"Accept": accept}

    def _credential_headers(self, *, rejected: bool) -> dict[str, str] | NotSent:
        match self.destination.credential:
            case TokenCredential():
                return api_headers(self.secret)
            case AppCredential() as credential:
                purpose = TokenPurpose(
                    url=self.destination.url,
                    credential=credential,
                    repository=self.repository,
                    kind=self.kind,
                )
                token = self.tokens.get(purpose, self.secret, self.deadline, rejected=rejected)
                if isinstance(token, NotSent):
                    return token
                self.app_number, self._app_slug = token.app_number, token.app_slug
                return api_headers(token.value)
            case credential:
                assert_never(credential)


def _member(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else None


def number_of(source: Any) -> int | None:
    """The number that identifies an object of the API."""
    number = _member(source, "id")
    return number if type(number) is int and 0 < number < 2**63 else None


def check_credential(
    destination: RepositoryDestination,
    secret: SecretValue,
    api: DestinationApi,
    tokens: AppTokens,
    deadline: MessageDeadline,
) -> str:
    """What the destination says about its credential, as the end of a sentence, such as "accepts the token".

    Raises `DestinationUnavailable`.
    """
    match destination.credential:
        case TokenCredential():
            return _check_token(destination, secret, api, deadline)
        case AppCredential() as credential:
            outcome, app = tokens.app(destination.url, credential, secret, deadline)
            if isinstance(outcome, NotSent):
                # GitHub answers with 404 if there is no such app.
                is_refused = outcome.status in (401, 404)
                raise DestinationUnavailable(
                    f"{outcome.problem} It does not accept the key of the app {credential.app_id}."
                    if is_refused
                    else outcome.problem
                )
            return _description_of_app(app)
        case credential:
            assert_never(credential)


def _check_token(
    destination: RepositoryDestination, secret: SecretValue, api: DestinationApi, deadline: MessageDeadline
) -> str:
    url = parsed_url(SecretValue(f"{destination.url}/user"))
    outcome, _ = api.request("GET", url, None, api_headers(secret), deadline)
    if isinstance(outcome, Sent):
        return "accepts the token"
    match outcome.status:
        case 401:
            raise DestinationUnavailable(f"{url.origin} refused the token.")
        case 403:
            # Tokens for few things, such as those of apps, may not read their user.
            return "answers, and the token may not read its user, so it was not checked"
        case _:
            raise DestinationUnavailable(outcome.problem)


def _description_of_app(app: Any) -> str:
    source = app if isinstance(app, dict) else {}
    if source.get("installations_count") == 0:
        raise DestinationUnavailable("The app is installed nowhere. Install it for the repositories.")
    permissions = source.get("permissions")
    granted = permissions if isinstance(permissions, dict) else {}
    sendable = [text for name, text in _RESULTS_BY_PERMISSION.items() if granted.get(name) == "write"]
    if not sendable:
        raise DestinationUnavailable("The app has none of the permissions that results need.")
    return f"accepts the key of the app, which may write {', '.join(sendable)}"
