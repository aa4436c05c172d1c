"""Secrets: which values and names are accepted, how a value is generated, and that printing never reveals it."""

import os
import re

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.secret import (
    GENERATED_BYTES,
    SecretValue,
    generate_value,
    is_url_safe,
    suggested_secret_name,
    usable_secret,
    usable_secret_name,
)


def test_printed_secret_value_reveals_nothing():
    value = SecretValue("canary")

    assert "canary" not in f"{value} {value!r} {[value]} {value!s:>20}"


def test_reveal_returns_the_secret_value():
    assert SecretValue("canary").reveal() == "canary"


def test_generated_secret_contains_256_random_bits():
    of_zeros = generate_value(bytes(GENERATED_BYTES)).reveal()
    values = {generate_value((1 << bit).to_bytes(GENERATED_BYTES, "big")).reveal() for bit in range(256)}

    assert len(values - {of_zeros}) == 256


def test_generated_secret_is_safe_in_headers_and_paths():
    value = generate_value(os.urandom(GENERATED_BYTES))

    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value.reveal())
    assert is_url_safe(value)


@pytest.mark.parametrize("value", ["a", "a.b", "a-b_c~d", "...", "0" * 512])
def test_value_that_can_be_a_path_segment_is_url_safe(value):
    assert is_url_safe(SecretValue(value))


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "a/b", "a b", "a%20b", "a?b", "a#b", "a+b", "a=b", "é", "a\n", "a:b", "\N{KELVIN SIGN}", "0" * 513],
)
def test_value_that_a_url_would_change_or_truncate_is_not_url_safe(value):
    assert not is_url_safe(SecretValue(value))


@pytest.mark.parametrize("name", ["A", "a", "WEBHOOK_SOURCE_SECRET", "a" + "_" * 63])
def test_secret_name_is_a_letter_then_letters_digits_or_underscores(name):
    assert usable_secret_name(name) == name


@pytest.mark.parametrize("name", ["", "1a", "_a", "a-b", "a b", "a.b", "é", "a" * 65, "a\n"])
def test_any_other_secret_name_is_refused(name):
    with pytest.raises(Invalid, match="can't name a team secret"):
        usable_secret_name(name)


@pytest.mark.parametrize(
    ("webhook", "suggested"),
    [
        ("source", "WEBHOOK_SOURCE_SECRET"),
        ("Build status (main)", "WEBHOOK_BUILD_STATUS_MAIN_SECRET"),
        ("a--b__c", "WEBHOOK_A_B_C_SECRET"),
        ("Grüße", "WEBHOOK_GR_SSE_SECRET"),
        ("日本", "WEBHOOK_UNNAMED_SECRET"),
        ("x" * 100, f"WEBHOOK_{'X' * 48}_SECRET"),
        ("x" * 47 + " y", f"WEBHOOK_{'X' * 47}_SECRET"),
    ],
)
def test_secret_name_is_suggested_from_the_webhook_name(webhook, suggested):
    assert suggested_secret_name(webhook) == suggested
    assert usable_secret_name(suggested) == suggested


def test_white_space_around_a_supplied_secret_is_removed():
    assert usable_secret("  a b c d e\r\n") == SecretValue("a b c d e")


@pytest.mark.parametrize(
    "value", ["", " \n", "abcd\x00efgh", "a" * 4_097, " abc "], ids=["empty", "blank", "NUL", "too long", "short"]
)
def test_unusable_supplied_secret_is_refused(value):
    with pytest.raises(Invalid):
        usable_secret(value)


def test_error_message_does_not_contain_the_refused_secret():
    with pytest.raises(Invalid) as refused:
        usable_secret("canary\x00")

    assert "canary" not in str(refused.value)


def test_byte_order_mark_and_white_space_are_no_part_of_a_secret():
    assert usable_secret("\ufeff 12345678\r\n") == usable_secret("12345678")
