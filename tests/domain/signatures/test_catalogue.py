"""The catalogue of schemes: names, texts for users, event types, and messages about invalid entries."""

import re

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.catalogue import BrokenCatalogue
from hookmill.domain.signatures.rule import usable_event_header_for
from hookmill.domain.signatures.scheme import Event, ProofKind, Scheme
from tests.support.for_each import for_each

from .vector import NAMES

ENTRY = """
[made_up]
title = "Made Up"
docs = "https://example.com/webhooks"
algorithm = "hmac-sha256"
signature = { from = ["header:x-made-up"], encoding = "hex" }
"""


def test_first_six_schemes_have_the_names_of_the_contract():
    for name in ("standard_webhooks", "github", "stripe", "sentry", "pagerduty", "vercel"):
        assert catalogue.find(name).name == name


def test_names_are_sorted_and_include_the_aliases():
    names = catalogue.names()

    assert list(names) == sorted(set(names))
    assert {"openai", "clerk", "whatsapp", "forgejo", *NAMES} <= set(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)


@pytest.mark.parametrize(
    ("alias", "scheme"),
    [("openai", "standard_webhooks"), ("clerk", "svix"), ("whatsapp", "meta"), ("forgejo", "gitea")],
)
def test_alias_finds_its_scheme(alias, scheme):
    assert catalogue.find(alias) is catalogue.find(scheme)


def test_message_about_an_unknown_name_lists_the_allowed_ones():
    with pytest.raises(Invalid, match="'standard-webhooks' is not a signature scheme") as refused:
        catalogue.find("standard-webhooks")

    assert "Did you mean standard_webhooks?" in str(refused.value)
    assert all(name in str(refused.value) for name in catalogue.names())


@for_each("name", NAMES)
def test_entry_has_a_title_instructions_and_proof(name):
    scheme = catalogue.find(name)

    assert scheme.title
    assert re.fullmatch(r"https://[^ ]+", scheme.docs)
    assert 2 <= len(scheme.setup) <= 5
    assert all(step.endswith(".") and len(step) < 160 for step in (*scheme.setup, *scheme.notes))
    assert scheme.proof.source
    assert scheme.proof.kind is not ProofKind.NONE or scheme.experimental


def test_titles_are_unique():
    titles = [scheme.title for scheme in catalogue.schemes()]

    assert len(set(titles)) == len(titles)


@for_each("name", NAMES)
def test_delivery_id_header_is_neither_signature_nor_signed(name):
    scheme = catalogue.find(name)
    headers = {source.removeprefix("header:").encode() for source in scheme.delivery_id if source.startswith("header:")}

    assert not headers & scheme.compiled.signature_or_signed_headers


def test_signature_and_signed_headers_of_a_scheme():
    assert catalogue.find("slack").compiled.signature_or_signed_headers == {
        b"x-slack-signature",
        b"x-slack-request-timestamp",
    }
    assert catalogue.find("mailgun").compiled.signature_or_signed_headers == frozenset()
    assert b"x-docusign-signature-100" in catalogue.find("docusign").compiled.signature_or_signed_headers
    assert b"webhook-id" not in catalogue.find("standard_webhooks").compiled.signature_or_signed_headers


@pytest.mark.parametrize(
    ("name", "body", "time", "delivery_id"),
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
def test_parts_of_a_request_that_the_signature_covers(name, body, time, delivery_id):
    scheme = catalogue.find(name)

    assert (scheme.covers_body, scheme.covers_time, scheme.covers_id) == (body, time, delivery_id)


def test_entry_without_proof_is_experimental():
    assert catalogue.read_catalogue(ENTRY)["made_up"].experimental


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('colour = "red"', "colour"),
        ('content = "{ts}.{body}"', "timestamp: {ts} is signed"),
        ('content = "{bodi}"', "content: unknown placeholder {bodi}"),
        ('content = "{body"', "content: a brace"),
        ('timestamp = { from = ["body:t"], unit = "s" }', "timestamp: 'body:t' is not a source"),
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
def test_message_about_an_invalid_entry_names_scheme_and_field(line, message):
    field = line.partition(" ")[0]
    other_lines = [each for each in ENTRY.splitlines() if not each.startswith(f"{field} ")]
    text = "\n".join([*other_lines, line])

    with pytest.raises(BrokenCatalogue, match="made_up: ") as error:
        catalogue.read_catalogue(text)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ('{ from = ["field:t"], encoding = "hex" }', "signature.from"),
        ('{ from = ["header:a"], encoding = "rot13" }', "encoding"),
        ('{ from = ["header:a"], encoding = "hex", list = { split = "," } }', "field, tag and positional"),
        ('{ from = ["header:a"], encoding = "hex", list = { split = ",", tag = "v1", field = "v1" } }', "exactly one"),
        ('{ encoding = "hex" }', "from"),
    ],
)
def test_message_about_an_invalid_signature_names_the_field(signature, message):
    text = re.sub("signature = .*", f"signature = {signature}", ENTRY)

    with pytest.raises(BrokenCatalogue, match="made_up: ") as error:
        catalogue.read_catalogue(text)

    assert message in str(error.value)


def test_two_entries_cannot_share_a_name():
    with pytest.raises(BrokenCatalogue, match="twin is already a name of made_up"):
        catalogue.read_catalogue(ENTRY + 'aliases = ["twin"]\n' + ENTRY.replace("made_up", "twin"))


def event_sources() -> list[tuple[Scheme, Event]]:
    """Every source of an event type in the catalogue, with its scheme."""
    return [
        (scheme, event)
        for name in catalogue.names()
        if (event := (scheme := catalogue.find(name)).event_for(name)) is not None
    ]


def test_every_event_type_has_a_valid_source():
    assert len(event_sources()) > 60
    for _, event in event_sources():
        assert re.fullmatch(r"header:[a-z0-9-]+|json:[A-Za-z0-9_.-]+", event.source)
        assert re.fullmatch(r"https://[^ ]+", event.docs)


def test_event_type_header_is_neither_signature_nor_signed():
    for scheme, event in event_sources():
        assert event.source.removeprefix("header:").encode() not in scheme.compiled.signature_or_signed_headers


@pytest.mark.parametrize(
    ("name", "source", "is_signed"),
    [
        ("github", "header:x-github-event", False),
        ("gitlab_token", "header:x-gitlab-event", False),
        ("gitlab", "header:x-gitlab-event", False),
        ("shopify", "header:x-shopify-topic", False),
        ("bitbucket", "header:x-event-key", False),
        ("sentry", "header:sentry-hook-resource", False),
        ("stripe", "json:type", True),
        ("standard_webhooks", "json:type", True),
        ("openai", "json:type", True),
        ("anthropic", "json:data.type", True),
        ("pagerduty", "json:event.event_type", True),
        # Eight fields of the body are signed, and this is one of them.
        ("adyen", "json:notificationItems.0.NotificationRequestItem.eventCode", True),
        # The signature covers a time and a token only.
        ("mailgun", "json:event-data.event", False),
        ("figma", "json:event_type", False),
        ("livekit", "json:event", True),
        ("heroku", "json:webhook_metadata.event.include", True),
        ("sanity", "header:sanity-operation", False),
        ("gitguardian", "json:action", True),
        ("hugging_face", "json:event.scope", False),
    ],
)
def test_event_type_is_signed_if_the_signature_covers_its_source(name, source, is_signed):
    scheme = catalogue.find(name)

    event = scheme.event_for(name)

    assert event is not None
    assert (event.source, scheme.covers_event(name)) == (source, is_signed)


@pytest.mark.parametrize(
    "name",
    ["svix", "vanta", "sendgrid", "line", "hubspot_v3", "airtable", "discord", "replicate", "supabase_auth"],
)
def test_provider_without_a_single_event_type_has_no_source_for_it(name):
    scheme = catalogue.find(name)

    assert (scheme.event_for(name), scheme.covers_event(name)) == (None, False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('event = { from = "field:t", docs = "https://example.com" }', "event: 'field:t' is for timestamps"),
        ('event = { from = "X-Event", docs = "https://example.com" }', "event.from: 'X-Event' is not a source"),
        ('event = { from = "header:X-Event", docs = "https://example.com" }', "write header names in lower case"),
        ('event = { from = "header:x-event" }', "missing required field `docs`"),
        (
            'alias_events.other = { from = "json:type", docs = "https://example.com" }',
            "alias_events: other is not one of the aliases",
        ),
        ('aliases_without_event = ["other"]', "aliases_without_event: other is not one of the aliases"),
        (
            'aliases = ["twin"]\naliases_without_event = ["twin"]\n'
            'alias_events.twin = { from = "json:type", docs = "https://example.com" }',
            "aliases_without_event: twin is also in alias_events",
        ),
    ],
)
def test_message_about_an_invalid_event_type_names_the_field(line, message):
    with pytest.raises(BrokenCatalogue, match="made_up") as error:
        catalogue.read_catalogue(ENTRY + line)

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "header", "message"),
    [
        ("github", "X-Kind", "The event type of github is read from the header x-github-event"),
        ("stripe", "X-Kind", "The event type of stripe is read from the field type of the body"),
        ("gitlab", "X-Kind", "The event type of gitlab is read from the header x-gitlab-event"),
        ("svix", "Svix-Signature", "Svix-Signature is part of Svix's signature"),
    ],
)
def test_unusable_event_header_is_refused_with_the_reason(name, header, message):
    with pytest.raises(Invalid) as error:
        usable_event_header_for(catalogue.find(name), name, header)

    assert message in str(error.value)


@pytest.mark.parametrize("name", ["vanta", "replicate"])
def test_event_header_is_accepted_if_the_catalogue_has_no_source(name):
    assert usable_event_header_for(catalogue.find(name), name, "X-Kind") == "X-Kind"
