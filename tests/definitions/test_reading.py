"""Reading definition files: what they may contain, and which problems are reported."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookmill.definitions.folder import Files
from hookmill.definitions.reading import (
    AutomationDefinition,
    Definitions,
    WebhookDefinition,
    problems_beyond_contract,
    read_definitions,
)
from hookmill.domain.schedule import Schedule
from hookmill.domain.webhook import AuthMode
from tests.support.counts import count

UID = "wh_" + "0" * 27
GITHUB = "authMode: signature\nsignatureScheme: github\nsecretName: S\n"
HMAC = "authMode: signature\nsignatureScheme: hmac\nsecretName: S\nsignatureOptions:\n"


def automation_text(triggers: str = "", other_keys: str = "", prompt: str = "Look.\n") -> str:
    """The text of an automation's file. Its triggers begin in line 3. By default it has one, up to line 6."""
    triggers = triggers or f"- provider: webhook\n  event: received\n  filter:\n    webhook_ids: [{UID}]\n"
    return f"---\ntriggers:\n{triggers}{other_keys}---\n{prompt}"


def with_payload(text: str) -> str:
    """An automation with this payload filter, which begins in line 8, column 7."""
    lines = "".join(f"      {line}\n" for line in text.splitlines())
    filter_ = f"    webhook_ids: [{UID}]\n    payload:\n{lines}"
    return automation_text(f"- provider: webhook\n  event: received\n  filter:\n{filter_}")


def with_event_types(event_types: str) -> str:
    """An automation whose trigger has these event types, which begin in line 7, column 12."""
    webhook_ids = f"    webhook_ids: [{UID}]\n"
    return automation_text(
        f"- provider: webhook\n  event: received\n  filter:\n{webhook_ids}    event: {event_types}\n"
    )


def read_webhook(content: str | bytes) -> Definitions:
    raw = content.encode() if isinstance(content, str) else content
    return read_definitions(Files({"webhooks/source.yaml": raw}, {}))


def read_automation(content: str | bytes, uids: dict[str, str] | None = None) -> Definitions:
    raw = content.encode() if isinstance(content, str) else content
    return read_definitions(Files({}, {"automations/triage/automation.md": raw}), uids)


def webhook(content: str | bytes) -> WebhookDefinition:
    definitions = read_webhook(content)
    assert definitions.problems == ()
    return definitions.webhooks[0]


def automation(content: str | bytes) -> AutomationDefinition:
    definitions = read_automation(content)
    assert definitions.problems == ()
    return definitions.automations[0]


def webhook_problems(content: str | bytes) -> list[str]:
    return [str(problem).removeprefix("webhooks/source.yaml:") for problem in read_webhook(content).problems]


def automation_problems(content: str | bytes, uids: dict[str, str] | None = None) -> list[str]:
    problems = read_automation(content, uids).problems
    return [str(problem).removeprefix("automations/triage/automation.md:") for problem in problems]


# Webhooks


def test_webhook_requires_only_a_secret_name():
    definition = webhook("secretName: SOURCE_SECRET\n")

    assert definition.name == "source"
    assert definition.spec.auth_mode is AuthMode.TOKEN
    assert definition.spec.secret_name == "SOURCE_SECRET"
    assert definition.enabled is None
    assert definition.spec.delivery_id_header is None


def test_webhook_may_have_every_key():
    definition = webhook(
        'name: "GitHub: main"\nauthMode: signature\nsignatureScheme: hmac\n'
        "signatureOptions: {header: X-Sig, tolerance_seconds: 300, timestamp_header: X-Time, content: '{ts}.{body}'}\n"
        "secretName: S\ndeliveryIdHeader: X-Id\neventHeader: X-Kind\nenabled: false\n"
        "allowedNetworks: [192.0.2.0/24, 10.0.0.1/32]\nexpectEvery: 90m\n"
    )

    assert definition.name == "GitHub: main"
    assert definition.spec.signature_scheme == "hmac"
    assert definition.spec.signature_options == {
        "header": "X-Sig",
        "tolerance_seconds": 300,
        "timestamp_header": "X-Time",
        "content": "{ts}.{body}",
    }
    assert (definition.spec.delivery_id_header, definition.spec.event_header) == ("X-Id", "X-Kind")
    assert definition.enabled is False
    assert definition.spec.allowed_networks == ("10.0.0.1", "192.0.2.0/24")
    assert definition.spec.expect_every == "1h30m"


def test_webhook_may_answer_handshakes():
    definition = webhook("authMode: signature\nsignatureScheme: slack\nsecretName: S\nanswersHandshakes: true\n")

    assert definition.spec.answers_handshakes is True


@pytest.mark.parametrize("start", ["---\n", "# a comment\n\n", "# yaml-language-server: $schema=https://x/y.json\n"])
def test_webhook_may_begin_with_a_document_marker_or_comment(start):
    assert webhook(f"{start}secretName: S\n").spec.secret_name == "S"


def test_webhook_may_have_windows_line_endings():
    assert webhook(b"authMode: url_token\r\nsecretName: S\r\n").spec.auth_mode is AuthMode.URL_TOKEN


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("", ["1:1: The file is empty. A webhook needs at least a line secretName: NAME."]),
        ("# nothing\n", ["1:1: The file is empty."]),
        ("- a\n", ["1:1: A webhook must be a mapping with the keys name, authMode"]),
        ("just words\n", ["1:1: A webhook must be a mapping"]),
        ("authMode: token\n", ["1:1: secretName is missing."]),
        ("secretName:\n", ["1:12: secretName is missing. Name the team secret"]),
        ("secretName: 5\n", ["1:13: secretName must be text. Put it in quotes."]),
        ("secretName: [S]\n", ["1:13: secretName must be text, not a list or a mapping."]),
        ("secretName: no-dash\n", ["1:13: This can't name a team secret"]),
        ("secretName: S\nsecret: abc\n", ["2:1: A file must not contain a secret's value."]),
        ("secretName: S\nuid: wh_1\n", ["2:1: The service assigns this. Remove the line."]),
        ("secretName: S\nauth_mode: token\n", ["2:1: Unknown key 'auth_mode'. Did you mean authMode?"]),
        ("secretName: S\nxyz: 1\n", ["2:1: Unknown key 'xyz'. Known keys: name, authMode"]),
        ("secretName: S\nsignatureScheme: github\nauthMode: 5\n", ["3:11: authMode must be text. Put it in quotes."]),
        ("secretName: S\nenabled: no\n", ["2:10: enabled must be true or false. (no is text.)"]),
        ("secretName: S\nenabled: 1\n", ["2:10: enabled must be true or false."]),
        ('secretName: S\nname: ""\n', ["2:7: name has no value. Write one, or remove the line."]),
        ("secretName: S\nname: 2026\n", ["2:7: name must be text. Put it in quotes."]),
        ('secretName: S\nname: "a\\nb"\n', ["2:7: A webhook's name must have 1 to 100 characters"]),
        ("secretName: S\nevent_header: X-Kind\n", ["2:1: Unknown key 'event_header'. Did you mean eventHeader?"]),
        (
            "secretName: S\nallowedNetworks: [10.1.2.3/8, '::ffff:192.0.2.7']\n",
            [
                "2:19: '10.1.2.3/8' has bits after its prefix of 8 bits. Write 10.0.0.0/8",
                "2:31: '::ffff:192.0.2.7' is an IPv4 network in IPv6 form. Write 192.0.2.7.",
            ],
        ),
        (
            "secretName: S\nallowedNetworks: [1]\n",
            ["2:19: Each item of allowedNetworks must be text such as"],
        ),
        ("secretName: S\nallowedNetworks: 10.0.0.0/8\n", ["2:18: allowedNetworks must be a list of networks"]),
        (f"{GITHUB}eventHeader: X-Kind\n", ["4:14: The event type of github is read from the header x-github-event"]),
        (
            "secretName: S\nsignatureScheme: github\n",
            ["2:18: A signature scheme can only be used with auth mode"],
        ),
        ("authMode: signature\nsecretName: S\n", ["1:1: Auth mode signature needs a signature scheme. Allowed are:"]),
        ("secretname: S\n", ["1:1: Unknown key 'secretname'. Did you mean secretName?"]),
        ("secret: S\n", ["1:1: A file must not contain a secret's value."]),
        ("xyz: S\n", ["1:1: Unknown key 'xyz'. Known keys: name", "1:1: secretName is missing."]),
        (GITHUB.replace("authMode", "authmode"), ["1:1: Unknown key 'authmode'. Did you mean authMode?"]),
        (GITHUB.replace("ureScheme", "urescheme"), ["2:1: Unknown key 'signaturescheme'. Did you mean signatureSch"]),
        (
            f"{HMAC}  prefix: v1=\n",
            ["5:3: The options of the scheme hmac can't be read: Object missing required field `header`"],
        ),
        (f"{HMAC}  header: X-S\n  heder: X\n", ["6:3: Unknown key 'heder'. Did you mean header?"]),
        (f"{HMAC}  header: X-S\n  algorithm: md5\n", ["6:14: algorithm of the scheme hmac can't be used"]),
        (
            f"{HMAC}  header: X-S\n  prefix: 5\n",
            ["6:11: The options of the scheme hmac can't be read: Expected `str`, got `int`"],
        ),
        ("secretName: S\nsecretName: T\n", ["2:1: secretName is a duplicate key (first in line 1). Remove one."]),
        (
            "secretName: 1\nenabled: maybe\nfoo: bar\n",
            ["1:13: secretName must be text", "2:10: enabled must be true or false.", "3:1: Unknown key 'foo'."],
        ),
    ],
)
def test_every_problem_of_a_webhook_is_reported_with_its_place(content, messages):
    problems = webhook_problems(content)

    assert len(problems) == len(messages), problems
    assert all(problem.startswith(message) for problem, message in zip(problems, messages, strict=True)), problems


def test_message_does_not_contain_a_secret_in_place_of_its_name():
    (problem,) = webhook_problems("secretName: whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n")

    assert "whsec" not in problem


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xef\xbb\xbfsecretName: S\n", "1:1: The file begins with a byte order mark. Save it as UTF-8 without one."),
        ("secretName: S\n".encode("utf-16"), "1:1: The file is UTF-16. Save it as UTF-8."),
        (
            "secretName: S\n".encode("utf-16-be"),
            "1:1: The file contains NUL: it is not text, or it is UTF-16. Save it as UTF-8.",
        ),
        (b"secretName: S\nname: \xff\n", "2:7: The file is not UTF-8 from here on."),
        (b"secretName: S\r\nname: \xe4\n", "2:7: The file is not UTF-8 from here on."),
        (b"\x7fELF\x02\x01\x01\x00", "1:8: The file contains NUL"),
        (b"secretName: S\0\n", "1:14: The file contains NUL"),
        (b"secretName: S\nname: a\x1bb\n", "2:8: U+001B is an invisible character."),
        ("secretName: S\nname: a\u2028b\n".encode(), "2:8: U+2028 is an invisible character"),
        ("secretName: S\nname: a\x85b\n".encode(), "2:8: U+0085 is an invisible character"),
        ("secretName: \ufeffS\n".encode(), "1:13: U+FEFF is an invisible character"),
        (b"secretName: S\rname: a\n", "1:14: U+000D is an invisible character"),
    ],
)
def test_file_that_is_not_plain_text_is_refused(content, message):
    (problem,) = webhook_problems(content)

    assert problem.startswith(message)


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "<<<<<<<", ">>>>>>> theirs"])
def test_unresolved_merge_in_a_webhook_is_reported_as_such(marker):
    content = f"secretName: A\n{marker}\nauthMode: token\n=======\nauthMode: url_token\n>>>>>>> other\n"

    assert webhook_problems(content) == [
        "2:1: A merge is unresolved here. Choose one side, and remove the lines <<<<<<<, ======= and >>>>>>>."
    ]


def test_two_webhooks_with_the_same_name_are_refused():
    definitions = read_definitions(
        Files({"webhooks/a.yaml": b"secretName: S\n", "webhooks/b.yaml": b"name: a\nsecretName: S\n"}, {})
    )

    assert [str(problem) for problem in definitions.problems] == [
        "webhooks/b.yaml:1:7: webhooks/a.yaml defines a webhook of the same name, 'a'. Rename one."
    ]


# Automations


def test_automation_consists_of_front_matter_and_prompt():
    definition = automation(
        automation_text(other_keys="runner: agent\nenabled: true\n", prompt="\n# Look\n\n---\n\nand say.\n\n")
    )

    assert definition.name == "triage"
    assert definition.spec.runner == "agent"
    assert definition.enabled is True
    assert definition.spec.prompt == "# Look\n\n---\n\nand say."
    [(_, trigger)] = definition.filters()
    assert trigger.webhook_ids == (UID,)
    assert trigger.payload is None


def test_trigger_may_have_event_types_and_a_payload_filter():
    [(_, trigger)] = automation(with_event_types("[push, on, 'Push Hook']\n    payload: {a: [1]}")).filters()

    assert trigger.event == ("push", "on", "Push Hook")
    assert trigger.payload is not None
    assert trigger.payload.source == {"a": [1]}


def test_words_such_as_no_and_on_are_text_in_a_filter():
    definition = automation(
        with_payload("country: [no, NO]\nnested: {on: {exists: true}}\nn: {not_in: [1, 1.5, null, true]}")
    )

    [(_, trigger)] = definition.filters()
    assert trigger.payload is not None
    assert trigger.payload.source == {
        "country": ["no", "NO"],
        "nested": {"on": {"exists": True}},
        "n": {"not_in": [1, 1.5, None, True]},
    }


def test_automation_may_have_several_triggers():
    trigger = f"- {{provider: webhook, event: received, filter: {{webhook_ids: [{UID}]}}}}\n"

    assert len(automation(automation_text(trigger * 3)).spec.triggers) == 3


def test_windows_line_endings_do_not_change_the_prompt():
    content = automation_text(prompt="one\ntwo\n")

    assert automation(content.replace("\n", "\r\n")).spec.prompt == automation(content).spec.prompt == "one\ntwo"


def test_prompt_may_contain_invisible_characters():
    assert automation(automation_text(prompt="Grüße \u2028 \x1b[31m 😀\n")).spec.prompt == "Grüße \u2028 \x1b[31m 😀"


def test_prompt_may_contain_single_merge_markers():
    prompt = "Look for `<<<<<<<` markers:\n\n<<<<<<< HEAD\n\nTitle\n=======\n"

    assert automation(automation_text(prompt=prompt)).spec.prompt == prompt.strip("\n")


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ("", ["1:1: The file does not begin with its front matter."]),
        ("Look.\n", ["1:1: The file does not begin with its front matter."]),
        ("\n---\ntriggers: []\n---\nLook.\n", ["1:1: The file does not begin with its front matter."]),
        ("---\ntriggers: []\n", ["1:1: The front matter that begins here has no end."]),
        ("---\n---\nLook.\n", ["2:1: The front matter is empty."]),
        ("---\n# x\n---\nLook.\n", ["2:1: The front matter is empty."]),
        ("---\n- a\n---\nLook.\n", ["2:1: The front matter must be a mapping with the keys"]),
        ("---\nenabled: true\n---\nLook.\n", ["2:1: triggers must be a list of 1 to 20 triggers."]),
        ("---\ntrigger: []\n---\nLook.\n", ["2:1: Write `triggers:` and a list, even for one trigger."]),
        ("---\ntriggers: []\n---\nLook.\n", ["2:11: triggers must be a list of 1 to 20 triggers."]),
        ("---\ntriggers: {}\n---\nLook.\n", ["2:11: triggers must be a list of 1 to 20 triggers."]),
        (automation_text(prompt=""), ["8:1: The prompt is empty."]),
        (automation_text(prompt="\n  \n"), ["8:1: The prompt is empty."]),
        (automation_text(prompt="x" * 100_001), ["8:1: The prompt is longer than 100,000 characters, or"]),
        (automation_text(other_keys="prompt: Look.\n"), ["7:1: The prompt belongs below the front matter."]),
        (automation_text(other_keys="enabled: yes\n"), ["7:10: enabled must be true or false. (yes is text.)"]),
        (automation_text(other_keys="runner: 5\n"), ["7:9: runner must be a text of up to 1,000 characters."]),
        (automation_text("- x\n"), ["3:3: Each item of triggers must be an object: either provider: webhook,"]),
        (
            automation_text("- {provider: schedule, event: push, schedule: {cron: '@daily', nam: x}, filter: {}}\n"),
            [
                "3:31: event must be cron_fired.",
                "3:69: Unknown field 'nam'. Did you mean name?",
                "3:81: Unknown field 'filter'. Known fields: provider, event, schedule.",
            ],
        ),
        (
            automation_text("- {provider: schedule, event: cron_fired}\n"),
            ["3:3: schedule must be an object with name, cron,"],
        ),
        (
            automation_text(
                "- provider: schedule\n  event: cron_fired\n  schedule:\n    name: a\n    cron: '@reboot'\n"
            ),
            ["7:11: '@reboot' is not a schedule. Use @hourly"],
        ),
        (
            automation_text(
                "- provider: schedule\n  event: cron_fired\n  schedule: {name: a, cron: '@daily', timezone: Mars}\n"
            ),
            ["5:49: timezone must be an IANA name, such as Europe/Berlin; got 'Mars'."],
        ),
        (
            automation_text(2 * "- {provider: schedule, event: cron_fired, schedule: {name: a, cron: '@daily'}}\n"),
            ["4:60: Another schedule of the automation is named 'a'. Names of schedules are unique."],
        ),
        (
            automation_text("- {provider: schedule, event: cron_fired, filter: {schedule_ids: [a]}}\n"),
            [
                "3:3: schedule must be an object with name, cron,",
                "3:51: Unknown field 'filter'. Known fields: provider, event, schedule.",
            ],
        ),
        (
            automation_text(2 * "- {provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}\n"),
            ["4:53: Another schedule of the automation is named 'triage'. Names of schedules are unique."],
        ),
        (
            automation_text("- event: push\n  provider: github\n  filter: {repos: [a/b]}\n"),
            [
                "4:13: There are no triggers of 'github' here. Create a webhook with signatureScheme: github to which "
                "it sends its events, and select it with provider: webhook, filter.webhook_ids, filter.event and "
                "filter.payload (docs/definition-files.md#triggers-of-other-providers)."
            ],
        ),
        (
            automation_text("- {provider: pigeon, event: arrived}\n"),
            ["3:14: There are no triggers of 'pigeon' here. Create a webhook to which it sends its events"],
        ),
        (automation_text("- {provider: Webhooks}\n"), ["3:14: 'Webhooks' is not a provider. Did you mean webhook?"]),
        (
            automation_text("- {provider: webhook, event: received}\n"),
            ["3:3: filter must be an object with webhook_ids,"],
        ),
        (
            automation_text("- {provider: webhook, event: received, filters: {}}\n"),
            ["3:49: Unknown field 'filters'. Did you mean filter?"],
        ),
        (
            automation_text("- {provider: webhook, events: received, filter: {webhookIds: [a]}}\n"),
            ["3:31: Unknown field 'events'. Did you mean event?", "3:62: Unknown field 'webhookIds'. Did you mean web"],
        ),
        (
            automation_text("- {provider: webhook, event: received, filter: []}\n"),
            ["3:48: filter must be an object with webhook_ids,"],
        ),
        (
            automation_text("- provider: webhook\n  event: received\n  filter: {webhook_ids: [], payloads: {}}\n"),
            [
                "5:25: webhook_ids must be a list of 1 to 100 webhook uids",
                "5:39: Unknown field 'payloads'. Did you mean payload?",
            ],
        ),
        (
            automation_text(
                "- provider: webhook\n  event: received\n  filter:\n    webhook_ids:\n    - [a]\n    - 7\n"
            ),
            ["7:7: Each item of webhook_ids must be the uid", "8:7: Each item of webhook_ids must be the uid"],
        ),
        (with_payload("a: {}"), ["8:10: /a: An empty object contains no condition."]),
        (with_event_types("push"), ["7:12: event must be a list of 1 to 32 texts, such as push."]),
        (with_event_types("[]"), ["7:12: event must be a list of 1 to 32 texts, such as push."]),
        (with_event_types("{in: [push]}"), ["7:12: event must be a list of 1 to 32 texts, such as push."]),
        (
            with_event_types("[push, 1, '']"),
            [
                "7:19: Each item of event must be a text of 1 to 200 printable characters.",
                "7:22: Each item of event must be a text of 1 to 200 printable characters.",
            ],
        ),
        (
            automation_text(
                "- provider: webhook\n  event: received\n  filter: {webhook_ids: [wh_1], events: [push]}\n"
            ),
            ["5:41: Unknown field 'events'. Did you mean event?"],
        ),
        (
            with_payload("a: [b]\nb:\n  c: {$in: [1]}\nd:\n  exists: 1\n  in: [{}]"),
            [
                "10:18: /b/c/$in: Unknown operator.",
                "12:17: /d/exists: Write true",
                "13:14: /d/in/0: Write a string, a finite number, true, false or null.",
            ],
        ),
        (
            with_payload("$schema: [x]\nb:\n  $ref: [1]\nc: {$gt: [5]}"),
            [
                "8:16: /$schema: Unknown operator. Operators allowed here are $any, $not, $fields. For a "
                'field of this name write {"$fields": {"$schema": …}}.',
                "10:15: /b/$ref: Unknown operator. Operators allowed here are in, not_in, exists, $prefix,",
                "11:16: /c/$gt: Write a finite number, such as 100. For a field of this name write",
            ],
        ),
        (with_payload("a: [b]\na: [c]"), ["9:7: a is a duplicate key (first in line 8)."]),
        (with_payload("a: [010]"), ["8:11: Some parsers read this as text, others as a number."]),
        (automation_text(other_keys="x: &a [1]\n"), ["7:1: Unknown key 'x'.", "7:4: Anchors (&) are not supported."]),
    ],
)
def test_every_problem_of_an_automation_is_reported_with_its_place(content, messages):
    problems = automation_problems(content)

    assert len(problems) == len(messages), problems
    assert all(problem.startswith(message) for problem, message in zip(problems, messages, strict=True)), problems


def test_null_counts_as_an_absent_key():
    definition = webhook("secretName: S\ndeliveryIdHeader: null\nenabled:\nsignatureScheme: ~\nname: null\n")
    assert definition == webhook("secretName: S\n")

    schedule = "- {provider: schedule, event: cron_fired, filter: null, schedule: {name: null, cron: '@daily'}}\n"
    assert automation(automation_text(schedule, "runner: null\nworkerHost: null\nconcurrency: null\n")) == automation(
        automation_text("- {provider: schedule, event: cron_fired, schedule: {cron: '@daily'}}\n")
    )


def test_schedule_without_a_name_has_the_name_of_its_automation():
    (schedule,) = automation(
        automation_text("- {provider: schedule, event: cron_fired, schedule: {cron: '0 3 ? * 1'}}\n", "name: Nightly\n")
    ).spec.schedules

    assert schedule == Schedule(name="Nightly", cron="0 3 * * 1")


def test_webhook_ids_may_be_written_with_in():
    in_form = automation_text(f"- provider: webhook\n  event: received\n  filter:\n    webhook_ids: {{in: [{UID}]}}\n")

    assert automation(in_form).spec == automation(automation_text()).spec


@pytest.mark.parametrize(
    ("content", "warnings"),
    [
        (automation_text(other_keys="model: auto\n"), ["7:1: model has no effect here. It chooses the agent's model."]),
        (
            automation_text(other_keys="agent: fixer\nharness: {type: claude}\nmcpServers: {a: {url: b}}\n"),
            ["7:1: agent has no effect here.", "8:1: harness has no effect here.", "9:1: mcpServers has no effect"],
        ),
        (
            automation_text(other_keys="workerHost: w\nenvironmentId: e\ncomputerUseModel: c\n"),
            ["7:1: workerHost has no effect", "8:1: environmentId has no effect", "9:1: computerUseModel has no effec"],
        ),
        (
            with_payload("a: []\nb: {in: [], exists: false}\nc: {not_in: []}"),
            ["8:10: An empty array matches no value.", "9:15: An empty array matches no value."],
        ),
        (
            automation_text(
                f"- provider: webhook\n  event: received\n  filter:\n    webhook_ids: [{UID}]\n    payload:\n"
            ),
            ["7:13: payload has no value, so every delivery of these webhooks starts a run."],
        ),
        (
            automation_text("- {provider: schedule, event: cron_fired, schedule: {name: a, cron: 0 0 */2 * 1}}\n"),
            ["3:69: '0 0 */2 * 1' fires on the days that both day fields select, as in Debian's cron."],
        ),
    ],
)
def test_what_has_another_effect_than_elsewhere_is_a_warning(content, warnings):
    definitions = read_automation(content)

    found = [str(warning).removeprefix("automations/triage/automation.md:") for warning in definitions.warnings]
    assert definitions.problems == ()
    assert len(found) == len(warnings), found
    assert all(warning.startswith(start) for warning, start in zip(found, warnings, strict=True)), found


def test_runner_in_a_tree_that_describes_compute_is_a_warning():
    contents = {"automations/triage/automation.md": automation_text(other_keys="runner: big\n").encode()}

    (warning,) = read_definitions(Files({}, contents, belongs_to_another_implementation=True)).warnings

    assert str(warning).startswith("automations/triage/automation.md:7:9: Here, runner names a command")
    assert read_definitions(Files({}, contents)).warnings == ()


@pytest.mark.parametrize("value", ["[a]", "text", "5"])
def test_payload_filter_that_is_not_an_object_is_refused(value):
    content = with_payload("x: [1]").replace("payload:\n      x: [1]", f"payload: {value}")

    assert automation_problems(content) == ['7:14: A filter is an object such as {"action": ["opened"]}.']


@pytest.mark.parametrize(
    ("text", "uids", "message"),
    [
        ("source", None, "'source' is not a webhook's uid (wh_…). Write webhook: and its name."),
        ("source", {"source": UID}, "'source' is not a webhook's uid (wh_…). Write webhook:source."),
        ("'webhook:source'", None, "There is no webhook named 'source'. Add a file for it."),
        ("webhook:sorce", {"source": UID}, "There is no webhook named 'sorce'. Did you mean webhook:source?"),
    ],
)
def test_text_that_selects_no_webhook_is_refused_with_what_to_write(text, uids, message):
    assert automation_problems(automation_text().replace(UID, text), uids) == [f"6:19: {message}"]


def test_webhook_can_be_selected_by_its_name():
    by_name = automation_text().replace(UID, "'webhook:My source'").encode()
    webhooks = {"webhooks/source.yaml": b"name: My source\nsecretName: S\n"}

    created, existing = (
        read_definitions(Files(webhooks, {"automations/a/automation.md": by_name}), uids)
        for uids in (None, {"My source": UID})
    )

    assert created.problems == existing.problems == ()
    assert [conditions.webhook_ids for _, conditions in existing.automations[0].filters()] == [(UID,)]
    assert [str(problem) for problem in problems_beyond_contract(created)] == [
        "automations/a/automation.md:6:19: The contract has only uids here. Write the webhook's uid."
    ]


def test_name_of_a_file_is_not_the_name_of_its_webhook():
    automations = {"automations/a/automation.md": automation_text().replace(UID, "'webhook:source'").encode()}
    webhooks = {"webhooks/source.yaml": b"name: My source\nsecretName: S\n"}

    (problem,) = read_definitions(Files(webhooks, automations)).problems

    assert problem.message == "There is no webhook named 'source'. Did you mean webhook:My source?"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (automation_text().replace("triggers:\n", "<<<<<<< HEAD\ntriggers:\n"), 2),
        (automation_text(prompt="one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> other\n"), 9),
        ("<<<<<<< HEAD\n" + automation_text() + "=======\n" + automation_text() + ">>>>>>> other\n", 1),
    ],
    ids=["in the front matter", "in the prompt", "around everything"],
)
def test_unresolved_merge_in_an_automation_is_reported_as_such(content, line):
    (problem,) = automation_problems(content)

    assert problem.startswith(f"{line}:1: A merge is unresolved here.")


def test_problems_of_all_files_are_reported_in_order_of_place():
    files = Files(
        {"webhooks/b.yaml": b"x: 1\nsecretName: 1\n", "webhooks/a.yaml": b"\xff"},
        {"automations/a/automation.md": b"---\n"},
    )

    places: list[Any] = [str(problem).split(": ")[0] for problem in read_definitions(files).problems]

    assert places == [
        "automations/a/automation.md:1:1",
        "webhooks/a.yaml:1:1",
        "webhooks/b.yaml:1:1",
        "webhooks/b.yaml:2:13",
    ]


# Any content

PIECES = [
    *"abw01:-[]{}#&*!|>'\"%@`,?~ \t\n\r\\.",
    "---\n",
    "...",
    "<<",
    "\n  ",
    "- ",
    ": ",
    "\0",
    "\x85",
    "\ufeff",
    "😀",
]
WORDS = ["secretName", "authMode", "signature", "triggers", "filter", "webhook_ids", "payload", "wh_1", "true", "1e9"]
LIKE_YAML = st.lists(st.sampled_from([*PIECES, *WORDS]), max_size=60).map("".join)


@settings(max_examples=count(300, usually=60))
@given(st.one_of(LIKE_YAML.map(str.encode), st.binary(max_size=200)))
def test_any_bytes_are_read_as_a_definition_or_as_problems(content):
    automation_content = b"---\n" + content + b"\n---\nLook.\n"

    definitions = read_definitions(
        Files({"webhooks/a.yaml": content}, {"automations/a/automation.md": automation_content})
    )

    files_with_problems = {problem.file for problem in definitions.problems}
    assert len(definitions.webhooks) + len(definitions.automations) + len(files_with_problems) == 2
    contents = {"webhooks/a.yaml": content, "automations/a/automation.md": automation_content}
    for problem in definitions.problems:
        assert 1 <= problem.place.line <= contents[problem.file].count(b"\n") + 2
        assert problem.place.column >= 1
