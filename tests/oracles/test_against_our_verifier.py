"""Our verifier and signer agree with the oracles: what one side signs the other accepts, and both refuse the rest.

Where we mean to differ from an SDK, it is written down here, so that a difference that nobody means is noticed.
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
from tests.oracles.by_hand import AT, BY_HAND, DELIVERY_ID, URL, ByHand, altered, event, mac, private_half
from tests.oracles.request import Given
from tests.support.for_each import for_each

# The first test loads what all providers have published, which takes a busy machine longer than any test.
pytestmark = pytest.mark.timeout(600)

Change = Callable[[ByHand, Given], Given | None]
"""Makes another request of a good one; None where a scheme has nothing to change in this way."""


AWKWARD_BODIES = {
    "line ends, escapes and placeholders": (
        b' \r\n\t{"type": "ping",\r\n "id": "{body} {ts} %s %2F \\u0000 \\ud83d\\ude00", "note": "'
        + "é e\u0301 \u2028 \ufeff \U0001f600".encode()
        + b'"}\r\n\r\n'
    ),
    "256 KiB": b'{"type": "ping", "id": "%s"}' % (b"0123456789abcdef" * 16_384),
}
ANY_BODY = [oracle for oracle in ORACLES if BY_HAND[oracle.scheme].body is event]


# What both refuse


def altered_body(made: ByHand, given: Given) -> Given | None:
    return replace(given, body=altered(given.body, made.covers)) if made.covers else None


def longer_body(made: ByHand, given: Given) -> Given | None:
    return replace(given, body=given.body + b" ") if made.covers and not made.leaves else None


def shorter_body(made: ByHand, given: Given) -> Given | None:
    return replace(given, body=given.body[:-1]) if made.covers and not made.leaves else None


def altered_signature(made: ByHand, given: Given) -> Given:
    signature = made.signature(given)
    return made.with_signature(given, signature[:-6] + ("0" if signature[-6] != "0" else "1") + signature[-5:])


def truncated_signature(made: ByHand, given: Given) -> Given:
    return made.with_signature(given, made.signature(given)[:-4])


def signature_of_another_body(made: ByHand, given: Given) -> Given | None:
    if made.covers is None:
        return None
    return made.with_signature(given, made.signature(made.sent(altered(made.body(AT), made.covers))))


def no_signature(made: ByHand, given: Given) -> Given:
    return made.with_signature(given, None)


def anothers_secret(made: ByHand, given: Given) -> Given:
    return replace(given, secret=made.another_secret)


def another_address(made: ByHand, given: Given) -> Given | None:
    return replace(given, url=given.url.replace("hooks", "books")) if made.covers_url else None


def later_time(made: ByHand, given: Given) -> Given | None:
    """The same signature under a later time, wherever that time stands."""
    later = {name: value.replace(str(AT), str(AT + 1)) for name, value in given.headers.items()}
    return replace(given, headers=later) if later != given.headers else None


def another_id(made: ByHand, given: Given) -> Given | None:
    named = [name for name in given.headers if name in {"webhook-id", "svix-id"}]
    return replace(given, headers=given.headers | {named[0]: "msg_another"}) if named else None


CHANGES: tuple[Change, ...] = (
    altered_body,
    longer_body,
    shorter_body,
    altered_signature,
    truncated_signature,
    signature_of_another_body,
    no_signature,
    anothers_secret,
    another_address,
    later_time,
    another_id,
)


def changes_of(made: ByHand) -> list[Change]:
    """Those that change something in this scheme."""
    return [change for change in CHANGES if change(made, made.sent()) is not None]


@for_each("made", list(BY_HAND.values()))
def test_we_accept_what_was_signed_by_hand(made: ByHand):
    assert we_accept(made.scheme, made.sent())


@for_each("oracle", [oracle for oracle in ORACLES if oracle.signs])
def test_we_accept_what_an_sdk_signs(oracle: Oracle):
    assert oracle.signs
    made = BY_HAND[oracle.scheme]

    assert we_accept(oracle.scheme, oracle.signs(made.secret, made.body(AT), URL, AT, DELIVERY_ID))


@pytest.mark.parametrize("body", AWKWARD_BODIES.values(), ids=AWKWARD_BODIES)
@for_each("oracle", ANY_BODY)
def test_both_accept_a_body_to_the_letter(oracle: Oracle, body: bytes):
    given = BY_HAND[oracle.scheme].sent(body)

    assert oracle.accepts(given)
    assert we_accept(oracle.scheme, given)


@pytest.mark.parametrize(
    ("provider", "scheme"),
    [
        ("anthropic", "standard_webhooks"),
        ("openai", "standard_webhooks"),
        ("replicate", "standard_webhooks"),
        ("resend", "svix"),
    ],
)
def test_a_provider_that_signs_as_others_do_is_known_by_its_own_name(provider: str, scheme: str):
    assert find(provider).name == scheme
    assert any(oracle.package == provider and oracle.scheme == scheme for oracle in ORACLES)


@for_each("oracle", ORACLES)
def test_an_sdk_accepts_what_we_sign(oracle: Oracle):
    assert oracle.accepts(signed_by_us(BY_HAND[oracle.scheme]))


@for_each("oracle", ORACLES)
def test_both_refuse_what_we_signed_and_somebody_changed(oracle: Oracle):
    made = BY_HAND[oracle.scheme]
    given = signed_by_us(made)
    spelled = {name.lower(): name for name in made.sent().headers}
    headers = {spelled.get(name, name): value for name, value in given.headers.items()}

    for change in changes_of(made):
        changed = change(made, replace(given, headers=headers))
        assert changed is not None, change.__name__
        assert not oracle.accepts(changed), change.__name__
        assert not we_accept(oracle.scheme, changed), change.__name__


@for_each("oracle", ORACLES)
def test_both_refuse(oracle: Oracle):
    made = BY_HAND[oracle.scheme]

    assert len(changes_of(made)) > 3
    for change in changes_of(made):
        changed = change(made, made.sent())
        assert changed is not None, change.__name__
        assert not oracle.accepts(changed), change.__name__
        assert not we_accept(oracle.scheme, changed), change.__name__


@for_each("made", [made for made in BY_HAND.values() if made.leaves])
def test_we_too_accept_a_change_in_what_the_signature_leaves_out(made: ByHand):
    assert made.leaves
    given = made.sent()

    assert we_accept(made.scheme, replace(given, body=altered(given.body, made.leaves)))


ENFORCED = ("polar", "standard_webhooks", "stripe", "svix")


@for_each("scheme", ENFORCED)
def test_we_enforce_the_age_where_the_sdk_does(scheme: str):
    given = BY_HAND[scheme].sent()
    ages = {seconds: we_accept(scheme, replace(given, at=AT + seconds)) for seconds in (300, 301, -300, -301)}

    assert ages == {300: True, 301: False, -300: True, -301: False}


@for_each("scheme", sorted(BY_HAND.keys() - set(ENFORCED) - {"livekit"}))
def test_elsewhere_an_age_is_the_providers_advice(scheme: str):
    given = BY_HAND[scheme].sent()

    assert we_accept(scheme, replace(given, at=AT + 86_400))
    assert we_accept(scheme, replace(given, at=AT - 86_400))


def test_we_take_a_token_for_as_long_as_the_sdk_does():
    given = BY_HAND["livekit"].sent()
    ages = {seconds: we_accept("livekit", replace(given, at=AT + seconds)) for seconds in (359, 361, -60, -61)}

    assert ages == {359: True, 361: False, -60: True, -61: False}


# Where we mean to differ


def signature_as(changed: Callable[[str], str]) -> Change:
    return lambda made, given: made.with_signature(given, changed(made.signature(given)))


def another_tag(signature: str) -> str:
    return signature.replace("v1,", "v1a,")


def no_tag(signature: str) -> str:
    return re.sub(r"^(v1,|sha256=)", "", signature)


def in_capitals(signature: str) -> str:
    return signature[:-30] + signature[-30:].upper()


def letters_behind_the_padding(signature: str) -> str:
    return signature + "ab"


def an_entry_without_a_tag_first(signature: str) -> str:
    return f"junk {signature}"


def beyond_ascii(signature: str) -> str:
    return signature[:-1] + "é"


def no_space_behind_the_comma(signature: str) -> str:
    return signature.replace(", ", ",")


def signed_with_sha1(made: ByHand, given: Given) -> Given:
    return made.with_signature(given, f"sha1={mac(given.secret.encode(), given.body, 'sha1').hex()}")


def with_a_fraction(made: ByHand, given: Given) -> Given:
    fractional = {name: f"{value}.0" if name.endswith("-timestamp") else value for name, value in given.headers.items()}
    return replace(given, headers=fractional)


def far_ahead(made: ByHand, given: Given) -> Given:
    return replace(given, at=AT - 301)


def with_the_port(made: ByHand, given: Given) -> Given:
    return replace(given, url=given.url.replace("example.com/", "example.com:443/"))


def without_its_prefix(made: ByHand, given: Given) -> Given:
    return replace(given, secret=given.secret.removeprefix("whsec_"))


LIBRARIES = ("standardwebhooks", "svix", "anthropic")
"""One piece of code under three names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    what: str
    change: Change
    packages: tuple[str, ...]
    theirs: str
    """What these packages do: accept, refuse, or break with an exception that says nothing about signatures."""
    ours: str

    def __str__(self) -> str:
        return self.what


DIFFERENCES = (
    Difference(
        what="an entry under another version's tag is not ours to judge",
        change=signature_as(another_tag),
        packages=("replicate", "resend"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="an entry without the tag or the prefix is none",
        change=signature_as(no_tag),
        packages=("openai", "pywa"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="nobody may choose a weaker digest",
        change=signed_with_sha1,
        packages=("gidgethub",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="base64 ends where it ends",
        change=signature_as(letters_behind_the_padding),
        packages=(*LIBRARIES, "replicate", "telnyx"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="a time is written in digits",
        change=with_a_fraction,
        packages=(*LIBRARIES, "polar-sdk"),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="a signature from the future is refused as an old one is",
        change=far_ahead,
        packages=("stripe",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="the address is the one in the settings, letter by letter",
        change=with_the_port,
        packages=("twilio",),
        theirs="accept",
        ours="refuse",
    ),
    Difference(
        what="a signature beyond ASCII is a wrong one and no fault",
        change=signature_as(beyond_ascii),
        packages=(*LIBRARIES, "openai", "stripe", "slack-sdk", "paddle-python-sdk", "gidgethub", "razorpay", "workos"),
        theirs="break",
        ours="refuse",
    ),
    Difference(
        what="an entry that cannot be read leaves the others as they are",
        change=signature_as(an_entry_without_a_tag_first),
        packages=LIBRARIES,
        theirs="break",
        ours="accept",
    ),
    Difference(
        what="hexadecimal has two spellings",
        change=signature_as(in_capitals),
        packages=("stripe", "slack-sdk", "gidgethub", "razorpay", "paddle-python-sdk", "elevenlabs", "workos", "pywa"),
        theirs="refuse",
        ours="accept",
    ),
    Difference(
        what="space between entries is free",
        change=signature_as(no_space_behind_the_comma),
        packages=("workos",),
        theirs="refuse",
        ours="accept",
    ),
    Difference(
        what="a secret without its prefix is the same secret",
        change=without_its_prefix,
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
def test_we_differ_from_an_sdk_where_we_mean_to(difference: Difference, oracle: Oracle):
    made = BY_HAND[oracle.scheme]
    changed = difference.change(made, made.sent())

    assert changed is not None
    assert what_it_does(oracle, changed) == difference.theirs
    assert ("accept" if we_accept(oracle.scheme, changed) else "refuse") == difference.ours


def what_it_does(oracle: Oracle, given: Given) -> str:
    try:
        return "accept" if oracle.accepts(given) else "refuse"
    except (TypeError, ValueError):
        return "break"


def signed_by_us(made: ByHand) -> Given:
    signed = sign(find(made.scheme), private_half(made.secret), made.body(AT), URL, AT * 1_000_000, made.delivery_id)
    return Given(secret=made.secret, headers=dict(signed.headers), body=signed.body, url=signed.url, at=AT)


def we_accept(scheme: str, given: Given) -> bool:
    rule = find(scheme)
    request = SignedRequest(
        headers={name.lower().encode(): value.encode() for name, value in given.headers.items()},
        conflicting_headers=frozenset(),
        body=given.body,
        url=given.url,
    )
    verdict = verify(rule, [prepare_key(rule, given.secret)], request, given.at * 1_000_000)
    return isinstance(verdict, Verified)
