"""Sends one message about a run to its destination."""

import json
import ssl
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from hookmill.domain.alarm_destination import UrlParts, parsed_url, usable_url
from hookmill.domain.errors import DestinationUnavailable, HookmillError, Invalid
from hookmill.domain.result_text import slack_body, webhook_body
from hookmill.domain.results import destinations_of, refuse_repository, rules_for
from hookmill.domain.secret import SecretValue
from hookmill.domain.signatures.rule import scheme_named
from hookmill.domain.signatures.sign import RequestToSend, sign
from hookmill.outbound import http
from hookmill.outbound.connection import MessageDeadline
from hookmill.results.api import DestinationApi
from hookmill.results.app_tokens import AppTokens, api_headers, app_headers
from hookmill.results.destinations import (
    AnyDestination,
    AppCredential,
    RepositoryDestination,
    SlackDestination,
    WebhookDestination,
)
from hookmill.results.repositories import send_to_repository
from hookmill.results.repository_access import RepositoryAccess, check_credential
from hookmill.store.results import ClaimedResult, NotSent, Outcome

SEND_SECONDS: Final = 15.0
"""The time limit for one message, with the search for what an earlier attempt may have created."""


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
        self._api = DestinationApi(tls=tls, now_us=now_us)
        self._tokens = AppTokens(self._api, now_us)
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
                variable = destination.credential.variable
                return NotSent(problem=f"The variable {variable} is not set. Set it for every worker.")
            return self._send(claimed, destination, secret, MessageDeadline(self._seconds))
        except Invalid as error:
            return NotSent(problem=str(error), is_final=True)
        except DestinationUnavailable as error:
            return NotSent(problem=str(error), may_have_arrived=isinstance(error, http.NoDestinationResponse))

    def check(self, name: str, seconds: float) -> str:
        """Connect to the destination, and ask GitHub or Gitea about the credential. Sends no message.

        Returns what the destination proved, as the end of a sentence, such as "accepts the token". Raises
        `DestinationUnavailable`, also for an unusable credential.
        """
        destination = self._destinations[name]
        refuse_unusable_credential(destination)
        secret = destination.secret()
        assert secret is not None, "it would have been refused"
        deadline = MessageDeadline(seconds)
        match destination:
            case RepositoryDestination():
                return check_credential(destination, secret, self._api, self._tokens, deadline)
            case SlackDestination():
                url = _chat_url(destination, secret)
            case WebhookDestination(url=url_text):
                url = parsed_url(SecretValue(url_text))
            case _:
                assert_never(destination)
        self._api.connect(url, deadline)
        return "can be reached"

    def _send(
        self, claimed: ClaimedResult, destination: AnyDestination, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        match destination:
            case SlackDestination():
                body = json.dumps(slack_body(claimed.result)).encode()
                return self._api.request("POST", _chat_url(destination, secret), body, {}, deadline)[0]
            case WebhookDestination(url=url_text):
                return self._send_webhook(claimed, url_text, destination.secret_from, secret, deadline)
            case RepositoryDestination():
                assert claimed.target.repository is not None, "plan_results sets it for these kinds"
                access = RepositoryAccess(
                    api=self._api,
                    tokens=self._tokens,
                    destination=destination,
                    secret=secret,
                    repository=claimed.target.repository,
                    kind=claimed.kind,
                    deadline=deadline,
                )
                return send_to_repository(claimed, access)
            case _:
                assert_never(destination)

    def _send_webhook(
        self, claimed: ClaimedResult, url: str, variable: str, secret: SecretValue, deadline: MessageDeadline
    ) -> Outcome:
        result = claimed.result
        # The same id in each attempt, so that the receiver can recognize a repeated message.
        message_id = f"msg_{result.run.hex()}_{result.number}_{claimed.phase}"
        signed = _signed(webhook_body(result), variable, secret, self._now_us(), message_id)
        return self._api.request("POST", parsed_url(SecretValue(url)), signed.body, dict(signed.headers), deadline)[0]


def refuse_unusable_credential(destination: AnyDestination) -> None:
    """Raises `DestinationUnavailable` if the destination's credential can't be used. Sends nothing."""
    secret = destination.secret()
    if secret is None:
        raise DestinationUnavailable(f"The variable {destination.credential.variable} is not set.")
    match destination:
        case RepositoryDestination(credential=AppCredential() as credential):
            app_headers(credential, secret, 0)
        case RepositoryDestination():
            api_headers(secret)
        case SlackDestination():
            _chat_url(destination, secret)
        case WebhookDestination():
            _signed(b"", destination.secret_from, secret, 0, "msg_check")
        case _:
            assert_never(destination)


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
