"""What others' libraries say about a request, for providers that publish nothing in Python that would check it."""

from hashlib import sha256
from hmac import compare_digest

from tests.oracles.request import Given, moment, refused


def accepted_by_gidgethub(given: Given) -> bool:
    from gidgethub import ValidationFailure
    from gidgethub.sansio import validate_event

    try:
        validate_event(given.body, signature=given.header("x-hub-signature-256"), secret=given.secret)
    except ValidationFailure:
        return False
    return True


def accepted_by_gidgetlab(given: Given) -> bool:
    from gidgetlab import ValidationFailure
    from gidgetlab.sansio import Event

    told = {"content-type": "application/json", "x-gitlab-event": "Push Hook"} | given.lowered
    try:
        Event.from_http(told, given.body, secret=given.secret)
    except ValidationFailure:
        return False
    return True


def accepted_by_pyairtable(given: Given) -> bool:
    from pyairtable.models.webhook import WebhookNotification

    try:
        WebhookNotification.from_request(given.text, given.header("x-airtable-content-mac"), given.secret)
    except ValueError as refusal:
        return refused(refusal)
    return True


def accepted_by_pywa(given: Given) -> bool:
    from pywa.utils import webhook_updates_validator

    return bool(webhook_updates_validator(given.secret, given.body, given.header("x-hub-signature-256")))


def accepted_by_pyjwt(given: Given) -> bool:
    """Netlify's token: the library judges the token, and two lines here whether it belongs to the body."""
    import jwt

    with moment(given.at):
        try:
            claims = jwt.decode(
                given.header("x-webhook-signature"), given.secret, algorithms=["HS256"], issuer="netlify"
            )
        except jwt.InvalidTokenError:
            return False
    return compare_digest(claims.get("sha256", ""), sha256(given.body).hexdigest())


def signed_by_pyjwt(secret: str, body: bytes, url: str, at: int, delivery_id: str) -> Given:
    import jwt

    claims = {"iss": "netlify", "sha256": sha256(body).hexdigest()}
    headers = {"X-Webhook-Signature": jwt.encode(claims, secret, algorithm="HS256")}
    return Given(secret=secret, headers=headers, body=body, url=url, at=at)
