"""The catalogue as people meet it: names, what each entry tells, and mistakes in the data."""

import re

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.signatures import catalogue
from hookmill.domain.signatures.catalogue import BrokenCatalogue
from hookmill.domain.signatures.rule import usable_event_header_for
from hookmill.domain.signatures.scheme import Event, ProofKind, Scheme, signature_or_signed_headers
from tests.support.for_each import for_each

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


@pytest.mark.parametrize(
    ("alias", "scheme"),
    [("openai", "standard_webhooks"), ("clerk", "svix"), ("whatsapp", "meta"), ("forgejo", "gitea")],
)
def test_an_alias_is_a_name_of_its_scheme(alias, scheme):
    assert catalogue.find(alias) is catalogue.find(scheme)


def test_an_unknown_name_is_refused_with_the_allowed_ones():
    with pytest.raises(Invalid, match="'standard-webhooks' is not a signature scheme") as refused:
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

    assert not ids & signature_or_signed_headers(scheme)


def test_the_headers_that_prove_are_known():
    assert signature_or_signed_headers(catalogue.find("slack")) == {b"x-slack-signature", b"x-slack-request-timestamp"}
    assert signature_or_signed_headers(catalogue.find("mailgun")) == frozenset()
    assert b"x-docusign-signature-100" in signature_or_signed_headers(catalogue.find("docusign"))
    assert b"webhook-id" not in signature_or_signed_headers(catalogue.find("standard_webhooks"))


@pytest.mark.parametrize(
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
    assert catalogue.read_catalogue(ENTRY)["made_up"].experimental


@pytest.mark.parametrize(
    ("line", "fault"),
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
def test_a_mistake_in_an_entry_is_named_with_its_scheme(line, fault):
    field = line.partition(" ")[0]
    text = "\n".join(one for one in ENTRY.splitlines() if not one.startswith(f"{field} ")) + f"\n{line}\n"

    with pytest.raises(BrokenCatalogue, match="made_up: ") as broken:
        catalogue.read_catalogue(text)

    assert fault in str(broken.value)


@pytest.mark.parametrize(
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
        catalogue.read_catalogue(text)

    assert fault in str(broken.value)


def test_two_entries_can_not_share_a_name():
    with pytest.raises(BrokenCatalogue, match="twin is already a name of made_up"):
        catalogue.read_catalogue(ENTRY + 'aliases = ["twin"]\n' + ENTRY.replace("made_up", "twin"))


def events() -> list[tuple[Scheme, str, Event]]:
    """Every place of an event's type that the catalogue knows, with the name of the provider."""
    found = []
    for name in catalogue.names():
        scheme = catalogue.find(name)
        if (event := scheme.event_for(name)) is not None:
            found.append((scheme, name, event))
    return found


def test_a_place_of_the_events_type_names_its_source():
    assert len(events()) > 60
    for _, _, event in events():
        assert re.fullmatch(r"header:[a-z0-9-]+|json:[A-Za-z0-9_.-]+", event.source)
        assert re.fullmatch(r"https://[^ ]+", event.docs)


def test_the_headers_with_the_events_type_hold_no_proof():
    for scheme, _, event in events():
        assert event.source.removeprefix("header:").encode() not in signature_or_signed_headers(scheme)


@pytest.mark.parametrize(
    ("name", "where", "is_signed"),
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
def test_the_events_type_is_signed_where_the_signature_covers_its_place(name, where, is_signed):
    scheme = catalogue.find(name)

    event = scheme.event_for(name)

    assert event is not None
    assert (event.source, scheme.covers_event(name)) == (where, is_signed)


@pytest.mark.parametrize(
    "name",
    ["svix", "vanta", "sendgrid", "line", "hubspot_v3", "airtable", "discord", "replicate", "supabase_auth"],
)
def test_a_provider_without_one_event_type_has_no_place_for_it(name):
    scheme = catalogue.find(name)

    assert (scheme.event_for(name), scheme.covers_event(name)) == (None, False)


@pytest.mark.parametrize(
    ("line", "fault"),
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
def test_a_mistake_in_the_place_of_the_events_type_is_found(line, fault):
    with pytest.raises(BrokenCatalogue, match="made_up") as broken:
        catalogue.read_catalogue(ENTRY + line)

    assert fault in str(broken.value)


@pytest.mark.parametrize(
    ("name", "header", "fault"),
    [
        ("github", "X-Kind", "The event type of github is read from the header x-github-event"),
        ("stripe", "X-Kind", "The event type of stripe is read from the field type of the body"),
        ("gitlab", "X-Kind", "The event type of gitlab is read from the header x-gitlab-event"),
        ("svix", "Svix-Signature", "Svix-Signature is part of Svix's signature"),
    ],
)
def test_an_event_header_is_refused_where_it_is_known_or_proof(name, header, fault):
    with pytest.raises(Invalid) as refused:
        usable_event_header_for(catalogue.find(name), name, header)

    assert fault in str(refused.value)


@pytest.mark.parametrize("name", ["vanta", "replicate"])
def test_an_event_header_may_be_named_where_none_is_known(name):
    assert usable_event_header_for(catalogue.find(name), name, "X-Kind") == "X-Kind"
