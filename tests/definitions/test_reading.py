"""What definition files may say, and what is said of those that can't be used."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookmill.definitions.folder import Files
from hookmill.definitions.reading import AutomationDefinition, Definitions, WebhookDefinition, read_definitions
from hookmill.domain.webhook import AuthMode
from tests.support.counts import count

UID = "wh_" + "0" * 27
SIGNED = "authMode: signature\nsignatureScheme: github\nsecretName: S\n"
HMAC = "authMode: signature\nsignatureScheme: hmac\nsecretName: S\nsignatureOptions:\n"


def front(triggers: str = "", more: str = "", prompt: str = "Look.\n") -> str:
    triggers = triggers or f"- provider: webhook\n  event: received\n  filter:\n    webhook_ids: [{UID}]\n"
    return f"---\ntriggers:\n{triggers}{more}---\n{prompt}"


def payload(text: str) -> str:
    """An automation whose payload filter is this; its first line is line 8, from column 7 on."""
    lines = "".join(f"      {line}\n" for line in text.splitlines())
    chosen = f"    webhook_ids: [{UID}]\n    payload:\n{lines}"
    return front(f"- provider: webhook\n  event: received\n  filter:\n{chosen}")


def read_webhook(content: str | bytes, name: str = "source") -> Definitions:
    return read_definitions(
        Files({f"webhooks/{name}.yaml": content.encode() if isinstance(content, str) else content}, {})
    )


def read_automation(content: str | bytes, uids: dict[str, str] | None = None) -> Definitions:
    raw = content.encode() if isinstance(content, str) else content
    return read_definitions(Files({}, {"automations/triage/automation.md": raw}), uids)


def webhook(content: str | bytes) -> WebhookDefinition:
    found = read_webhook(content)
    assert found.problems == ()
    return found.webhooks[0]


def of_events(events: str) -> str:
    """An automation that asks for these event types, in line 7 from column 12 on."""
    return front(f"- provider: webhook\n  event: received\n  filter:\n    webhook_ids: [{UID}]\n    event: {events}\n")


def automation(content: str | bytes) -> AutomationDefinition:
    found = read_automation(content)
    assert found.problems == ()
    return found.automations[0]


def said_of_webhook(content: str | bytes) -> list[str]:
    return [str(problem).removeprefix("webhooks/source.yaml:") for problem in read_webhook(content).problems]


def said_of_automation(content: str | bytes, uids: dict[str, str] | None = None) -> list[str]:
    problems = read_automation(content, uids).problems
    return [str(problem).removeprefix("automations/triage/automation.md:") for problem in problems]


# Webhooks


def test_a_webhook_needs_no_more_than_a_secret():
    found = webhook("secretName: SOURCE_SECRET\n")

    assert found.name == "source"
    assert found.auth_mode is AuthMode.TOKEN
    assert found.secret_name == "SOURCE_SECRET"
    assert found.enabled is None
    assert found.delivery_id_header is None


def test_a_webhook_may_say_everything():
    found = webhook(
        'name: "GitHub: main"\nauthMode: signature\nsignatureScheme: hmac\n'
        "signatureOptions: {header: X-Sig, tolerance_seconds: 300, timestamp_header: X-Time, content: '{ts}.{body}'}\n"
        "secretName: S\ndeliveryIdHeader: X-Id\neventHeader: X-Kind\nenabled: false\n"
    )

    assert found.name == "GitHub: main"
    assert found.signature_scheme == "hmac"
    assert found.signature_options == {
        "header": "X-Sig",
        "tolerance_seconds": 300,
        "timestamp_header": "X-Time",
        "content": "{ts}.{body}",
    }
    assert (found.delivery_id_header, found.event_header) == ("X-Id", "X-Kind")
    assert found.enabled is False


def test_handshakes_are_answered_where_the_file_says_so():
    found = webhook("authMode: signature\nsignatureScheme: slack\nsecretName: S\nanswersHandshakes: true\n")

    assert found.answers_handshakes is True


@pytest.mark.parametrize("start", ["---\n", "# a remark\n\n", "# yaml-language-server: $schema=https://x/y.json\n"])
def test_a_webhook_file_may_begin_with(start: str):
    assert webhook(f"{start}secretName: S\n").secret_name == "S"


def test_lines_may_end_as_on_windows():
    assert webhook(b"authMode: url_token\r\nsecretName: S\r\n").auth_mode is AuthMode.URL_TOKEN


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ["1:1: The file is empty. A webhook needs at least a line secretName: NAME."]),
        ("# nothing\n", ["1:1: The file is empty."]),
        ("- a\n", ["1:1: A webhook must be a mapping with the keys name, authMode"]),
        ("just words\n", ["1:1: A webhook must be a mapping"]),
        ("authMode: token\n", ["1:1: secretName is missing."]),
        ("secretName:\n", ["1:12: secretName has no value. Write one, or remove the line."]),
        ("secretName: 5\n", ["1:13: secretName must be text. Put it in quotes."]),
        ("secretName: [S]\n", ["1:13: secretName must be text, not a list or a mapping."]),
        ("secretName: no-dash\n", ["1:13: This can't name a team secret"]),
        ("secretName: S\nsecret: abc\n", ["2:1: A file must not contain a secret's value."]),
        ("secretName: S\nuid: wh_1\n", ["2:1: The service assigns this. Remove the line."]),
        ("secretName: S\nauth_mode: token\n", ["2:1: Unknown key 'auth_mode'. Did you mean authMode?"]),
        ("secretName: S\nxyz: 1\n", ["2:1: Unknown key 'xyz'. Known keys: name, authMode"]),
        (
            "secretName: S\nauthMode: bearer\n",
            ["2:11: 'bearer' is not a mode. Modes are: token, url_token, signature."],
        ),
        ("secretName: S\nsignatureScheme: github\nauthMode: 5\n", ["3:11: authMode must be text. Put it in quotes."]),
        ("secretName: S\nenabled: no\n", ["2:10: enabled must be true or false. (no is text.)"]),
        ("secretName: S\nenabled: on\n", ["2:10: enabled must be true or false. (on is text.)"]),
        ("secretName: S\nenabled: 1\n", ["2:10: enabled must be true or false."]),
        ("secretName: S\nenabled: \n", ["2:9: enabled must be true or false."]),
        ("secretName: S\nenabled: {}\n", ["2:10: enabled must be true or false."]),
        ("secretName: S\nname: 2026\n", ["2:7: name must be text. Put it in quotes."]),
        ('secretName: S\nname: "a\\nb"\n', ["2:7: A webhook's name must have 1 to 100 characters"]),
        ("secretName: S\ndeliveryIdHeader: Authorization\n", ["2:19: Authorization carries credentials"]),
        ("secretName: S\ndeliveryIdHeader: X Id\n", ["2:19: 'X Id' is not a header name."]),
        (
            f"{SIGNED}deliveryIdHeader: x-hub-signature-256\n",
            ["4:19: x-hub-signature-256 is part of GitHub's signature"],
        ),
        ("secretName: S\neventHeader: Cookie\n", ["2:14: Cookie carries credentials, and event types are stored"]),
        ("secretName: S\neventHeader: X Kind\n", ["2:14: 'X Kind' is not a header name."]),
        ("secretName: S\nevent_header: X-Kind\n", ["2:1: Unknown key 'event_header'. Did you mean eventHeader?"]),
        (f"{SIGNED}eventHeader: X-Kind\n", ["4:14: The event type of github is read from the header x-github-event"]),
        ("secretName: S\nsignatureScheme: github\n", ["2:18: signatureScheme needs authMode: signature."]),
        ("secretName: S\nanswersHandshakes: false\n", ["2:20: answersHandshakes needs authMode: signature."]),
        ("secretName: S\nsignatureOptions: {}\n", ["2:19: signatureOptions needs authMode: signature."]),
        ("authMode: signature\nsecretName: S\n", ["1:1: signatureScheme is missing."]),
        (SIGNED.replace("github", "gihub"), ["2:18: 'gihub' is not a signature scheme. Did you mean github? Allowed"]),
        ("secretname: S\n", ["1:1: Unknown key 'secretname'. Did you mean secretName?"]),
        ("secret: S\n", ["1:1: A file must not contain a secret's value."]),
        ("xyz: S\n", ["1:1: Unknown key 'xyz'. Known keys: name", "1:1: secretName is missing."]),
        (SIGNED.replace("authMode", "authmode"), ["1:1: Unknown key 'authmode'. Did you mean authMode?"]),
        (SIGNED.replace("ureScheme", "urescheme"), ["2:1: Unknown key 'signaturescheme'. Did you mean signatureSch"]),
        (f"{SIGNED}signatureOptions: {{}}\n", ["4:19: Only the scheme hmac has signature options"]),
        (f"{SIGNED}answersHandshakes: true\n", ["4:20: GitHub sends no signed challenges. Remove this line."]),
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
        (f"{HMAC}  header: X-S\n  content: x\n", ["6:12: content of the scheme hmac can't be used: without {body}"]),
        ("secretName: S\nsecretName: T\n", ["2:1: secretName is a duplicate key (first in line 1). Remove one."]),
        (
            "secretName: 1\nenabled: maybe\nfoo: bar\n",
            ["1:13: secretName must be text", "2:10: enabled must be true or false.", "3:1: Unknown key 'foo'."],
        ),
    ],
)
def test_a_webhook_is_refused_with_every_problem_at_its_place(content: str, said: list[str]):
    found = said_of_webhook(content)

    assert len(found) == len(said)
    assert all(one.startswith(wanted) for one, wanted in zip(found, said, strict=True)), found


def test_what_cannot_name_a_secret_is_not_repeated_because_it_may_be_one():
    (said,) = said_of_webhook("secretName: whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n")

    assert "whsec" not in said


@pytest.mark.parametrize(
    ("content", "said"),
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
def test_a_file_that_is_no_plain_text_is_refused(content: bytes, said: str):
    (found,) = said_of_webhook(content)

    assert found.startswith(said)


@pytest.mark.parametrize("marker", ["<<<<<<< HEAD", "<<<<<<<", ">>>>>>> theirs"])
def test_an_unresolved_merge_is_called_one(marker: str):
    content = f"secretName: A\n{marker}\nauthMode: token\n=======\nauthMode: url_token\n>>>>>>> other\n"

    assert said_of_webhook(content) == [
        "2:1: A merge is unresolved here. Choose one side, and remove the lines <<<<<<<, ======= and >>>>>>>."
    ]


def test_two_files_of_one_name_are_refused():
    found = read_definitions(
        Files({"webhooks/a.yaml": b"secretName: S\n", "webhooks/b.yaml": b"name: a\nsecretName: S\n"}, {})
    )

    assert [str(problem) for problem in found.problems] == [
        "webhooks/b.yaml:1:7: webhooks/a.yaml defines a webhook of the same name, 'a'. Rename one."
    ]


# Automations


def test_an_automation_is_its_front_matter_and_its_prompt():
    found = automation(front(more="runner: agent\nenabled: true\n", prompt="\n# Look\n\n---\n\nand say.\n\n"))

    assert found.name == "triage"
    assert found.runner == "agent"
    assert found.enabled is True
    assert found.prompt == "# Look\n\n---\n\nand say."
    [(_, trigger)] = found.webhook_triggers()
    assert trigger.webhook_ids == (UID,)
    assert trigger.payload is None


def test_event_types_stand_beside_the_payload_filter():
    [(_, trigger)] = automation(of_events("[push, on, 'Push Hook']\n    payload: {a: [1]}")).webhook_triggers()

    assert trigger.event_types == ("push", "on", "Push Hook")
    assert trigger.payload is not None
    assert trigger.payload.source == {"a": [1]}


def test_a_filter_means_what_its_words_look_like():
    found = automation(payload("country: [no, NO]\nnested: {on: {exists: true}}\nn: {not_in: [1, 1.5, null, true]}"))

    [(_, trigger)] = found.webhook_triggers()
    chosen = trigger.payload
    assert chosen is not None
    assert chosen.source == {
        "country": ["no", "NO"],
        "nested": {"on": {"exists": True}},
        "n": {"not_in": [1, 1.5, None, True]},
    }


def test_an_automation_may_have_several_triggers():
    one = f"- {{provider: webhook, event: received, filter: {{webhook_ids: [{UID}]}}}}\n"

    assert len(automation(front(one * 3)).triggers) == 3


def test_a_prompt_written_on_windows_is_the_same_prompt():
    unix = front(prompt="one\ntwo\n")

    assert automation(unix.replace("\n", "\r\n")).prompt == automation(unix).prompt == "one\ntwo"


def test_a_prompt_may_hold_any_characters_but_nul():
    assert automation(front(prompt="Grüße \u2028 \x1b[31m 😀\n")).prompt == "Grüße \u2028 \x1b[31m 😀"


def test_a_prompt_may_speak_of_merges():
    prompt = "Look for `<<<<<<<` markers:\n\n<<<<<<< HEAD\n\nTitle\n=======\n"

    assert automation(front(prompt=prompt)).prompt == prompt.strip("\n")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", ["1:1: The file does not begin with its front matter."]),
        ("Look.\n", ["1:1: The file does not begin with its front matter."]),
        ("\n---\ntriggers: []\n---\nLook.\n", ["1:1: The file does not begin with its front matter."]),
        ("---\ntriggers: []\n", ["1:1: The front matter that begins here has no end."]),
        ("---\n---\nLook.\n", ["2:1: The front matter is empty."]),
        ("---\n# x\n---\nLook.\n", ["2:1: The front matter is empty."]),
        ("---\n- a\n---\nLook.\n", ["2:1: The front matter must be a mapping with the keys"]),
        ("---\nenabled: true\n---\nLook.\n", ["2:1: triggers is missing. List at least one."]),
        ("---\ntrigger: []\n---\nLook.\n", ["2:1: Write `triggers:` and a list, even for one trigger."]),
        ("---\ntriggers: []\n---\nLook.\n", ["2:11: triggers must be a list of one or more."]),
        ("---\ntriggers: {}\n---\nLook.\n", ["2:11: triggers must be a list of one or more."]),
        (front(prompt=""), ["7:1: The prompt is missing."]),
        (front(prompt="\n  \n"), ["7:1: The prompt is missing."]),
        (front(prompt="x" * 100_001), ["8:1: The prompt is longer than 100,000 characters."]),
        (front(more="prompt: Look.\n"), ["7:1: The prompt belongs below the front matter."]),
        (front(more="enabled: yes\n"), ["7:10: enabled must be true or false. (yes is text.)"]),
        (front(more="runner: 5\n"), ["7:9: runner must be text."]),
        (front("- x\n"), ["3:3: A trigger must be a mapping with the keys provider, event, filter."]),
        (
            front("- {provider: schedule, event: push, schedule: {cron: '@daily', nam: x}, filter: {}}\n"),
            [
                "3:31: 'push' is not supported. The event of a schedule is cron_fired.",
                "3:64: Unknown key 'nam'. Did you mean name?",
                "3:73: Unknown key 'filter'",
            ],
        ),
        (
            front("- {provider: schedule, event: cron_fired}\n"),
            ["3:3: schedule is missing. Write `schedule:`, and below it `name` and `cron`."],
        ),
        (
            front("- provider: schedule\n  event: cron_fired\n  schedule:\n    name: a\n    cron: '@reboot'\n"),
            ["7:11: '@reboot' is not a schedule. Use @hourly"],
        ),
        (
            front("- provider: schedule\n  event: cron_fired\n  schedule: {name: a, cron: '@daily', timezone: Mars}\n"),
            ["5:49: timezone must be an IANA name, such as Europe/Berlin; got 'Mars'."],
        ),
        (
            front(2 * "- {provider: schedule, event: cron_fired, schedule: {name: a, cron: '@daily'}}\n"),
            ["4:60: Another schedule of the automation is named 'a'. Names of schedules are unique."],
        ),
        (
            front("- event: push\n  provider: github\n  filter: {}\n"),
            [
                "3:10: 'push' is not supported. The only event is received.",
                "4:13: 'github' is not supported. Providers are webhook and schedule.",
                "5:11: webhook_ids is missing.",
            ],
        ),
        (front("- {provider: webhook, event: received}\n"), ["3:3: filter is missing."]),
        (front("- {provider: webhook, event: received, filters: {}}\n"), ["3:40: Unknown key 'filters'. Did you mean"]),
        (
            front("- {provider: webhook, events: received, filter: {webhookIds: [a]}}\n"),
            ["3:23: Unknown key 'events'. Did you mean event?", "3:50: Unknown key 'webhookIds'. Did you mean web"],
        ),
        (front("- {provider: webhook, event: received, filter: []}\n"), ["3:48: filter must be a mapping"]),
        (
            front("- provider: webhook\n  event: received\n  filter: {webhook_ids: [], payloads: {}}\n"),
            [
                "5:25: webhook_ids must be a list of one or more uids",
                "5:29: Unknown key 'payloads'. Did you mean payload?",
            ],
        ),
        (
            front("- provider: webhook\n  event: received\n  filter:\n    webhook_ids:\n    - [a]\n    - 7\n"),
            ["7:7: This is not a webhook's uid (wh_…).", "8:7: '7' is not a webhook's uid (wh_…)."],
        ),
        (payload("a: []"), ["8:10: /a: An empty array matches no value."]),
        (of_events("push"), ["7:12: Event types must be a list of one or more texts, such as push."]),
        (of_events("[]"), ["7:12: Event types must be a list of one or more texts, such as push."]),
        (of_events("{in: [push]}"), ["7:12: Event types must be a list of one or more texts, such as push."]),
        (
            of_events("[push, 1, '']"),
            [
                "7:19: An event type must be a text of 1 to 200 printable characters.",
                "7:22: An event type must be a text of 1 to 200 printable characters.",
            ],
        ),
        (
            front("- provider: webhook\n  event: received\n  filter: {webhook_ids: [wh_1], events: [push]}\n"),
            ["5:33: Unknown key 'events'. Did you mean event?"],
        ),
        (
            payload("a: [b]\nb:\n  c: {$in: [1]}\nd:\n  exists: 1\n  in: [{}]"),
            [
                "10:18: /b/c/$in: Unknown operator.",
                "12:17: /d/exists: Write true",
                "13:14: /d/in/0: Write a string, a finite number, true, false or null.",
            ],
        ),
        (
            payload("$schema: [x]\nb:\n  $ref: [1]\nc: {$gt: [5]}"),
            [
                "8:16: /$schema: Unknown operator. Operators allowed here are $any, $not, $fields. For a "
                'field of this name write {"$fields": {"$schema": …}}.',
                "10:15: /b/$ref: Unknown operator. Operators allowed here are in, not_in, exists, $prefix,",
                "11:16: /c/$gt: Write a finite number, such as 100. For a field of this name write",
            ],
        ),
        (payload("a: [b]\na: [c]"), ["9:7: a is a duplicate key (first in line 8)."]),
        (payload("a: [010]"), ["8:11: Some parsers read this as text, others as a number."]),
        (front(more="x: &a [1]\n"), ["7:1: Unknown key 'x'.", "7:4: Anchors (&) are not supported."]),
    ],
)
def test_an_automation_is_refused_with_every_problem_at_its_place(content: str, said: list[str]):
    found = said_of_automation(content)

    assert len(found) == len(said), found
    assert all(one.startswith(wanted) for one, wanted in zip(found, said, strict=True)), found


@pytest.mark.parametrize("value", ["null", "[a]", "text", "5"])
def test_a_payload_filter_is_an_object(value: str):
    content = payload("x: [1]").replace("payload:\n      x: [1]", f"payload: {value}")

    assert said_of_automation(content) == ['7:14: A filter is an object such as {"action": ["opened"]}.']


@pytest.mark.parametrize(
    ("uids", "hint"),
    [
        (None, "`hookmill webhook list` shows the uids."),
        ({}, "`hookmill webhook list` shows the uids."),
        ({"source": UID}, f"Write its uid: {UID}."),
    ],
)
def test_a_name_instead_of_a_uid_is_refused_with_the_uid(uids: dict[str, str] | None, hint: str):
    content = front().replace(UID, "source")

    assert said_of_automation(content, uids) == [f"6:19: 'source' is not a webhook's uid (wh_…). {hint}"]


def test_a_name_without_a_uid_is_refused_with_what_to_do_first():
    raw = front().replace(UID, "source").encode()

    found = read_definitions(
        Files({"webhooks/source.yaml": b"secretName: S\n"}, {"automations/a/automation.md": raw}), {}
    )

    assert "A webhook gets its uid at the first apply." in str(found.problems[0])


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (front().replace("triggers:\n", "<<<<<<< HEAD\ntriggers:\n"), 2),
        (front(prompt="one\n<<<<<<< HEAD\ntwo\n=======\nthree\n>>>>>>> other\n"), 9),
        ("<<<<<<< HEAD\n" + front() + "=======\n" + front() + ">>>>>>> other\n", 1),
    ],
    ids=["in the front matter", "in the prompt", "around everything"],
)
def test_an_unresolved_merge_in_an_automation_is_called_one(content: str, line: int):
    (said,) = said_of_automation(content)

    assert said.startswith(f"{line}:1: A merge is unresolved here.")


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


# Whatever is in a file

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
def test_any_bytes_are_definitions_or_problems_with_places_in_them(content: bytes):
    with_front = b"---\n" + content + b"\n---\nLook.\n"

    found = read_definitions(Files({"webhooks/a.yaml": content}, {"automations/a/automation.md": with_front}))

    ends = {"webhooks/a.yaml": content.count(b"\n") + 2, "automations/a/automation.md": with_front.count(b"\n") + 2}
    assert len(found.webhooks) + len(found.automations) + len({problem.file for problem in found.problems}) == 2
    assert all(
        1 <= problem.place.line <= ends[problem.file] and problem.place.column >= 1 for problem in found.problems
    )
