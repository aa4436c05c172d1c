"""The verifier and the signer agree with the oracles: each side accepts what the other signs, and both refuse the rest.

`DIFFERENCES` lists the intended differences from an SDK, so that an unintended one makes a test fail.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from hookmill.domain.signatures.catalogue import find
from hookmill.domain.signatures.key import prepare_key
from hookmill.domain.signatures.reading import SignedRequest
from hookmill.domain.signatures.sign import sign
from hookmill.domain.signatures.verify import Verified, verify
from tests.oracles import ORACLES, Oracle
from tests.oracles.reference_signers import (
    AT,
    DELIVERY_ID,
    REFERENCE_SIGNERS,
    URL,
    ReferenceSigner,
    event,
    mac,
    signing_secret,
    with_reversed_word,
)
from tests.oracles.signed_delivery import SignedDelivery
from tests.support.for_each import for_each

# The first test loads all SDKs. On a busy machine, this takes longer than any test.
pytestmark = pytest.mark.timeout(600)

Change = Callable[[ReferenceSigner, SignedDelivery], SignedDelivery | None]
"""Returns a changed delivery, or None if the change does not apply to the scheme."""


UNUSUAL_BODIES = {
    "line breaks, escapes and placeholders": (
        b' \r\n\t{"type": "ping",\r\n "id": "{body} {ts} %s %2F \\u0000 \\ud83d\\ude00", "note": "'
        + "é e\u0301 \u2028 \ufeff \U0001f600".encode()
        + b'"}\r\n\r\n'
    ),
    "256 KiB": b'{"type": "ping", "id": "%s"}' % (b"0123456789abcdef" * 16_384),
}
ORACLES_FOR_ANY_BODY = [oracle for oracle in ORACLES if REFERENCE_SIGNERS[oracle.scheme].make_body is event]


# Changes that both refuse


def changed_body(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    if signer.covered_word is None:
        return None
    return replace(delivery, body=with_reversed_word(delivery.body, signer.covered_word))


def longer_body(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, body=delivery.body + b" ") if covers_whole_body(signer) else None


def shorter_body(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, body=delivery.body[:-1]) if covers_whole_body(signer) else None


def covers_whole_body(signer: ReferenceSigner) -> bool:
    return signer.covered_word is not None and signer.uncovered_word is None


def changed_signature(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    signature = signer.signature(delivery)
    return signer.with_signature(delivery, signature[:-6] + ("0" if signature[-6] != "0" else "1") + signature[-5:])


def truncated_signature(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return signer.with_signature(delivery, signer.signature(delivery)[:-4])


def signature_of_another_body(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    if signer.covered_word is None:
        return None
    other = signer.delivery(with_reversed_word(signer.make_body(AT), signer.covered_word))
    return signer.with_signature(delivery, signer.signature(other))


def no_signature(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return signer.with_signature(delivery, None)


def other_secret(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return replace(delivery, secret=signer.other_secret)


def other_url(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    return replace(delivery, url=delivery.url.replace("hooks", "books")) if signer.covers_url else None


def later_time(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
    """The same signature with a later time, in any header."""
    headers = {name: value.replace(str(AT), str(AT + 1)) for name, value in delivery.headers.items()}
    return replace(delivery, headers=headers) if headers != delivery.headers else None


def other_id(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery | None:
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


def changes_for(signer: ReferenceSigner) -> list[Change]:
    """The changes that apply to the scheme."""
    return [change for change in CHANGES if change(signer, signer.delivery()) is not None]


@for_each("signer", list(REFERENCE_SIGNERS.values()))
def test_verifier_accepts_deliveries_of_the_reference_signers(signer):
    assert verifier_accepts(signer.scheme, signer.delivery())


@for_each("oracle", [oracle for oracle in ORACLES if oracle.sign])
def test_verifier_accepts_deliveries_that_an_sdk_signed(oracle):
    assert oracle.sign
    signer = REFERENCE_SIGNERS[oracle.scheme]

    assert verifier_accepts(oracle.scheme, oracle.sign(signer.secret, signer.make_body(AT), URL, AT, DELIVERY_ID))


@pytest.mark.parametrize("body", UNUSUAL_BODIES.values(), ids=UNUSUAL_BODIES)
@for_each("oracle", ORACLES_FOR_ANY_BODY)
def test_verifier_and_sdk_accept_unusual_bodies(oracle, body):
    delivery = REFERENCE_SIGNERS[oracle.scheme].delivery(body)

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
def test_sdk_accepts_deliveries_of_our_signer(oracle):
    assert oracle.accepts(signed_by_our_signer(REFERENCE_SIGNERS[oracle.scheme]))


@for_each("oracle", ORACLES)
def test_verifier_and_sdk_refuse_changed_deliveries_of_our_signer(oracle):
    signer = REFERENCE_SIGNERS[oracle.scheme]
    delivery = signed_by_our_signer(signer)
    spellings = {name.lower(): name for name in signer.delivery().headers}
    headers = {spellings.get(name, name): value for name, value in delivery.headers.items()}

    require_that_changes_are_refused(oracle, replace(delivery, headers=headers))


@for_each("oracle", ORACLES)
def test_verifier_and_sdk_refuse_changed_deliveries(oracle):
    signer = REFERENCE_SIGNERS[oracle.scheme]

    assert len(changes_for(signer)) > 3
    require_that_changes_are_refused(oracle, signer.delivery())


def require_that_changes_are_refused(oracle: Oracle, delivery: SignedDelivery):
    signer = REFERENCE_SIGNERS[oracle.scheme]
    for change in changes_for(signer):
        changed = change(signer, delivery)
        assert changed is not None, change.__name__
        assert not oracle.accepts(changed), change.__name__
        assert not verifier_accepts(oracle.scheme, changed), change.__name__


@for_each("signer", [signer for signer in REFERENCE_SIGNERS.values() if signer.uncovered_word])
def test_verifier_accepts_a_change_that_the_signature_does_not_cover(signer):
    assert signer.uncovered_word
    delivery = signer.delivery()
    changed = replace(delivery, body=with_reversed_word(delivery.body, signer.uncovered_word))

    assert verifier_accepts(signer.scheme, changed)


SCHEMES_WITH_ENFORCED_TIME = ("polar", "standard_webhooks", "stripe", "svix")


@for_each("scheme", SCHEMES_WITH_ENFORCED_TIME)
def test_verifier_enforces_the_time_of_these_schemes(scheme):
    delivery = REFERENCE_SIGNERS[scheme].delivery()
    results = {age: verifier_accepts(scheme, replace(delivery, at=AT + age)) for age in (300, 301, -300, -301)}

    assert results == {300: True, 301: False, -300: True, -301: False}


@for_each("scheme", sorted(REFERENCE_SIGNERS.keys() - set(SCHEMES_WITH_ENFORCED_TIME) - {"livekit"}))
def test_verifier_accepts_any_age_for_other_schemes(scheme):
    delivery = REFERENCE_SIGNERS[scheme].delivery()

    assert verifier_accepts(scheme, replace(delivery, at=AT + 86_400))
    assert verifier_accepts(scheme, replace(delivery, at=AT - 86_400))


def test_verifier_accepts_a_livekit_token_as_long_as_the_sdk():
    delivery = REFERENCE_SIGNERS["livekit"].delivery()
    results = {age: verifier_accepts("livekit", replace(delivery, at=AT + age)) for age in (359, 361, -60, -61)}

    assert results == {359: True, 361: False, -60: True, -61: False}


# Intended differences


def with_changed_signature(change: Callable[[str], str]) -> Change:
    return lambda signer, delivery: signer.with_signature(delivery, change(signer.signature(delivery)))


def other_tag(signature: str) -> str:
    return signature.replace("v1,", "v1a,")


def no_tag(signature: str) -> str:
    return re.sub(r"^(v1,|sha256=)", "", signature)


def in_upper_case(signature: str) -> str:
    return signature[:-30] + signature[-30:].upper()


def letters_after_padding(signature: str) -> str:
    return signature + "ab"


def preceding_entry_without_tag(signature: str) -> str:
    return f"junk {signature}"


def not_ascii(signature: str) -> str:
    return signature[:-1] + "é"


def no_space_after_comma(signature: str) -> str:
    return signature.replace(", ", ",")


def signed_with_sha1(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    digest = mac(delivery.secret.encode(), delivery.body, "sha1")
    return signer.with_signature(delivery, f"sha1={digest.hex()}")


def time_with_fraction(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    headers = {name: f"{value}.0" if name.endswith("-timestamp") else value for name, value in delivery.headers.items()}
    return replace(delivery, headers=headers)


def signed_in_the_future(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return replace(delivery, at=AT - 301)


def url_with_port(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return replace(delivery, url=delivery.url.replace("example.com/", "example.com:443/"))


def secret_without_prefix(signer: ReferenceSigner, delivery: SignedDelivery) -> SignedDelivery:
    return replace(delivery, secret=delivery.secret.removeprefix("whsec_"))


STANDARD_WEBHOOKS_LIBRARIES = ("standardwebhooks", "svix", "anthropic")
"""These packages contain the same code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    our_rule: str
    change: Change
    packages: tuple[str, ...]
    theirs: str
    """What these packages do: accept, refuse, or raise an exception that is not about signatures."""
    ours: str

    def __str__(self) -> str:
        return self.our_rule


DIFFERENCES = (
    Difference(
        our_rule="entries with the tag of another version are ignored",
        change=with_changed_signature(other_tag),
        packages=("replicate", "resend"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="signatures without their tag or prefix are ignored",
        change=with_changed_signature(no_tag),
        packages=("openai", "pywa"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="the sender cannot choose a weaker digest",
        change=signed_with_sha1,
        packages=("gidgethub",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="base64 ends after its padding",
        change=with_changed_signature(letters_after_padding),
        packages=(*STANDARD_WEBHOOKS_LIBRARIES, "replicate", "telnyx"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="a time contains only digits",
        change=time_with_fraction,
        packages=(*STANDARD_WEBHOOKS_LIBRARIES, "polar-sdk"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="signatures from the future are refused like old ones",
        change=signed_in_the_future,
        packages=("stripe",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="the signed URL must equal the configured one",
        change=url_with_port,
        packages=("twilio",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        our_rule="a signature that is not ASCII causes no error",
        change=with_changed_signature(not_ascii),
        packages=(
            *STANDARD_WEBHOOKS_LIBRARIES,
            "openai",
            "stripe",
            "slack-sdk",
            "paddle-python-sdk",
            "gidgethub",
            "razorpay",
            "workos",
        ),
        theirs="raise",
        ours="refuse",
    ),
    Difference(
        our_rule="entries that cannot be read are ignored",
        change=with_changed_signature(preceding_entry_without_tag),
        packages=STANDARD_WEBHOOKS_LIBRARIES,
        theirs="raise",
        ours="accept",
    ),
    Difference(
        our_rule="hexadecimal digits are case-insensitive",
        change=with_changed_signature(in_upper_case),
        packages=("stripe", "slack-sdk", "gidgethub", "razorpay", "paddle-python-sdk", "elevenlabs", "workos", "pywa"),
        theirs="refuse",
        ours="accept",
    ),
    Difference(
        our_rule="spaces between entries are optional",
        change=with_changed_signature(no_space_after_comma),
        packages=("workos",),
        theirs="refuse",
        ours="accept",
    ),
    Difference(
        our_rule="the prefix of a secret is optional",
        change=secret_without_prefix,
        packages=("openai", "replicate"),
        theirs="refuse",
        ours="accept",
    ),
)


@pytest.mark.parametrize(
    ("difference", "oracle"),
    [(difference, oracle) for difference in DIFFERENCES for oracle in ORACLES if oracle.package in difference.packages],
    ids=str,
)
def test_verifier_differs_from_an_sdk_only_as_intended(difference, oracle):
    signer = REFERENCE_SIGNERS[oracle.scheme]
    changed = difference.change(signer, signer.delivery())

    assert changed is not None
    assert result_of(oracle, changed) == difference.theirs
    assert ("accept" if verifier_accepts(oracle.scheme, changed) else "refuse") == difference.ours


def result_of(oracle: Oracle, delivery: SignedDelivery) -> str:
    try:
        return "accept" if oracle.accepts(delivery) else "refuse"
    except (TypeError, ValueError):
        return "raise"


def signed_by_our_signer(signer: ReferenceSigner) -> SignedDelivery:
    body, at_us = signer.make_body(AT), AT * 1_000_000
    request = sign(find(signer.scheme), signing_secret(signer.secret), body, URL, at_us, signer.delivery_id)
    return SignedDelivery(
        secret=signer.secret, headers=dict(request.headers), body=request.body, url=request.url, at=AT
    )


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
