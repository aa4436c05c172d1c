"""Ids: random ones can't be guessed, their prefix tells their kind, and keys of rows are in the order of time."""

import os
import re
import uuid

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import (
    RANDOM_BYTES,
    delivery_id,
    delivery_key,
    random_id,
    run_id,
    run_key,
    time_ordered_key,
)

NOW = 1_900_000_000_123_456


def test_random_id_has_a_prefix_and_27_safe_characters():
    assert re.fullmatch(r"wh_[0-9a-hjkmnp-tv-z]{27}", random_id("wh", os.urandom(RANDOM_BYTES)))


def test_random_id_contains_135_random_bits():
    of_zeros = random_id("wh", bytes(RANDOM_BYTES))
    ids = {random_id("wh", (1 << bit).to_bytes(RANDOM_BYTES, "big")) for bit in range(1, 136)}

    assert len(ids - {of_zeros}) == 135


def test_time_ordered_key_is_a_uuidv7_with_its_millisecond():
    key = uuid.UUID(bytes=time_ordered_key(NOW, os.urandom(8)))

    assert (key.version, key.variant, key.int >> 80) == (7, uuid.RFC_4122, NOW // 1000)


def test_keys_are_in_the_order_of_their_microseconds():
    keys = [time_ordered_key(NOW + microsecond, os.urandom(8)) for microsecond in range(3_000)]

    assert keys == sorted(keys)


def test_keys_of_one_microsecond_contain_64_random_bits():
    of_zeros = time_ordered_key(NOW, bytes(8))
    keys = {time_ordered_key(NOW, (1 << bit).to_bytes(8, "big")) for bit in range(64)}

    assert len(keys - {of_zeros}) == 64


@pytest.mark.parametrize("now", [0, 2**31 * 1_000_000, 4_102_444_800_000_000], ids=["1970", "2038", "2100"])
def test_key_of_any_year_is_a_uuidv7_of_16_bytes(now):
    key = time_ordered_key(now, b"\xff" * 8)

    assert (len(key), uuid.UUID(bytes=key).version) == (16, 7)


def test_id_of_a_key_is_its_prefix_and_the_key_in_hexadecimal():
    key = time_ordered_key(NOW, os.urandom(8))

    assert (delivery_id(key), run_id(key)) == (f"dlv_{key.hex()}", f"run_{key.hex()}")
    assert (delivery_key(delivery_id(key)), run_key(run_id(key))) == (key, key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dlv_",
        "dlv_" + "0" * 31,
        "dlv_" + "0" * 33,
        "dlv_" + "G" * 32,
        "dlv_" + "A" * 32,
        "dlv_" + "0" * 32 + "\n",
        "dlv_" + "\N{ARABIC-INDIC DIGIT ONE}" * 32,
        "run_" + "0" * 32,
        "DLV_" + "0" * 32,
        "0" * 32,
    ],
)
def test_text_that_is_not_a_delivery_id_is_refused(text):
    with pytest.raises(Invalid, match="is not a delivery id"):
        delivery_key(text)


def test_delivery_id_is_refused_as_a_run_id():
    with pytest.raises(Invalid, match="is not a run id"):
        run_key("dlv_" + "0" * 32)


def test_error_message_truncates_a_long_text_that_is_not_an_id():
    with pytest.raises(Invalid) as refused:
        delivery_key("x" * 10_000)

    assert len(str(refused.value)) < 200
