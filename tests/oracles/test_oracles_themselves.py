"""The oracles can be believed: each accepts what its provider's rule makes, and nothing else."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.oracles import ORACLES, Oracle
from tests.oracles.by_hand import AT, BY_HAND, DELIVERY_ID, URL, ByHand, altered
from tests.support.for_each import for_each

# The first test loads what all providers have published, which takes a busy machine longer than any test.
pytestmark = pytest.mark.timeout(600)

SIGNERS = [oracle for oracle in ORACLES if oracle.signs]
each_oracle = for_each("oracle", ORACLES)
each_signer = for_each("oracle", SIGNERS)


def test_26_schemes_are_verified_by_their_providers_own_sdk():
    assert len({oracle.scheme for oracle in ORACLES if oracle.official}) == 26


def test_every_package_is_asked_once_about_a_scheme():
    asked = Counter((oracle.scheme, oracle.package) for oracle in ORACLES)

    assert set(asked.values()) == {1}
    assert {oracle.scheme for oracle in ORACLES} == set(BY_HAND)


@each_oracle
def test_a_signature_made_by_hand_is_accepted(oracle: Oracle):
    assert oracle.accepts(by_hand(oracle).sent())


@each_oracle
def test_header_names_may_be_spelled_in_capitals(oracle: Oracle):
    given = by_hand(oracle).sent()
    shouted = {name.upper(): value for name, value in given.headers.items()}

    assert oracle.accepts(replace(given, headers=shouted))


@for_each("oracle", [each for each in ORACLES if BY_HAND[each.scheme].covers])
def test_an_altered_body_is_refused(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()
    assert made.covers

    assert not oracle.accepts(replace(given, body=altered(given.body, made.covers)))


@for_each("oracle", [each for each in ORACLES if BY_HAND[each.scheme].leaves])
def test_what_the_signature_leaves_out_may_be_altered(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()
    assert made.leaves

    assert oracle.accepts(replace(given, body=altered(given.body, made.leaves)))


@for_each("oracle", [each for each in ORACLES if BY_HAND[each.scheme].covers_url])
def test_another_address_is_refused(oracle: Oracle):
    given = by_hand(oracle).sent()

    assert not oracle.accepts(replace(given, url=given.url.replace("hooks", "books")))


@each_oracle
def test_an_altered_signature_is_refused(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()
    signature = made.signature(given)
    # Not at the end, where base64 has bits that mean nothing.
    other = "0" if signature[-6] != "0" else "1"

    assert not oracle.accepts(made.with_signature(given, signature[:-6] + other + signature[-5:]))


@each_oracle
def test_a_truncated_signature_is_refused(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()

    # Four letters are two bytes in hexadecimal and three in base64, so that what is left can still be read.
    assert not oracle.accepts(made.with_signature(given, made.signature(given)[:-4]))


@each_oracle
def test_a_request_without_the_signature_is_refused(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()

    assert not oracle.accepts(made.with_signature(given, None))


@each_oracle
def test_anothers_secret_is_refused(oracle: Oracle):
    made, given = by_hand(oracle), by_hand(oracle).sent()

    assert not oracle.accepts(replace(given, secret=made.another_secret))


@for_each("oracle", [each for each in ORACLES if each.past is not None])
def test_a_signature_is_accepted_up_to_the_age_that_the_sdk_sets(oracle: Oracle):
    assert oracle.past is not None
    given = by_hand(oracle).sent()

    assert oracle.accepts(replace(given, at=AT + oracle.past))
    assert not oracle.accepts(replace(given, at=AT + oracle.past + 1))


@for_each("oracle", [each for each in ORACLES if each.future is not None])
def test_a_signature_is_accepted_as_far_ahead_as_the_sdk_sets(oracle: Oracle):
    assert oracle.future is not None
    given = by_hand(oracle).sent()

    assert oracle.accepts(replace(given, at=AT - oracle.future))
    assert not oracle.accepts(replace(given, at=AT - oracle.future - 1))


@for_each("oracle", [each for each in ORACLES if each.past is None])
def test_other_signatures_do_not_age(oracle: Oracle):
    assert oracle.accepts(replace(by_hand(oracle).sent(), at=AT + 365 * 86_400))


@for_each("oracle", [each for each in ORACLES if each.future is None])
def test_other_signatures_may_be_ahead(oracle: Oracle):
    assert oracle.accepts(replace(by_hand(oracle).sent(), at=AT - 365 * 86_400))


@each_signer
def test_what_an_sdk_signs_is_what_was_made_by_hand(oracle: Oracle):
    assert oracle.signs
    made = by_hand(oracle)
    signed = oracle.signs(made.secret, made.body(AT), URL, AT, DELIVERY_ID)

    assert oracle.accepts(signed)
    # A token may say more than it must, and says it in its own order.
    if (oracle.scheme, oracle.package) not in {
        ("livekit", "livekit-api"),
        ("netlify", "pyjwt"),
        ("standard_webhooks", "svix"),
    }:
        expected = made.sent()
        assert replace(signed, headers=signed.lowered) == replace(expected, headers=expected.lowered)


def by_hand(oracle: Oracle) -> ByHand:
    return BY_HAND[oracle.scheme]
