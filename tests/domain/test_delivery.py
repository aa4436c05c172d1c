"""The identity of a delivery, its label in the log, `Retry-After`, and dropped attempts."""

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


@pytest.mark.parametrize(
    ("header", "provider", "sender", "kind"),
    [
        (b"e-1", b"p-1", b"s-1", IdentityKind.DELIVERY_ID_HEADER),
        (b" ", b"p-1", b"s-1", IdentityKind.PROVIDER),
        (b"", b"\t \t", b"s-1", IdentityKind.SENDER),
        (b"", None, b" ", IdentityKind.BODY_SHA256),
    ],
)
def test_first_id_that_is_not_blank_counts(header, provider, sender, kind):
    attempt = make_attempt({b"x-event": header, b"x-service-delivery-id": sender})

    assert identify(b"x-event", provider, attempt, BODY).kind is kind


def test_header_that_the_webhook_does_not_name_is_ignored():
    assert identify(None, None, make_attempt({b"x-event": b"e-1"}), BODY).kind is IdentityKind.BODY_SHA256


def test_white_space_around_an_id_is_ignored():
    assert sender_identity("e-1") == sender_identity(" e-1\t")


@pytest.mark.parametrize("other", ["e-2", "E-1", "e-1.", "e -1", "é-1"])
def test_ids_are_compared_byte_by_byte(other):
    assert sender_identity("e-1").digest != sender_identity(other).digest


def test_same_value_has_a_different_identity_for_each_kind():
    value = b"e-1"
    attempt = make_attempt({b"x-event": value, b"x-service-delivery-id": value})
    identities = [
        identify(b"x-event", None, attempt, BODY),
        identify(None, value, attempt, BODY),
        identify(None, None, attempt, BODY),
        identify(None, None, make_attempt({}), value),
    ]

    assert len({each.digest for each in identities}) == 4


@pytest.mark.parametrize(
    "forged_id",
    [sha256(BODY).digest(), sha256(BODY).hexdigest().encode(), b"body_sha256\x00" + sha256(BODY).digest()],
    ids=["digest", "digest in hexadecimal", "kind and digest"],
)
def test_sender_cannot_forge_the_identity_of_a_body(forged_id):
    by_body = identify(None, None, make_attempt({}), BODY)

    by_sender = identify(None, None, make_attempt({b"x-service-delivery-id": forged_id}), b"{}")

    assert by_sender.digest != by_body.digest


def test_identity_of_a_body_is_a_digest_of_its_sha256():
    expected = sha256(b"body_sha256\x00" + sha256(BODY).digest()).digest()[:16]

    assert identify(None, None, make_attempt({}), BODY) == Identity(IdentityKind.BODY_SHA256, expected, None)


@pytest.mark.parametrize(
    ("label", "wording"),
    [
        (Label.ACCEPTED, "Accepted"),
        (Label.DUPLICATE, "Duplicate"),
        (Label.REJECTED_AUTH, "Rejected (auth)"),
        (Label.REJECTED_INVALID_JSON, "Rejected (invalid JSON)"),
        (Label.REJECTED_TOO_LARGE, "Rejected (too large)"),
    ],
)
def test_label_has_the_wording_of_the_contract(label, wording):
    assert label.wording == wording


def test_stored_numbers_never_change():
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
def test_retry_after_is_in_whole_seconds_rounded_up_and_at_least_one(microseconds, seconds):
    assert rate_limited(1_000_000_000, 1_000_000_000 + microseconds).retry_after_seconds == seconds


def sender_identity(delivery_id: str) -> Identity:
    return identify(None, None, make_attempt({b"x-service-delivery-id": delivery_id.encode()}), BODY)


def make_attempt(headers: dict[bytes, bytes]) -> Attempt:
    return Attempt(
        uid="wh_1", url_token=None, received_at=0, headers=headers, authorization=None, authorization_count=0
    )


def test_dropped_attempts_of_adjacent_minutes_are_merged_newest_first():
    def dropped(webhook: str, kind: str, since: int, until: int, count: int) -> DroppedAttempts:
        return DroppedAttempts(webhook_uid=WebhookUid(webhook), kind=kind, since=since, until=until, count=count)

    minutes = [
        dropped("a", "rate_limited", 60, 120, 2),
        dropped("a", "rate_limited", 0, 60, 1),
        dropped("a", "rate_limited", 180, 240, 4),
        dropped("a", "not_found", 120, 180, 8),
        dropped("b", "rate_limited", 120, 180, 16),
    ]

    assert merge_adjacent(minutes) == [
        dropped("a", "rate_limited", 180, 240, 4),
        dropped("a", "not_found", 120, 180, 8),
        dropped("b", "rate_limited", 120, 180, 16),
        dropped("a", "rate_limited", 0, 120, 3),
    ]
