"""Adapters of other libraries, for providers that publish no verifier in Python."""

from hashlib import sha256
from hmac import compare_digest

from tests.oracles.signed_delivery import SignedDelivery, frozen_clock, require_plain_value_error


def accepted_by_gidgethub(delivery: SignedDelivery) -> bool:
    from gidgethub import ValidationFailure
    from gidgethub.sansio import validate_event

    try:
        validate_event(delivery.body, signature=delivery.header("x-hub-signature-256"), secret=delivery.secret)
    except ValidationFailure:
        return False
    return True


def accepted_by_gidgetlab(delivery: SignedDelivery) -> bool:
    from gidgetlab import ValidationFailure
    from gidgetlab.sansio import Event

    headers = {"content-type": "application/json", "x-gitlab-event": "Push Hook"} | delivery.headers_in_lower_case
    try:
        Event.from_http(headers, delivery.body, secret=delivery.secret)
    except ValidationFailure:
        return False
    return True


def accepted_by_pyairtable(delivery: SignedDelivery) -> bool:
    from pyairtable.models.webhook import WebhookNotification

    try:
        WebhookNotification.from_request(delivery.text, delivery.header("x-airtable-content-mac"), delivery.secret)
    except ValueError as error:
        require_plain_value_error(error)
        return False
    return True


def accepted_by_pywa(delivery: SignedDelivery) -> bool:
    from pywa.utils import webhook_updates_validator

    return bool(webhook_updates_validator(delivery.secret, delivery.body, delivery.header("x-hub-signature-256")))


def accepted_by_pyjwt(delivery: SignedDelivery) -> bool:
    """PyJWT verifies Netlify's token. The comparison with the body's digest is made here."""
    import jwt

    with frozen_clock(delivery.at):
        try:
            claims = jwt.decode(
                delivery.header("x-webhook-signature"), delivery.secret, algorithms=["HS256"], issuer="netlify"
            )
        except jwt.InvalidTokenError:
            return False
    return compare_digest(claims.get("sha256", ""), sha256(delivery.body).hexdigest())
