"""Did the sender prove itself? Every way of not doing so is refused, with the reason for the owner's log."""

import random
import time
from hashlib import sha256

import pytest

from hookmill.domain.authentication import Authentic, Reason, Refused, authenticate, needs_body
from hookmill.domain.delivery import Attempt
from hookmill.domain.ids import FactoryId, WebhookUid
from hookmill.domain.webhook import AuthMode, IngressWebhook

SECRET = b"S3cret-value_of.43~characters"


@pytest.mark.parametrize(
    "authorization",
    [
        b"Bearer " + SECRET,
        b"bearer " + SECRET,
        b"BEARER " + SECRET,
        b"bEaReR     " + SECRET,
    ],
)
def test_the_secret_behind_the_word_bearer_is_authentic(authorization):
    assert judge(AuthMode.TOKEN, authorization) == Authentic(AuthMode.TOKEN)


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
def test_anything_else_in_the_authorization_header_is_refused(authorization, reason):
    assert judge(AuthMode.TOKEN, authorization) == Refused(reason)


def test_two_authorization_headers_are_refused():
    assert judge(AuthMode.TOKEN, b"Bearer " + SECRET, authorization_count=2) == Refused(Reason.SEVERAL_AUTHORIZATIONS)


def test_the_secret_as_the_urls_last_segment_is_authentic():
    assert judge(AuthMode.URL_TOKEN, url_token=SECRET) == Authentic(AuthMode.URL_TOKEN)


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
def test_any_other_segment_is_refused(url_token, reason):
    assert judge(AuthMode.URL_TOKEN, url_token=url_token) == Refused(reason)


def test_a_bearer_token_is_no_proof_at_a_url_token_webhook():
    assert judge(AuthMode.URL_TOKEN, b"Bearer " + SECRET) == Refused(Reason.NO_URL_TOKEN)


def test_what_authorization_says_does_not_matter_to_a_url_token_webhook():
    assert judge(AuthMode.URL_TOKEN, b"Basic eDp5", url_token=SECRET) == Authentic(AuthMode.URL_TOKEN)


def test_a_webhook_whose_scheme_is_not_known_refuses_everybody():
    refused = judge(AuthMode.SIGNATURE, b"Bearer " + SECRET, url_token=SECRET)

    assert refused == Refused(Reason.NO_SCHEME)


@pytest.mark.parametrize(
    ("mode", "covers_the_body"),
    [(AuthMode.TOKEN, False), (AuthMode.URL_TOKEN, False), (AuthMode.SIGNATURE, True)],
)
def test_only_a_signature_covers_the_body(mode, covers_the_body):
    assert needs_body(a_webhook(mode)) is covers_the_body


def test_of_a_thousand_near_misses_none_is_authentic():
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)

    # One space more between the scheme and the token is not a wrong token.
    near = {each for each in (altered(chance) for _ in range(1_000)) if each.lstrip(b" ") != SECRET}

    assert [each for each in near if judge(AuthMode.TOKEN, b"Bearer " + each) == Authentic(AuthMode.TOKEN)] == []
    assert [each for each in near if judge(AuthMode.URL_TOKEN, url_token=each) == Authentic(AuthMode.URL_TOKEN)] == []


def altered(chance: random.Random) -> bytes:
    """The secret with one bit turned, one byte more or one byte less."""
    place = chance.randrange(len(SECRET))
    match chance.randrange(3):
        case 0:
            return SECRET[:place] + bytes([SECRET[place] ^ (1 << chance.randrange(8))]) + SECRET[place + 1 :]
        case 1:
            return SECRET[:place] + chance.randbytes(1) + SECRET[place:]
        case _:
            return SECRET[:place] + SECRET[place + 1 :]


def judge(
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
    return authenticate(a_webhook(mode), attempt)


def a_webhook(mode: AuthMode) -> IngressWebhook:
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
