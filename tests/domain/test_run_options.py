"""Run options: which fields are accepted, and which values they select from payloads."""

import json
from decimal import Decimal

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.run_options import (
    FIELD_CHARACTERS,
    FIELDS_MAX,
    NO_OPTIONS,
    FieldValue,
    RunField,
    RunOptions,
    options_from_stored,
)
from hookmill.domain.spec import read


def value_at(pointer: str, payload: str, **settings: int) -> FieldValue:
    parsed = parse(payload.encode("utf-8", "surrogatepass"))
    assert isinstance(parsed, Parsed)
    return RunField(pointer=pointer, **settings).value_in(parsed)


def test_options_convert_to_json_and_back_without_change():
    options = RunOptions(
        fields={"pr": RunField(pointer="/a~1b/0"), "title": RunField(pointer="/title", max_characters=5)}
    )

    assert read(RunOptions, options.as_json()) == options
    assert options_from_stored("{}", json.dumps(options.as_json())) == options
    assert NO_OPTIONS.as_json() == {}
    assert read(RunOptions, {"fields": {}}) == NO_OPTIONS


@pytest.mark.parametrize(
    ("pointer", "kind", "value"),
    [
        ("/number", "number", 9007199254740993),
        ("/ratio", "number", Decimal("0.10")),
        ("/title", "string", "Grüße"),
        ("/draft", "boolean", False),
        ("/closed_at", "null", None),
        ("/labels/0", "string", "bug"),
        ("/labels/1", "missing", None),
        ("/labels/-", "missing", None),
        ("/labels/00000000", "missing", None),
        ("/nothing/at/all", "missing", None),
        ("/title/0", "missing", None),
        ("/labels", "array", None),
        ("/head", "object", None),
        ("/head/a~1b", "number", 1),
    ],
)
def test_field_has_the_type_and_the_exact_value_of_the_payload(pointer, kind, value):
    payload = """{"number": 9007199254740993, "ratio": 0.10, "title": "Grüße", "draft": false, "closed_at": null,
        "labels": ["bug"], "head": {"a/b": 1}}"""

    field = value_at(pointer, payload)

    assert (field.type, field.value, field.is_cut) == (kind, value, False)


@pytest.mark.parametrize(
    ("payload", "settings", "value", "is_cut"),
    [
        ('{"a": "12345"}', {"max_characters": 5}, "12345", False),
        ('{"a": "123456"}', {"max_characters": 5}, "12345", True),
        (f'{{"a": "{"x" * FIELD_CHARACTERS}"}}', {}, "x" * FIELD_CHARACTERS, False),
        (f'{{"a": "{"x" * (FIELD_CHARACTERS + 1)}"}}', {}, "x" * FIELD_CHARACTERS, True),
        (f'{{"a": {"9" * 1_000}}}', {}, int("9" * 1_000), False),
        (f'{{"a": {"9" * 1_001}}}', {}, None, True),
        ('{"a": 1e400000000000000000000}', {}, None, True),
    ],
    ids=["at the limit", "cut", "at the default", "cut at the default", "long number", "too long", "too large"],
)
def test_long_values_are_cut_or_left_out(payload, settings, value, is_cut):
    field = value_at("/a", payload, **settings)

    assert (field.value, field.is_cut) == (value, is_cut)


def test_every_field_is_missing_without_a_payload():
    options = read(RunOptions, {"fields": {"a": "/a"}})

    assert options.field_values(None) == {"a": FieldValue(type="missing", value=None)}


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ([], "/fields"),
        ({f"f{number}": "/a" for number in range(FIELDS_MAX + 1)}, "/fields"),
        ({"PR": "/a"}, "/fields"),
        ({"1st": "/a"}, "/fields"),
        ({"": "/a"}, "/fields"),
        ({"pr\n": "/a"}, "/fields"),
        ({"x" * 33: "/a"}, "/fields"),
        ({"pr": "a"}, "/fields/pr"),
        ({"pr": 1}, "/fields/pr"),
        ({"pr": None}, "/fields/pr"),
        ({"pr": "/" + "a" * 200}, "/fields/pr"),
        ({"pr": {"pointer": "/a", "maximum": 1}}, "/fields/pr/maximum"),
        ({"pr": {}}, "/fields/pr/pointer"),
        ({"pr": {"pointer": "a"}}, "/fields/pr/pointer"),
        ({"pr": {"pointer": "/a", "max_characters": 0}}, "/fields/pr/max_characters"),
        ({"pr": {"pointer": "/a", "max_characters": 2_001}}, "/fields/pr/max_characters"),
        ({"pr": {"pointer": "/a", "max_characters": True}}, "/fields/pr/max_characters"),
        ({"pr": {"pointer": "/a", "max_characters": "5"}}, "/fields/pr/max_characters"),
    ],
)
def test_invalid_fields_are_refused_with_their_pointer(fields, pointer):
    with pytest.raises(Invalid) as refusal:
        read(RunOptions, {"fields": fields})

    assert [fault.pointer for fault in refusal.value.faults] == [pointer]


@pytest.mark.parametrize(
    "stored",
    [
        '{"fields": {"a": "/a"}, "sandbox": "container"}',
        '{"fields": {"a": {"pointer": "/a", "unit": "s"}}}',
        *("[]", "{"),
    ],
)
def test_stored_options_that_cannot_be_read_start_no_runs(stored):
    options = options_from_stored("{}", stored)

    assert "can't be read: " in (options.reason_against_runs or "")
    assert options.fields == {}
