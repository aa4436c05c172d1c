"""The oracles are correct: each accepts the deliveries of the reference signer, and refuses changed ones."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.oracles import ORACLES, Oracle
from tests.oracles.reference_signers import (
    AT,
    DELIVERY_ID,
    REFERENCE_SIGNERS,
    URL,
    ReferenceSigner,
    with_reversed_word,
)
from tests.support.for_each import for_each

# The first test loads all SDKs. On a busy machine, this takes longer than any test.
pytestmark = pytest.mark.timeout(600)

each_oracle = for_each("oracle", ORACLES)
each_signing_oracle = for_each("oracle", [oracle for oracle in ORACLES if oracle.sign])


def signer_of(oracle: Oracle) -> ReferenceSigner:
    return REFERENCE_SIGNERS[oracle.scheme]


def test_26_schemes_are_verified_by_the_sdks_of_their_providers():
    assert len({oracle.scheme for oracle in ORACLES if oracle.official}) == 26


def test_every_scheme_has_a_reference_signer_and_different_oracles():
    counts = Counter((oracle.scheme, oracle.package) for oracle in ORACLES)

    assert set(counts.values()) == {1}
    assert {oracle.scheme for oracle in ORACLES} == set(REFERENCE_SIGNERS)


@each_oracle
def test_delivery_of_the_reference_signer_is_accepted(oracle: Oracle):
    assert oracle.accepts(signer_of(oracle).delivery())


@each_oracle
def test_header_names_are_case_insensitive(oracle: Oracle):
    delivery = signer_of(oracle).delivery()
    headers = {name.upper(): value for name, value in delivery.headers.items()}

    assert oracle.accepts(replace(delivery, headers=headers))


@for_each("oracle", [oracle for oracle in ORACLES if signer_of(oracle).covered_word])
def test_changed_body_is_refused(oracle: Oracle):
    signer = signer_of(oracle)
    delivery = signer.delivery()
    assert signer.covered_word

    assert not oracle.accepts(replace(delivery, body=with_reversed_word(delivery.body, signer.covered_word)))


@for_each("oracle", [oracle for oracle in ORACLES if signer_of(oracle).uncovered_word])
def test_change_of_a_word_that_the_signature_does_not_cover_is_accepted(oracle: Oracle):
    signer = signer_of(oracle)
    delivery = signer.delivery()
    assert signer.uncovered_word

    assert oracle.accepts(replace(delivery, body=with_reversed_word(delivery.body, signer.uncovered_word)))


@for_each("oracle", [oracle for oracle in ORACLES if signer_of(oracle).covers_url])
def test_another_url_is_refused(oracle: Oracle):
    delivery = signer_of(oracle).delivery()

    assert not oracle.accepts(replace(delivery, url=delivery.url.replace("hooks", "books")))


@each_oracle
def test_changed_signature_is_refused(oracle: Oracle):
    signer = signer_of(oracle)
    delivery = signer.delivery()
    signature = signer.signature(delivery)
    # The last characters of base64 can contain unused bits.
    other = "0" if signature[-6] != "0" else "1"

    assert not oracle.accepts(signer.with_signature(delivery, signature[:-6] + other + signature[-5:]))


@each_oracle
def test_truncated_signature_is_refused(oracle: Oracle):
    signer = signer_of(oracle)
    delivery = signer.delivery()

    # Four characters are two bytes in hexadecimal and three in base64, so the rest can still be decoded.
    assert not oracle.accepts(signer.with_signature(delivery, signer.signature(delivery)[:-4]))


@each_oracle
def test_delivery_without_a_signature_is_refused(oracle: Oracle):
    signer = signer_of(oracle)

    assert not oracle.accepts(signer.with_signature(signer.delivery(), None))


@each_oracle
def test_another_secret_is_refused(oracle: Oracle):
    signer = signer_of(oracle)

    assert not oracle.accepts(replace(signer.delivery(), secret=signer.other_secret))


@for_each("oracle", [oracle for oracle in ORACLES if oracle.age_max is not None])
def test_signature_is_accepted_up_to_the_maximum_age(oracle: Oracle):
    assert oracle.age_max is not None
    delivery = signer_of(oracle).delivery()

    assert oracle.accepts(replace(delivery, at=AT + oracle.age_max))
    assert not oracle.accepts(replace(delivery, at=AT + oracle.age_max + 1))


@for_each("oracle", [oracle for oracle in ORACLES if oracle.ahead_max is not None])
def test_signature_from_the_future_is_accepted_up_to_the_maximum(oracle: Oracle):
    assert oracle.ahead_max is not None
    delivery = signer_of(oracle).delivery()

    assert oracle.accepts(replace(delivery, at=AT - oracle.ahead_max))
    assert not oracle.accepts(replace(delivery, at=AT - oracle.ahead_max - 1))


@for_each("oracle", [oracle for oracle in ORACLES if oracle.age_max is None])
def test_signature_of_any_age_is_accepted_without_a_maximum(oracle: Oracle):
    assert oracle.accepts(replace(signer_of(oracle).delivery(), at=AT + 365 * 86_400))


@for_each("oracle", [oracle for oracle in ORACLES if oracle.ahead_max is None])
def test_signature_from_the_future_is_accepted_without_a_maximum(oracle: Oracle):
    assert oracle.accepts(replace(signer_of(oracle).delivery(), at=AT - 365 * 86_400))


@each_signing_oracle
def test_delivery_of_an_sdk_equals_that_of_the_reference_signer(oracle: Oracle):
    assert oracle.sign
    signer = signer_of(oracle)
    delivery = oracle.sign(signer.secret, signer.make_body(AT), URL, AT, DELIVERY_ID)

    assert oracle.accepts(delivery)
    # A token can contain further claims, in another order.
    if (oracle.scheme, oracle.package) not in {
        ("livekit", "livekit-api"),
        ("netlify", "pyjwt"),
        ("standard_webhooks", "svix"),
    }:
        expected = signer.delivery()
        assert replace(delivery, headers=delivery.headers_in_lower_case) == replace(
            expected, headers=expected.headers_in_lower_case
        )
