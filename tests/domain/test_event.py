"""The event type of a delivery: where it is read, and which texts are not accepted as one."""

import pytest

from hookmill.domain.delivery import Attempt
from hookmill.domain.event import EVENT_CHARACTERS_MAX, EventSource, EventType, event_type
from hookmill.domain.payload import Parsed, parse

IN_HEADER = EventSource.parse("header:x-event", is_signed=False)
IN_BODY = EventSource.parse("json:event.type", is_signed=True)
UNUSABLE = [
    "",
    "  ",
    "a" * (EVENT_CHARACTERS_MAX + 1),
    "push\ttag",
    "push\x00",
    "\x7f",
    "push\u202e",
    "push\u2028tag",
]


def make_attempt(headers: dict[bytes, bytes], conflicting: frozenset[bytes] = frozenset()) -> Attempt:
    return Attempt(
        uid="wh_1",
        url_token=None,
        received_at=0,
        headers=headers,
        authorization=None,
        authorization_count=0,
        conflicting_headers=conflicting,
    )


def parsed_body(text: str) -> Parsed:
    parsed = parse(text.encode("utf-8", "surrogatepass"))
    assert isinstance(parsed, Parsed)
    return parsed


@pytest.mark.parametrize("name", ["push", "Push Hook", "a", "e" * EVENT_CHARACTERS_MAX, "größer", "事件"])
def test_printable_text_of_the_header_is_the_event_type(name):
    assert event_type(IN_HEADER, make_attempt({b"x-event": name.encode()}), None) == EventType(name, False)


@pytest.mark.parametrize("name", ["push", "Push Hook", "a", "e" * EVENT_CHARACTERS_MAX, "größer", "事件", " push "])
def test_printable_text_of_the_body_is_the_event_type(name):
    body = parsed_body(f'{{"event": {{"type": "{name}"}}}}')

    assert event_type(IN_BODY, make_attempt({}), body) == EventType(name, True)


@pytest.mark.parametrize("name", UNUSABLE)
def test_unusable_text_of_the_header_is_not_an_event_type(name):
    assert event_type(IN_HEADER, make_attempt({b"x-event": name.encode()}), None) is None


@pytest.mark.parametrize("name", [*UNUSABLE, "\ud83d"])
def test_unusable_text_of_the_body_is_not_an_event_type(name):
    escaped = "".join(f"\\u{ord(each):04x}" for each in name)

    assert event_type(IN_BODY, make_attempt({}), parsed_body(f'{{"event": {{"type": "{escaped}"}}}}')) is None


@pytest.mark.parametrize(
    "body",
    [
        "{}",
        "[]",
        "1",
        '"event"',
        '{"event": null}',
        '{"event": "push"}',
        '{"event": {"type": 1}}',
        '{"event": {"type": true}}',
        '{"event": {"type": ["push"]}}',
        '{"event": [{"type": "push"}]}',
        '{"event.type": "push"}',
    ],
)
def test_body_without_a_string_at_the_path_has_no_event_type(body):
    assert event_type(IN_BODY, make_attempt({}), parsed_body(body)) is None


def test_last_of_equal_keys_counts_as_it_does_for_filters():
    body = parsed_body('{"event": {"type": "first", "type": "last"}}')

    assert event_type(IN_BODY, make_attempt({}), body) == EventType("last", True)


def test_body_that_is_not_json_has_no_event_type():
    assert event_type(IN_BODY, make_attempt({b"event.type": b"push"}), None) is None


def test_header_with_two_different_values_has_no_event_type():
    attempt = make_attempt({b"x-event": b"push"}, frozenset({b"x-event"}))

    assert event_type(IN_HEADER, attempt, None) is None


def test_white_space_around_the_header_is_ignored():
    assert event_type(IN_HEADER, make_attempt({b"x-event": b" \tpush "}), None) == EventType("push", False)


@pytest.mark.parametrize("value", [b"\xff", b"gr\xf6\xdfer"])
def test_header_that_is_not_utf8_has_no_event_type(value):
    assert event_type(IN_HEADER, make_attempt({b"x-event": value}), None) is None


def test_header_name_is_case_insensitive():
    source = EventSource.parse("header:X-Event", is_signed=False)

    assert event_type(source, make_attempt({b"x-event": b"push"}), None) == EventType("push", False)
