"""Secret values: what may be one, what is made when none is given, and what never shows."""

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


def test_a_secret_value_shows_nothing_when_it_is_printed():
    value = SecretValue("canary")

    assert "canary" not in f"{value} {value!r} {[value]} {value!s:>20}"


def test_a_secret_value_is_revealed_on_request():
    assert SecretValue("canary").reveal() == "canary"


def test_a_generated_secret_holds_256_random_bits():
    quiet = generate_value(bytes(GENERATED_BYTES)).reveal()
    values = {generate_value((1 << bit).to_bytes(GENERATED_BYTES, "big")).reveal() for bit in range(256)}

    assert len(values - {quiet}) == 256


def test_a_generated_secret_fits_in_a_header_and_in_a_path():
    value = generate_value(os.urandom(GENERATED_BYTES))

    assert re.fullmatch(r"[A-Za-z0-9_-]{43}", value.reveal())
    assert is_url_safe(value)


@pytest.mark.parametrize("value", ["a", "a.b", "a-b_c~d", "...", "0" * 512])
def test_a_value_that_can_stand_as_a_path_segment_is_url_safe(value):
    assert is_url_safe(SecretValue(value))


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "a/b", "a b", "a%20b", "a?b", "a#b", "a+b", "a=b", "é", "a\n", "a:b", "\N{KELVIN SIGN}", "0" * 513],
)
def test_a_value_that_would_be_changed_or_cut_in_a_url_is_not_url_safe(value):
    assert not is_url_safe(SecretValue(value))


@pytest.mark.parametrize("name", ["A", "a", "WEBHOOK_SOURCE_SECRET", "a" + "_" * 63])
def test_a_secrets_name_is_a_letter_then_letters_digits_underscores(name):
    assert usable_secret_name(name) == name


@pytest.mark.parametrize("name", ["", "1a", "_a", "a-b", "a b", "a.b", "é", "a" * 65, "a\n"])
def test_another_name_is_refused(name):
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
def test_a_secrets_name_is_suggested_after_the_webhook(webhook, suggested):
    assert suggested_secret_name(webhook) == suggested
    assert usable_secret_name(suggested) == suggested


def test_a_supplied_secret_is_taken_without_the_white_space_around_it():
    assert usable_secret("  a b\r\n") == SecretValue("a b")


@pytest.mark.parametrize("value", ["", " \n", "a\x00b", "a" * 4_097], ids=["empty", "blank", "nul", "too long"])
def test_a_supplied_secret_that_would_prove_nothing_is_refused(value):
    with pytest.raises(Invalid):
        usable_secret(value)


def test_a_refused_secret_is_not_repeated():
    with pytest.raises(Invalid) as refused:
        usable_secret("canary\x00")

    assert "canary" not in str(refused.value)
