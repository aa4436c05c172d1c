"""Which credentials authenticate a sender. Every other one is refused, with a reason for the owner's log."""

import random
import time
from hashlib import sha256

import pytest

from hookmill.domain.authentication import Authentic, Reason, Refused, authenticate, needs_body
from hookmill.domain.delivery import Attempt
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.ingress_webhook import IngressWebhook
from hookmill.domain.webhook import AuthMode

SECRET = b"S3cret-value_of.43~characters"


@pytest.mark.parametrize(
    ("authorization", "reason"),
    [
        (None, Reason.NO_AUTHORIZATION),
        (b"", Reason.NOT_BEARER),
        (b"Bearer", Reason.NOT_BEARER),
        (b"Bearer ", Reason.NOT_BEARER),
        (b"Bearer   ", Reason.NOT_BEARER),
        (SECRET, Reason.NOT_BEARER),
        (b"Basic " + SECRET, Reason.NOT_BEARER),
        (b"Bearer:" + SECRET, Reason.NOT_BEARER),
        (b"Bearer\t" + SECRET, Reason.NOT_BEARER),
        (b" Bearer " + SECRET, Reason.NOT_BEARER),
        (b"Bearer " + b"x" * 8_192, Reason.NOT_BEARER),
        (b"Bearer \xc3\xa9\xff", Reason.WRONG_TOKEN),
        (b"Bearer \x00", Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET[:-1], Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET[1:], Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET + b"x", Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET + b" ", Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET + b"\x00", Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET.swapcase(), Reason.WRONG_TOKEN),
        (b"Bearer " + SECRET * 2, Reason.WRONG_TOKEN),
        (b"Bearer " + sha256(SECRET).digest(), Reason.WRONG_TOKEN),
        (b"Bearer " + sha256(SECRET).hexdigest().encode(), Reason.WRONG_TOKEN),
        (b'Bearer "' + SECRET + b'"', Reason.WRONG_TOKEN),
    ],
)
def test_any_other_authorization_header_is_refused(authorization, reason):
    assert authenticate_with(AuthMode.TOKEN, authorization) == Refused(reason)


@pytest.mark.parametrize(
    ("url_token", "reason"),
    [
        (None, Reason.NO_URL_TOKEN),
        (b"", Reason.WRONG_URL_TOKEN),
        (SECRET[:-1], Reason.WRONG_URL_TOKEN),
        (SECRET + b"/", Reason.WRONG_URL_TOKEN),
        (SECRET + b"%20", Reason.WRONG_URL_TOKEN),
        (SECRET.replace(b"-", b"%2D"), Reason.WRONG_URL_TOKEN),
        (b"{token}", Reason.WRONG_URL_TOKEN),
        (b"\xff", Reason.WRONG_URL_TOKEN),
    ],
)
def test_any_other_segment_of_the_url_is_refused(url_token, reason):
    assert authenticate_with(AuthMode.URL_TOKEN, url_token=url_token) == Refused(reason)


def test_url_token_webhook_ignores_the_authorization_header():
    assert authenticate_with(AuthMode.URL_TOKEN, b"Basic eDp5", url_token=SECRET) == Authentic(AuthMode.URL_TOKEN)


def test_webhook_with_an_unknown_signature_scheme_refuses_every_request():
    result = authenticate_with(AuthMode.SIGNATURE, b"Bearer " + SECRET, url_token=SECRET)

    assert result == Refused(Reason.NO_SCHEME)


@pytest.mark.parametrize(
    ("mode", "is_needed"),
    [(AuthMode.TOKEN, False), (AuthMode.URL_TOKEN, False), (AuthMode.SIGNATURE, True)],
)
def test_only_signature_webhooks_need_the_body(mode, is_needed):
    assert needs_body(make_webhook(mode)) is is_needed


def test_secret_with_a_small_random_change_is_refused():
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)

    # An additional space between "Bearer" and the token is allowed.
    wrong = {each for each in (changed_secret(chance) for _ in range(1_000)) if each.lstrip(b" ") != SECRET}

    assert [
        each for each in wrong if authenticate_with(AuthMode.TOKEN, b"Bearer " + each) == Authentic(AuthMode.TOKEN)
    ] == []
    assert [
        each for each in wrong if authenticate_with(AuthMode.URL_TOKEN, url_token=each) == Authentic(AuthMode.URL_TOKEN)
    ] == []


def changed_secret(chance: random.Random) -> bytes:
    """The secret with one bit flipped, one byte added or one byte removed."""
    place = chance.randrange(len(SECRET))
    match chance.randrange(3):
        case 0:
            return SECRET[:place] + bytes([SECRET[place] ^ (1 << chance.randrange(8))]) + SECRET[place + 1 :]
        case 1:
            return SECRET[:place] + chance.randbytes(1) + SECRET[place:]
        case _:
            return SECRET[:place] + SECRET[place + 1 :]


def authenticate_with(
    mode: AuthMode, authorization: bytes | None = None, *, url_token: bytes | None = None, authorization_count: int = 1
) -> Authentic | Refused:
    attempt = Attempt(
        uid="wh_1",
        url_token=url_token,
        received_at=0,
        headers={},
        authorization=authorization,
        authorization_count=authorization_count if authorization is not None else 0,
    )
    return authenticate(make_webhook(mode), attempt)


def make_webhook(mode: AuthMode) -> IngressWebhook:
    return IngressWebhook(
        uid=WebhookUid("wh_1"),
        no=1,
        factory_id=FactoryId("fac_1"),
        revision=1,
        auth_mode=mode,
        accepts_deliveries=True,
        secret_digest=sha256(SECRET).digest(),
        signature_rule=None,
        delivery_id_header=None,
        event_source=None,
        subscriptions=(),
    )
