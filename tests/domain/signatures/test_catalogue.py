"""The catalogue as people meet it: names, what each entry tells, and mistakes in the data."""

import re

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.catalogue import BrokenCatalogue
from hookmill.domain.signatures.scheme import ProofKind, signing_headers
from tests.support.cases import for_each

from .examples import NAMES

ENTRY = """
[made_up]
title = "Made Up"
docs = "https://example.com/webhooks"
algorithm = "hmac-sha256"
signature = { from = ["header:x-made-up"], encoding = "hex" }
"""


def test_the_first_six_schemes_are_spelled_as_the_contract_spells_them():
    for name in ("standard_webhooks", "github", "stripe", "sentry", "pagerduty", "vercel"):
        assert catalogue.find(name).name == name


def test_names_are_in_order_and_hold_the_aliases():
    names = catalogue.names()

    assert list(names) == sorted(set(names))
    assert {"openai", "clerk", "whatsapp", "forgejo", *NAMES} <= set(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@for_each(
    ("alias", "scheme"),
    [("openai", "standard_webhooks"), ("clerk", "svix"), ("whatsapp", "meta"), ("forgejo", "gitea")],
)
def test_an_alias_is_a_name_of_its_scheme(alias, scheme):
    assert catalogue.find(alias) is catalogue.find(scheme)


def test_an_unknown_name_is_refused_with_the_allowed_ones():
    with pytest.raises(Invalid, match="'standard-webhooks' is no signature scheme") as refused:
        catalogue.find("standard-webhooks")

    assert "Did you mean standard_webhooks?" in str(refused.value)
    assert all(name in str(refused.value) for name in catalogue.names())


@for_each("name", NAMES)
def test_an_entry_tells_people_what_it_is_and_what_to_do(name):
    scheme = catalogue.find(name)

    assert scheme.title
    assert re.fullmatch(r"https://[^ ]+", scheme.docs)
    assert 2 <= len(scheme.setup) <= 5
    assert all(step.endswith(".") and len(step) < 160 for step in (*scheme.setup, *scheme.notes))
    assert scheme.proof.source
    assert scheme.proof.kind is not ProofKind.NONE or scheme.experimental


def test_titles_and_tables_are_unique():
    titles = [scheme.title for scheme in catalogue.schemes()]

    assert len(set(titles)) == len(titles)


@for_each("name", NAMES)
def test_an_event_id_header_is_no_proof_and_may_be_named_by_people(name):
    scheme = catalogue.find(name)
    ids = {where.removeprefix("header:").encode() for where in scheme.delivery_id if where.startswith("header:")}

    assert not ids & signing_headers(scheme)


def test_the_headers_that_prove_are_known():
    assert signing_headers(catalogue.find("slack")) == {b"x-slack-signature", b"x-slack-request-timestamp"}
    assert signing_headers(catalogue.find("mailgun")) == frozenset()
    assert b"x-docusign-signature-100" in signing_headers(catalogue.find("docusign"))
    assert b"webhook-id" not in signing_headers(catalogue.find("standard_webhooks"))


@for_each(
    ("name", "body", "time", "delivery"),
    [
        ("github", True, False, False),
        ("standard_webhooks", True, True, True),
        ("stripe", True, True, True),
        ("sentry", True, False, False),
        ("linear", True, True, False),
        ("mailgun", False, True, True),
        ("gitlab_token", False, False, False),
        ("livekit", True, True, True),
        ("twilio", True, False, False),
        ("gitguardian", True, True, False),
    ],
)
def test_what_a_signature_covers(name, body, time, delivery):
    scheme = catalogue.find(name)

    assert (scheme.covers_body, scheme.covers_time, scheme.covers_id) == (body, time, delivery)


def test_a_new_entry_is_a_scheme():
    assert catalogue.read(ENTRY)["made_up"].experimental


@for_each(
    ("line", "fault"),
    [
        ('colour = "red"', "colour"),
        ('content = "{ts}.{body}"', "timestamp: {ts} is signed"),
        ('content = "{bodi}"', "content: unknown placeholder {bodi}"),
        ('content = "{body"', "content: a brace"),
        ('timestamp = { from = ["body:t"], unit = "s" }', "timestamp: 'body:t' is no source"),
        ('timestamp = { from = ["header:t"], unit = "h" }', "unit"),
        ('timestamp = { from = ["header:t"], unit = "s", enforced = true }', "tolerance_seconds"),
        ('secret = { decode = "rot13" }', "secret"),
        ('secret = { decode = "spki" }', "secret.decode"),
        ('secret = { key = "{secrte}" }', "secret.key: unknown placeholder"),
        ('delivery_id = ["json:"]', "delivery_id"),
        ('jwt = { body_claim = "sha256", claim_encoding = "hex" }', "jwt"),
        ("title = 7", "title"),
    ],
)
def test_a_mistake_in_an_entry_is_named_with_its_scheme(line, fault):
    field = line.partition(" ")[0]
    text = "\n".join(one for one in ENTRY.splitlines() if not one.startswith(f"{field} ")) + f"\n{line}\n"

    with pytest.raises(BrokenCatalogue, match="made_up: ") as broken:
        catalogue.read(text)

    assert fault in str(broken.value)


@for_each(
    ("signature", "fault"),
    [
        ('{ from = ["field:t"], encoding = "hex" }', "signature.from"),
        ('{ from = ["header:a"], encoding = "rot13" }', "encoding"),
        ('{ from = ["header:a"], encoding = "hex", list = { split = "," } }', "field, tag and positional"),
        ('{ from = ["header:a"], encoding = "hex", list = { split = ",", tag = "v1", field = "v1" } }', "exactly one"),
        ('{ encoding = "hex" }', "from"),
    ],
)
def test_a_mistake_in_a_signature_is_named(signature, fault):
    text = re.sub("signature = .*", f"signature = {signature}", ENTRY)

    with pytest.raises(BrokenCatalogue, match="made_up: ") as broken:
        catalogue.read(text)

    assert fault in str(broken.value)


def test_two_entries_can_not_share_a_name():
    with pytest.raises(BrokenCatalogue, match="twin is already a name of made_up"):
        catalogue.read(ENTRY + 'aliases = ["twin"]\n' + ENTRY.replace("made_up", "twin"))
