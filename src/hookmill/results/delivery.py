"""Sends one message about a run to its destination."""

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

from hookmill.domain.alarm_destination import UrlParts, parsed_url, usable_url
from hookmill.domain.errors import DestinationUnavailable, HookmillError, Invalid
from hookmill.domain.moment import iso
from hookmill.domain.result_text import comment_body, marker, slack_body, status_body, webhook_body
from hookmill.domain.results import ResultKind, destinations_of, refuse_repository, rules_for
from hookmill.domain.secret import SecretValue
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import RequestToSend, sign
from hookmill.outbound import http
from hookmill.outbound.connection import MessageDeadline
from hookmill.results.destinations import (
    AnyDestination,
    RepositoryDestination,
    SlackDestination,
    WebhookDestination,
)
from hookmill.store.results import ClaimedResult, NothingToSend, NotSent, Outcome, Sent

SEND_SECONDS: Final = 15.0
"""The time limit for one message, with the search for a comment that an earlier attempt may have created."""
RESPONSE_BYTES_MAX: Final = 4_194_304
COMMENTS_PER_PAGE: Final = 50
COMMENT_PAGES_MAX: Final = 5
PAGE_CHARACTERS_MAX: Final = 500
RETRY_AFTER_SECONDS_MAX: Final = 3_600
_OK: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_TEMPORARY: Final = frozenset({401, 403, 408, 409, 425, 429})
"""Statuses from 400 to 499 after which another attempt may succeed: the operator may correct the token meanwhile."""


class ResultDelivery:
    """Sends messages. Threads may share it."""

    def __init__(
        self,
        destinations: Mapping[str, AnyDestination],
        *,
        tls: Callable[[], ssl.SSLContext],
        now_us: Callable[[], int],
        seconds: float = SEND_SECONDS,
    ) -> None:
        """`now_us`: the time in µs since 1970."""
        self._destinations = destinations
        self._rules = {name: destination.rules() for name, destination in destinations.items()}
        self._tls = tls
        self._now_us = now_us
        self._seconds = seconds

    def send(self, claimed: ClaimedResult) -> Outcome:
        """Send the message. Never raises for what a destination, an operator or a run can cause."""
        try:
            # The settings may have changed since the run began.
            usable = destinations_of(claimed.result.factory, self._rules)
            refuse_repository(claimed.target, rules_for(claimed.kind, claimed.destination, usable))
            destination = self._destinations[claimed.destination]
            secret = destination.secret()
            if secret is None:
                return NotSent(problem=f"The variable {destination.secret_from} is not set. Set it for every worker.")
            return self._send(claimed, destination, secret, MessageDeadline(self._seconds))
        except Invalid as error:
            return NotSent(problem=str(error), is_final=True)
        except DestinationUnavailable as error:
            return NotSent(problem=str(error), may_have_arrived=isinstance(error, http.NoDestinationResponse))

    def check(self, name: str, seconds: float) -> str:
        """Connect to the destination, and ask GitHub or Gitea whose the token is. Sends no message.

        Returns what the destination proved, as a predicate. Raises `DestinationUnavailable`, also for an unusable
        credential.
        """
        destination = self._destinations[name]
        secret = destination.secret()
        if secret is None:
            raise DestinationUnavailable(f"The variable {destination.secret_from} is not set.")
        deadline = MessageDeadline(seconds)
        match destination:
            case RepositoryDestination():
                return self._check_token(_api_url(destination, "/user"), secret, deadline)
            case SlackDestination():
                url = _chat_url(destination, secret)
            case WebhookDestination(url=url_text):
                _signed(b"", destination.secret_from, secret, self._now_us(), "msg_check")
                url = parsed_url(SecretValue(url_text))
            case _:
                assert_never(destination)
        http.check(url, deadline, tls=self._tls, permits=lambda _address: True)
        return "can be reached"

    def _check_token(self, url: UrlParts, secret: SecretValue, deadline: MessageDeadline) -> str:
        outcome, _ = self._request("GET", url, None, _api_headers(secret), deadline)
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

    def _send(
        self, claimed: ClaimedResult, destination: AnyDestination, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        match destination:
            case SlackDestination():
                body = json.dumps(slack_body(claimed.result)).encode()
                return self._request("POST", _chat_url(destination, secret), body, {}, deadline)[0]
            case WebhookDestination(url=url_text):
                return self._send_webhook(claimed, url_text, destination.secret_from, secret, deadline)
            case RepositoryDestination():
                if claimed.kind is ResultKind.GITHUB_STATUS:
                    return self._send_status(claimed, destination, secret, deadline)
                return self._send_comment(claimed, destination, secret, deadline)
            case _:
                assert_never(destination)

    def _send_webhook(
        self, claimed: ClaimedResult, url: str, variable: str, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        result = claimed.result
        # The same id in each attempt, so that the receiver can recognize a repeated message.
        message_id = f"msg_{result.run.hex()}_{result.number}_{claimed.phase}"
        signed = _signed(webhook_body(result), variable, secret, self._now_us(), message_id)
        return self._request("POST", parsed_url(SecretValue(url)), signed.body, dict(signed.headers), deadline)[0]

    def _send_status(
        self, claimed: ClaimedResult, destination: RepositoryDestination, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        target = claimed.target
        body = status_body(claimed.result, target.context or "")
        if urlsplit(claimed.result.url).scheme != "https" and destination.kind == "github":
            # GitHub refuses a URL of a host that only this machine can reach.
            body["target_url"] = None
        url = _api_url(destination, f"/repos/{target.repository}/statuses/{target.commit}")
        return self._request("POST", url, json.dumps(body).encode(), _api_headers(secret), deadline)[0]

    def _send_comment(
        self, claimed: ClaimedResult, destination: RepositoryDestination, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        body = comment_body(claimed.result)
        if body is None:
            return NothingToSend(reason="The run wrote no summary.")
        path = f"/repos/{claimed.target.repository}/issues/{claimed.target.number}/comments"
        if claimed.may_have_arrived:
            existing = self._existing_comment(claimed, destination, path, secret, deadline)
            if existing is not None:
                return existing
        url = _api_url(destination, path)
        content = json.dumps({"body": body}).encode()
        outcome, answer = self._request("POST", url, content, _api_headers(secret), deadline)
        return Sent(status=outcome.status, url=_page_of(answer)) if isinstance(outcome, Sent) else outcome

    def _existing_comment(
        self,
        claimed: ClaimedResult,
        destination: RepositoryDestination,
        path: str,
        secret: SecretValue,
        deadline: MessageDeadline,
    ) -> Outcome | None:
        """The comment that an earlier attempt has created, or why it can't be searched. None if there is none."""
        first_line = marker(claimed.result.run, claimed.result.number)
        since = iso(claimed.run_started_at)[:19] + "Z"
        for page in range(1, COMMENT_PAGES_MAX + 1):
            query = f"since={since}&per_page={COMMENTS_PER_PAGE}&limit={COMMENTS_PER_PAGE}&page={page}"
            url = _api_url(destination, f"{path}?{query}")
            outcome, answer = self._request("GET", url, None, _api_headers(secret), deadline)
            if not isinstance(outcome, Sent):
                return outcome
            comments = answer if isinstance(answer, list) else []
            for comment in comments:
                if isinstance(comment, dict) and str(comment.get("body")).startswith(first_line):
                    return Sent(status=outcome.status, url=_page_of(comment), note="An earlier attempt had arrived.")
            if len(comments) < COMMENTS_PER_PAGE:
                return None
        return None

    def _request(
        self, method: str, url: UrlParts, body: bytes | None, headers: Mapping[str, str], deadline: MessageDeadline
    ) -> tuple[Sent | NotSent, Any]:
        """Send the request. Returns the outcome, and the JSON value of the response's body if there is one."""
        response = http.request(
            method,
            url,
            body,
            {"Content-Type": "application/json", **headers} if body is not None else headers,
            deadline,
            tls=self._tls,
            # The operator has chosen the host.
            permits=lambda _address: True,
            response_bytes_max=RESPONSE_BYTES_MAX,
        )
        if response.status in _OK:
            return Sent(status=response.status), _json(response.body)
        note = ", which is a redirect and is not followed" if response.status in _REDIRECTS else ""
        is_final = 300 <= response.status < 500 and response.status not in _TEMPORARY
        failure = NotSent(
            problem=f"{url.origin} answered with the status {response.status}{note}.",
            status=response.status,
            is_final=is_final,
            # A gateway may give up a request that the destination performs nevertheless.
            may_have_arrived=method != "GET" and (response.status >= 500 or response.status == 408),
            retry_after_seconds=_retry_after(response.headers.get("retry-after", "")),
        )
        return failure, None


def _signed(body: bytes, variable: str, secret: SecretValue, now: int, message_id: str) -> RequestToSend:
    try:
        return sign(scheme_named("standard_webhooks", None), secret.reveal(), body, "", now, message_id)
    except HookmillError:
        raise DestinationUnavailable(
            f"The variable {variable} has no usable secret: it must be whsec_ and at least 24 bytes in base64. Correct "
            "it for every worker."
        ) from None


def _chat_url(destination: SlackDestination, secret: SecretValue) -> UrlParts:
    try:
        return parsed_url(usable_url(secret.reveal(), allows_http=destination.allow_http))
    except Invalid:
        raise DestinationUnavailable(f"The variable {destination.secret_from} has no usable URL. Correct it.") from None


def _api_url(destination: RepositoryDestination, path: str) -> UrlParts:
    # The path consists of verified values, none of which needs an escape.
    return parsed_url(SecretValue(f"{destination.url}{path}"))


def _api_headers(secret: SecretValue) -> dict[str, str]:
    token = secret.reveal()
    if not token.isascii() or not token.isprintable():
        raise DestinationUnavailable("The token has characters that no header can have. Correct its variable.")
    return {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _page_of(answer: Any) -> str | None:
    url = answer.get("html_url") if isinstance(answer, dict) else None
    if not isinstance(url, str) or not url.startswith(("https://", "http://")) or len(url) > PAGE_CHARACTERS_MAX:
        return None
    return url if url.isascii() and url.isprintable() else None


def _retry_after(value: str) -> int:
    return min(int(value), RETRY_AFTER_SECONDS_MAX) if value.isascii() and value.isdigit() and len(value) < 7 else 0
