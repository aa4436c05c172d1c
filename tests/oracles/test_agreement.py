"""The verifier and the oracles accept what our signer signs, and refuse it after a change."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.verify import Verified, verify
from tests.oracles import ORACLES
from tests.oracles.samples import AT, EVENT, SAMPLES, Sample, with_reversed_word
from tests.oracles.signed_delivery import SignedDelivery
from tests.support.for_each import for_each

# The first test loads all SDKs. On a busy machine, this takes longer than any test.
pytestmark = pytest.mark.timeout(600)

Change = Callable[[Sample, SignedDelivery], SignedDelivery | None]
"""Returns a changed delivery, or None if the change does not apply to the scheme."""


UNUSUAL_BODIES = {
    "line breaks, escapes and placeholders": (
        b' \r\n\t{"type": "ping",\r\n "id": "{body} {ts} %s %2F \\u0000 \\ud83d\\ude00", "note": "'
        + "é e\u0301 \u2028 \ufeff \U0001f600".encode()
        + b'"}\r\n\r\n'
    ),
    "256 KiB": b'{"type": "ping", "id": "%s"}' % (b"0123456789abcdef" * 16_384),
}
ORACLES_FOR_ANY_BODY = [oracle for oracle in ORACLES if SAMPLES[oracle.scheme].body is EVENT]


# Changes that both refuse


def changed_body(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    if sample.covered_word is None:
        return None
    return replace(delivery, body=with_reversed_word(delivery.body, sample.covered_word))


def longer_body(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, body=delivery.body + b" ") if sample.covers_whole_body else None


def shorter_body(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, body=delivery.body[:-1]) if sample.covers_whole_body else None


def changed_signature(sample: Sample, delivery: SignedDelivery) -> SignedDelivery:
    signature = sample.signature(delivery)
    return sample.with_signature(delivery, signature[:-6] + ("0" if signature[-6] != "0" else "1") + signature[-5:])


def truncated_signature(sample: Sample, delivery: SignedDelivery) -> SignedDelivery:
    return sample.with_signature(delivery, sample.signature(delivery)[:-4])


def signature_of_another_body(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    if sample.covered_word is None:
        return None
    # At Mailgun, the signature covers only the id.
    other_sample = replace(sample, delivery_id=sample.delivery_id[::-1])
    other = other_sample.delivery(with_reversed_word(sample.body, sample.covered_word))
    return sample.with_signature(delivery, sample.signature(other))


def no_signature(sample: Sample, delivery: SignedDelivery) -> SignedDelivery:
    return sample.with_signature(delivery, None)


def other_secret(sample: Sample, delivery: SignedDelivery) -> SignedDelivery:
    return replace(delivery, secret=sample.other_secret)


def other_url(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, url=delivery.url.replace("hooks", "books")) if sample.covers_url else None


def later_time(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    """The same signature with a later time, in any header."""
    headers = {name: value.replace(str(AT), str(AT + 1)) for name, value in delivery.headers.items()}
    return replace(delivery, headers=headers) if headers != delivery.headers else None


def other_id(sample: Sample, delivery: SignedDelivery) -> SignedDelivery | None:
    names = [name for name in delivery.headers if name in {"webhook-id", "svix-id"}]
    return replace(delivery, headers=delivery.headers | {names[0]: "msg_other"}) if names else None


CHANGES: tuple[Change, ...] = (
    changed_body,
    longer_body,
    shorter_body,
    changed_signature,
    truncated_signature,
    signature_of_another_body,
    no_signature,
    other_secret,
    other_url,
    later_time,
    other_id,
)


@pytest.mark.parametrize("body", UNUSUAL_BODIES.values(), ids=UNUSUAL_BODIES)
@for_each("oracle", ORACLES_FOR_ANY_BODY)
def test_verifier_and_sdk_accept_unusual_bodies(oracle, body):
    delivery = SAMPLES[oracle.scheme].delivery(body)

    assert oracle.accepts(delivery)
    assert verifier_accepts(oracle.scheme, delivery)


@pytest.mark.parametrize(
    ("provider", "scheme"),
    [
        ("anthropic", "standard_webhooks"),
        ("openai", "standard_webhooks"),
        ("replicate", "standard_webhooks"),
        ("resend", "svix"),
    ],
)
def test_provider_that_uses_another_scheme_has_an_alias(provider, scheme):
    assert find(provider).name == scheme
    assert any(oracle.package == provider and oracle.scheme == scheme for oracle in ORACLES)


@for_each("oracle", ORACLES)
def test_sdk_and_verifier_accept_deliveries_of_our_signer(oracle):
    delivery = SAMPLES[oracle.scheme].delivery()

    assert oracle.accepts(delivery)
    assert verifier_accepts(oracle.scheme, delivery)


@for_each("oracle", ORACLES)
def test_verifier_and_sdk_refuse_changed_deliveries(oracle):
    sample = SAMPLES[oracle.scheme]
    changed = {change.__name__: change(sample, sample.delivery()) for change in CHANGES}
    applicable = {name: delivery for name, delivery in changed.items() if delivery is not None}

    assert len(applicable) > 3
    for name, delivery in applicable.items():
        assert not oracle.accepts(delivery), name
        assert not verifier_accepts(oracle.scheme, delivery), name


def verifier_accepts(scheme_name: str, delivery: SignedDelivery) -> bool:
    scheme = find(scheme_name)
    request = SignedRequest(
        headers={name.lower().encode(): value.encode() for name, value in delivery.headers.items()},
        conflicting_headers=frozenset(),
        body=delivery.body,
        url=delivery.url,
    )
    result = verify(scheme, [prepare_key(scheme, delivery.secret)], request, delivery.at * 1_000_000)
    return isinstance(result, Verified)
