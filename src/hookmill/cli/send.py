"""`hookmill send`: post a sample delivery, as a sender would."""

from __future__ import annotations

import json as json_text
import time
from collections import Counter
from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, assert_never

import typer

from hookmill.cli import inputs, options
from hookmill.cli.output import command_line, count, print_json, print_line
from hookmill.cli.session import factory_session
from hookmill.domain.alarm_destination import UrlParts, parsed_url
from hookmill.domain.errors import Conflict, DestinationUnavailable, Invalid
from hookmill.domain.ids import delivery_id
from hookmill.domain.moment import iso
from hookmill.domain.networks import is_loopback
from hookmill.domain.secret import SecretValue
from hookmill.domain.text import shown
from hookmill.domain.webhook import AuthMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookmill.domain.delivery import Delivery
    from hookmill.domain.signatures.scheme import Scheme
    from hookmill.domain.signatures.sign import RequestToSend
    from hookmill.domain.webhook import Webhook
    from hookmill.management import WebhookWithSecret

ANSWER_SECONDS: Final = 15
"""The longest time of one delivery, from the look-up of the host's name to the response."""
ANSWER_BYTES_MAX: Final = 65_536
SENT_BYTES_MAX: Final = 16_777_216
"""Larger than the limit of the service, so that you can test its answer 413."""
HTTP_ACCEPTED: Final = 202
HTTP_UNAUTHORIZED: Final = 401
CLOCK_SKEW_SECONDS_MAX: Final = 315_360_000
"""Ten years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The response of the service to one delivery."""

    status: int
    delivery_id: str | None
    title: str | None
    retry_after: str | None


def send(
    webhook: Annotated[str, typer.Argument(metavar="WEBHOOK", help="The webhook's name or uid.", show_default=False)],
    body: Annotated[
        str | None, typer.Option(metavar="FILE", help="Send the bytes of this file; - for standard input.")
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="JSON", help="Send this text; after @, the name of a file, as in curl.")
    ] = None,
    event_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The event id. A second delivery with the same id is a Duplicate."),
    ] = None,
    event: Annotated[
        str | None, typer.Option(metavar="TYPE", help="The event type, sent where the webhook expects it.")
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="BASE", help="Send to the service at this URL instead of base_url.")
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sign as this provider does, not as the webhook expects."),
    ] = None,
    clock_skew: Annotated[
        int,
        typer.Option(
            min=-CLOCK_SKEW_SECONDS_MAX,
            max=CLOCK_SKEW_SECONDS_MAX,
            metavar="SECONDS",
            help="Sign with a clock that is ahead, or behind if negative.",
        ),
    ] = 0,
    signing_key: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The private key, if the webhook has only the public key."),
    ] = None,
    times: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="The number of deliveries, sent one after the other.")
    ] = 1,
    ca_file: options.CaFile = None,
    factory: options.FactoryName = "default",
    json: options.AsJson = False,
) -> None:
    """Post a sample delivery to a webhook. It has the token or signature that the webhook expects."""
    inputs.require_at_most_one(body=body, data=data)
    if data is not None and data.startswith("@"):
        # No JSON text begins with this character.
        body, data = data[1:], None
    content = inputs.read_bytes(body, "The body file", SENT_BYTES_MAX) if body is not None else None
    if data is not None:
        content = data.encode()
    with factory_session(factory) as session:
        target = session.management.webhooks.secret_for_sending(session.may, webhook)
        path = target.webhook.ingress_path()
        base = url if url is not None else session.management.webhooks.url(target.webhook).removesuffix(path)
        located_event = (_event_location(target.webhook, scheme), event) if event is not None else None
        signer = _signer(target, scheme, clock_skew, signing_key, located_event)

    sender = Sender(base, target, event_id, signer, located_event, ca_file)
    answers = []
    if not json:
        print_line(f"To {sender.shown_url} (webhook {shown(target.webhook.name)}):")
    for number in range(1, times + 1):
        answer = sender.post(content if content is not None else _sample_body(number))
        answers.append(answer)
        if not json:
            print_line(_answer_line(answer))
    with factory_session(factory) as session:
        ids = [answer.delivery_id for answer in answers if answer.delivery_id is not None]
        logged = session.management.log.known(session.may, ids)
    if json:
        answers_as_json = [_answer_fields(answer, logged) for answer in answers]
        url_field = {"url": sender.shown_url}
        print_json(answers_as_json[0] | url_field if times == 1 else {"sent": answers_as_json} | url_field)
    elif logged and (times > 1 or any(delivery.duplicate_of is not None for delivery in logged.values())):
        # The log of another installation has the ids of its own deliveries only.
        print_line(summary(answers, logged))
    if not json and any(answer.status == HTTP_UNAUTHORIZED for answer in answers):
        list_command = command_line("delivery list", factory, webhook=target.webhook.command_argument)
        print_line(f"To see why: {list_command}, then delivery show with the id.")
    if any(answer.status != HTTP_ACCEPTED for answer in answers):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Signer:
    """Signs deliveries as the provider does. The signer's clock is ahead by `clock_skew` seconds, or behind."""

    scheme: Scheme
    secret: str
    url: str
    """The webhook's URL. Some providers sign it."""
    clock_skew: int
    located_event: tuple[str, str] | None
    """Where the event type is (`header:NAME` or `json:PATH`), and the type."""

    def __call__(self, body: bytes, event_id: str | None) -> RequestToSend:
        from hookmill.domain.signatures.sign import sign

        at_us = time.time_ns() // 1000 + self.clock_skew * 1_000_000
        return sign(self.scheme, self.secret, body, self.url, at_us, event_id, self.located_event)


def _event_location(webhook: Webhook, scheme: str | None) -> str:
    """Where deliveries to the webhook have the event type: `header:NAME` or `json:PATH`."""
    name = scheme or webhook.signature_scheme
    if name is not None and (event_rule := _chosen_scheme(webhook, scheme).event_for(name)) is not None:
        return event_rule.source
    if webhook.event_header is None:
        raise Invalid(f"Deliveries of webhook {webhook.name!r} have no event type: the webhook has no event header.")
    return f"header:{webhook.event_header}"


def _chosen_scheme(webhook: Webhook, scheme: str | None) -> Scheme:
    """The scheme named `scheme`; if that is None, the webhook's scheme."""
    from hookmill.domain.signatures.generic import GENERIC_SCHEME
    from hookmill.domain.signatures.rule import scheme_named

    options = webhook.signature_options if scheme in {None, GENERIC_SCHEME} else None
    return scheme_named(scheme or webhook.signature_scheme, options)


def _signer(
    target: WebhookWithSecret,
    scheme: str | None,
    clock_skew: int,
    signing_key_file: str | None,
    located_event: tuple[str, str] | None,
) -> Signer | None:
    """The signer for the webhook; None if its mode is not `signature`."""
    webhook = target.webhook
    if webhook.auth_mode is not AuthMode.SIGNATURE:
        if scheme is not None or clock_skew or signing_key_file is not None:
            raise Invalid(
                f"Webhook {webhook.name!r} does not verify signatures: omit --scheme, --clock-skew and --signing-key."
            )
        return None
    signing_scheme = _chosen_scheme(webhook, scheme)
    if signing_key_file is not None:
        secret = inputs.read_text(signing_key_file, "The signing key", inputs.SECRET_BYTES_MAX)
    elif signing_scheme.algorithm.uses_public_key:
        raise Invalid(
            f"{signing_scheme.title} signs with a private key, and the webhook has only the public key. "
            "Supply the private key with --signing-key FILE."
        )
    else:
        secret = target.reveal()
    return Signer(signing_scheme, secret, target.url, clock_skew, located_event)


class Sender:
    """Sends deliveries to one webhook."""

    def __init__(
        self,
        base: str,
        target: WebhookWithSecret,
        event_id: str | None,
        signer: Signer | None = None,
        located_event: tuple[str, str] | None = None,
        ca_file: str | None = None,
    ) -> None:
        from hookmill.app.tls import client_context

        self._shown_base = shown(base[:200])
        self.shown_url = self._shown_base.rstrip("/") + target.webhook.ingress_path()
        """The URL of deliveries, with a placeholder for a URL token."""
        secret = target.reveal()
        self._signer = signer
        self._event_id = event_id
        self._url = base.rstrip("/") + target.webhook.ingress_path().replace("{token}", secret)
        self._tls = cache(partial(client_context, Path(ca_file) if ca_file is not None else None, "--ca-file"))
        self._parsed(self._url)
        self._headers = {"Content-Type": "application/json", "User-Agent": "hookmill-send"}
        match target.webhook.auth_mode:
            case AuthMode.TOKEN:
                self._headers["Authorization"] = f"Bearer {secret}"
            case AuthMode.URL_TOKEN | AuthMode.SIGNATURE:
                pass
            case _:
                assert_never(target.webhook.auth_mode)
        if event_id is not None:
            self._headers[target.webhook.delivery_id_header or "X-Service-Delivery-Id"] = event_id
        if located_event is not None and signer is None:
            location, event_type = located_event
            self._headers[location.removeprefix("header:")] = event_type

    def _parsed(self, url: str) -> UrlParts:
        try:
            return parsed_url(SecretValue(url))
        except ValueError:
            raise Invalid(
                f"{self._shown_base} is not the URL of a service. Use one such as http://127.0.0.1:8420."
            ) from None

    def post(self, body: bytes) -> Answer:
        """Send one delivery, and wait for its response.

        Raises `Conflict` if there is no response. The error's text never contains the secret.
        """
        from hookmill.outbound import http
        from hookmill.outbound.connection import MessageDeadline

        url, headers = self._url, self._headers
        if self._signer is not None:
            signed = self._signer(body, self._event_id)
            body = signed.body
            headers = {**headers, **dict(signed.headers)}
            # Some schemes add a query parameter to the URL.
            _, separator, query = signed.url.partition("?")
            url += separator + query
        parts = self._parsed(url)
        try:
            response = http.request(
                "POST",
                parts,
                body,
                headers,
                MessageDeadline(ANSWER_SECONDS),
                tls=self._tls,
                response_bytes_max=ANSWER_BYTES_MAX,
                # A proxy can't reach a service on this host.
                uses_proxy=not is_loopback(parts.host),
            )
        except DestinationUnavailable as error:
            raise Conflict(
                f"{error} If the service does not run, start it with `{command_line('serve')}`. If its certificate is "
                "not trusted, name its authority with --ca-file."
            ) from None
        answer_fields = _json_object(response.body)
        phrase = HTTPStatus(response.status).phrase if response.status in set(HTTPStatus) else None
        return Answer(
            status=response.status,
            delivery_id=_short_text(answer_fields.get("delivery_id")),
            title=_short_text(answer_fields.get("title")) or phrase,
            retry_after=response.headers.get("retry-after"),
        )


def _sample_body(number: int) -> bytes:
    # Without an event id, the identity is the body's hash: two equal samples would be one event.
    sample = {"message": "A sample from hookmill send", "number": number, "sent_at": iso(time.time_ns() // 1000)}
    return json_text.dumps(sample).encode()


def _json_object(answer_body: bytes) -> dict[str, Any]:
    try:
        value = json_text.loads(answer_body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _short_text(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) else None


def _answer_line(answer: Answer) -> str:
    if answer.delivery_id is not None:
        return f"{answer.status} {shown(answer.delivery_id)}"
    wait = f" (retry in {shown(answer.retry_after)} s)" if answer.retry_after is not None else ""
    return f"{answer.status} {shown(answer.title or '')}{wait}".rstrip()


def summary(answers: Sequence[Answer], logged: Mapping[str, Delivery]) -> str:
    """How many deliveries were accepted, and how many were Duplicates and of which one.

    `logged` has the deliveries by id. The responses don't tell Duplicates from other deliveries.
    """
    from hookmill.domain.delivery import Label

    others = Counter(f"answered {answer.status}" for answer in answers if answer.status != HTTP_ACCEPTED)
    accepted, duplicates_of = 0, Counter[str]()
    for answer in answers:
        if answer.status != HTTP_ACCEPTED:
            continue
        delivery = logged.get(answer.delivery_id or "")
        if delivery is None:
            others["not in this log"] += 1
        elif delivery.label is Label.DUPLICATE and delivery.duplicate_of is not None:
            duplicates_of[delivery_id(delivery.duplicate_of)] += 1
        else:
            accepted += 1
    outcomes = [f"{accepted} accepted"] if accepted else []
    if duplicates_of:
        originals = next(iter(duplicates_of)) if len(duplicates_of) == 1 else f"{len(duplicates_of)} deliveries"
        outcomes.append(f"{count(duplicates_of.total(), 'duplicate')} of {originals}")
    outcomes += [f"{number} {outcome}" for outcome, number in others.items()]
    return f"{len(answers)} sent: {', '.join(outcomes)}"


def _answer_fields(answer: Answer, logged: Mapping[str, Delivery]) -> dict[str, Any]:
    delivery = logged.get(answer.delivery_id or "")
    return {
        "status": answer.status,
        "delivery_id": answer.delivery_id,
        "title": answer.title if answer.status != HTTP_ACCEPTED else None,
        "retry_after": answer.retry_after,
        "label": delivery.label.wording if delivery is not None else None,
        "duplicate_of": delivery_id(delivery.duplicate_of)
        if delivery is not None and delivery.duplicate_of is not None
        else None,
    }
