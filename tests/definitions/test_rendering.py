"""The text of a plan for people."""

import pytest
from msgspec import structs

from hookmill.definitions.folder import Files
from hookmill.definitions.planning import State, plan_of
from hookmill.definitions.reading import read_definitions
from hookmill.definitions.rendering import lines_of_plan, summary_of
from hookmill.domain.automation import Automation, DeliveryFilter, WebhookTrigger
from hookmill.domain.ids import AutomationId, FactoryId, WebhookUid
from hookmill.domain.webhook import AuthMode, Webhook, WebhookState

UID = WebhookUid("wh_1")
WEBHOOK = Webhook(
    uid=UID,
    no=1,
    factory_id=FactoryId("fac_1"),
    name="source",
    auth_mode=AuthMode.TOKEN,
    state=WebhookState.ENABLED,
    secret_name="S",
    revision=1,
    created_at=0,
)
AUTOMATION = Automation(
    id=AutomationId("aut_1"),
    factory_id=FactoryId("fac_1"),
    name="triage",
    enabled=True,
    version=1,
    prompt="Read it.\n\nLook.\n\nSay so.",
    runner="package",
    triggers=(WebhookTrigger(event="received", filter=DeliveryFilter(webhook_ids=(UID,))),),
    created_at=0,
    updated_at=0,
)
TRIGGERS = f"triggers:\n  - provider: webhook\n    event: received\n    filter:\n      webhook_ids: [{UID}]\n"
FILES = {
    "webhooks/source.yaml": "secretName: S\n",
    "automations/triage/automation.md": f"---\n{TRIGGERS}---\n{AUTOMATION.prompt}\n",
}


def plan_text(
    files: dict[str, str], webhook: Webhook | None = WEBHOOK, automation: Automation | None = AUTOMATION
) -> list[str]:
    """The lines of the plan for `FILES` with these changes. A file with an empty text is missing."""
    contents = {path: text.encode() for path, text in (FILES | files).items() if text}
    definitions = read_definitions(
        Files(
            {path: content for path, content in contents.items() if path.startswith("webhooks")},
            {path: content for path, content in contents.items() if path.startswith("automations")},
        )
    )
    assert definitions.problems == ()
    state = State(
        factory_name="default",
        defined_by_files=True,
        webhooks=(webhook,) if webhook else (),
        automations=(automation,) if automation else (),
        has_value_by_secret_name={"S": True, "T": True},
        own_secret_names=("S", "T"),
        default_runner="package",
    )
    plan = plan_of(definitions, state)
    return [*lines_of_plan(plan), summary_of(plan)]


def test_plan_without_changes_says_so():
    assert plan_text({}) == ["Nothing to do: all webhooks and automations match the files (2)."]


def test_plan_shows_what_it_creates():
    files = {
        "webhooks/source.yaml": "authMode: signature\nsignatureScheme: github\nsecretName: S\ndeliveryIdHeader: X-Id\n",
        "automations/triage/automation.md": f"---\nenabled: false\n{TRIGGERS}---\nLook.\n",
    }

    assert plan_text(files, webhook=None, automation=None) == [
        "+ webhook source: authMode signature, signatureScheme github, secretName S, deliveryIdHeader X-Id",
        "+ automation triage: runner package, 1 trigger, disabled",
        "2 to create, 0 to change, 0 to remove, 0 unchanged.",
    ]


def test_plan_shows_what_it_removes():
    assert plan_text({"webhooks/source.yaml": "", "automations/triage/automation.md": ""}) == [
        "- automation triage",
        "- webhook source (wh_1): its URL stops working permanently",
        "0 to create, 0 to change, 2 to remove, 0 unchanged.",
    ]


STRIPE = "authMode: signature\nsignatureScheme: stripe\nsecretName: S\n"


@pytest.mark.parametrize(
    ("content", "webhook", "line"),
    [
        ("secretName: S\ndeliveryIdHeader: X-Id\n", {}, "deliveryIdHeader none → X-Id"),
        ("secretName: S\neventHeader: X-Kind\n", {}, "eventHeader none → X-Kind"),
        ("secretName: T\n", {}, "secretName S → T (senders must adapt)"),
        (
            STRIPE,
            {},
            "authMode token → signature (senders must adapt), signatureScheme none → stripe (senders must adapt)",
        ),
        ("secretName: S\nenabled: false\n", {}, "disable (senders get 404)"),
        ("secretName: S\nenabled: true\n", {"state": WebhookState.DISABLED}, "enable"),
        ("secretName: S\n", {"secret_is_current": False}, "sync secret (senders must adapt)"),
        ("secretName: S\n", {"secret_is_current": False, "has_secret": False}, "sync secret"),
        (
            f"{STRIPE}answersHandshakes: true\n".replace("stripe", "slack"),
            {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "slack"},
            "answersHandshakes false → true",
        ),
    ],
)
def test_plan_shows_changes_of_a_webhook(content, webhook, line):
    assert (
        plan_text({"webhooks/source.yaml": content}, structs.replace(WEBHOOK, **webhook))[0]
        == f"~ webhook source: {line}"
    )


def test_plan_shows_a_changed_prompt_as_a_diff():
    changed = f"---\n{TRIGGERS}---\n{AUTOMATION.prompt.replace('Look.', 'Look twice.')}\n"

    assert plan_text({"automations/triage/automation.md": changed})[:-1] == [
        "~ automation triage: prompt",
        "    prompt:",
        "    @@ -1,5 +1,5 @@",
        "      Read it.",
        "",
        "    - Look.",
        "    + Look twice.",
        "",
        "      Say so.",
    ]


def test_plan_shows_changed_triggers_as_a_diff():
    changed = f"---\n{TRIGGERS}      payload: {{action: [opened]}}\n---\n{AUTOMATION.prompt}\n"

    assert plan_text({"automations/triage/automation.md": changed})[:-1] == [
        "~ automation triage: triggers",
        "    triggers:",
        "    @@ -4,2 +4,4 @@",
        "          filter:",
        "            webhook_ids: [wh_1]",
        "    +       payload:",
        "    +         action: [opened]",
    ]


def test_plan_shows_only_line_counts_of_a_long_changed_prompt():
    before = structs.replace(AUTOMATION, prompt="a\n" * 40_000)
    after = "b\n" * 39_999

    assert plan_text({"automations/triage/automation.md": f"---\n{TRIGGERS}---\n{after}"}, automation=before)[1] == (
        "    prompt: 40,000 lines → 39,999 lines"
    )


def test_automation_without_a_runner_has_the_default_one():
    before = structs.replace(AUTOMATION, runner="agent")

    assert plan_text({}, automation=before)[0] == "~ automation triage: runner agent → package"
