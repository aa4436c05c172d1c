"""Which event is this, what is it called in the log, and when may a sender come again?"""

from hashlib import sha256

import pytest

from hookmill.domain.delivery import (
    Attempt,
    DroppedAttempts,
    Identity,
    IdentityKind,
    Label,
    identify,
    merge_adjacent,
    rate_limited,
)
from hookmill.domain.ids import WebhookUid

BODY = b'{"a": 1}'


def test_the_webhooks_own_header_is_preferred_to_every_other_identity():
    found = identify(
        b"x-event", b"provider-1", an_attempt({b"x-event": b"e-1", b"x-service-delivery-id": b"s-1"}), BODY
    )

    assert (found.kind, found.display_value) == (IdentityKind.DELIVERY_ID_HEADER, "e-1")


def test_the_providers_own_id_comes_second():
    found = identify(b"x-event", b"provider-1", an_attempt({b"x-service-delivery-id": b"s-1"}), BODY)

    assert (found.kind, found.display_value) == (IdentityKind.PROVIDER, "provider-1")


def test_the_senders_id_under_its_other_name_comes_third_too():
    found = identify(b"x-event", None, an_attempt({b"x-warp-delivery-id": b"s-1"}), BODY)

    assert found == identify(None, None, an_attempt({b"x-service-delivery-id": b"s-1"}), BODY)


def test_the_senders_id_comes_third():
    found = identify(b"x-event", None, an_attempt({b"x-service-delivery-id": b"s-1"}), BODY)

    assert (found.kind, found.display_value) == (IdentityKind.SENDER, "s-1")


def test_the_body_itself_comes_last():
    found = identify(b"x-event", None, an_attempt({b"x-other": b"o-1"}), BODY)

    assert (found.kind, found.display_value) == (IdentityKind.BODY_SHA256, None)


@pytest.mark.parametrize("blank", [b"", b" ", b"\t  \t"])
def test_a_blank_identity_falls_through_to_the_next(blank):
    headers = {b"x-event": blank, b"x-service-delivery-id": blank, b"x-warp-delivery-id": blank}

    assert identify(b"x-event", blank, an_attempt(headers), BODY).kind is IdentityKind.BODY_SHA256


def test_a_header_that_the_webhook_does_not_name_is_no_identity():
    assert identify(None, None, an_attempt({b"x-event": b"e-1"}), BODY).kind is IdentityKind.BODY_SHA256


def test_white_space_around_an_identity_does_not_make_another_event():
    assert identity("e-1") == identity(" e-1\t")


@pytest.mark.parametrize("other", ["e-2", "E-1", "e-1.", "e -1", "é-1"])
def test_an_identity_is_compared_byte_by_byte(other):
    assert identity("e-1").digest != identity(other).digest


def test_one_value_is_another_event_under_each_kind():
    value = b"e-1"
    attempt = an_attempt({b"x-event": value, b"x-service-delivery-id": value})
    chosen = [
        identify(b"x-event", None, attempt, BODY),
        identify(None, value, attempt, BODY),
        identify(None, None, attempt, BODY),
        identify(None, None, an_attempt({}), value),
    ]

    assert len({each.digest for each in chosen}) == 4


@pytest.mark.parametrize(
    "posing",
    [sha256(BODY).digest(), sha256(BODY).hexdigest().encode(), b"body_sha256\x00" + sha256(BODY).digest()],
    ids=["digest", "hex", "with its kind"],
)
def test_a_sender_cannot_pose_as_a_body(posing):
    by_body = identify(None, None, an_attempt({}), BODY)

    assert identify(None, None, an_attempt({b"x-service-delivery-id": posing}), b"{}").digest != by_body.digest


def test_a_bodys_identity_is_drawn_from_its_sha_256():
    expected = sha256(b"body_sha256\x00" + sha256(BODY).digest()).digest()[:16]

    assert identify(None, None, an_attempt({}), BODY) == Identity(IdentityKind.BODY_SHA256, expected, None)


def test_a_long_identity_counts_whole_and_is_shown_cut():
    one, other = identity("x" * 10_000 + "1"), identity("x" * 10_000 + "2")

    assert one.digest != other.digest
    assert one.display_value == other.display_value == "x" * 255


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        (b"a\x00b", "a�b"),
        (b"\x1b[31mred", "�[31mred"),
        (b"a\r\nb", "a��b"),
        (b"\xff\xfe", "��"),
        ("a\N{RIGHT-TO-LEFT OVERRIDE}b".encode(), "a�b"),
        ("schön".encode(), "schön"),
    ],
)
def test_unprintable_characters_of_an_identity_are_replaced(sent, shown):
    assert identify(None, None, an_attempt({b"x-service-delivery-id": sent}), BODY).display_value == shown


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (Label.ACCEPTED, "Accepted"),
        (Label.DUPLICATE, "Duplicate"),
        (Label.REJECTED_AUTH, "Rejected (auth)"),
        (Label.REJECTED_INVALID_JSON, "Rejected (invalid JSON)"),
        (Label.REJECTED_TOO_LARGE, "Rejected (too large)"),
    ],
)
def test_a_label_is_shown_in_the_contracts_words(label, shown):
    assert label.wording == shown


def test_the_numbers_that_are_stored_never_change():
    assert [(label.value, label.name) for label in Label] == [
        (1, "ACCEPTED"),
        (2, "DUPLICATE"),
        (3, "REJECTED_AUTH"),
        (4, "REJECTED_INVALID_JSON"),
        (5, "REJECTED_TOO_LARGE"),
    ]
    assert [(kind.value, kind.public_name) for kind in IdentityKind] == [
        (1, "delivery_id_header"),
        (2, "provider"),
        (3, "sender"),
        (4, "body_sha256"),
        (5, "signed_content"),
    ]


@pytest.mark.parametrize(
    ("microseconds", "seconds"),
    [(60_000_000, 60), (59_999_999, 60), (59_000_001, 60), (59_000_000, 59), (1, 1), (0, 1), (-5_000_000, 1)],
)
def test_retry_after_is_whole_seconds_rounded_up_and_at_least_one(microseconds, seconds):
    assert rate_limited(1_000_000_000, 1_000_000_000 + microseconds).retry_after_seconds == seconds


def identity(sent: str) -> Identity:
    return identify(None, None, an_attempt({b"x-service-delivery-id": sent.encode()}), BODY)


def an_attempt(headers: dict[bytes, bytes]) -> Attempt:
    return Attempt(
        uid="wh_1", url_token=None, received_at=0, headers=headers, authorization=None, authorization_count=0
    )


def test_dropped_attempts_of_consecutive_minutes_are_joined_newest_first():
    def refused(webhook: str, kind: str, since: int, until: int, count: int) -> DroppedAttempts:
        return DroppedAttempts(webhook_uid=WebhookUid(webhook), kind=kind, since=since, until=until, count=count)

    minutes = [
        refused("a", "rate_limited", 60, 120, 2),
        refused("a", "rate_limited", 0, 60, 1),
        refused("a", "rate_limited", 180, 240, 4),
        refused("a", "not_found", 120, 180, 8),
        refused("b", "rate_limited", 120, 180, 16),
    ]

    assert merge_adjacent(minutes) == [
        refused("a", "rate_limited", 180, 240, 4),
        refused("a", "not_found", 120, 180, 8),
        refused("b", "rate_limited", 120, 180, 16),
        refused("a", "rate_limited", 0, 120, 3),
    ]
