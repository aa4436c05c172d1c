"""Names of things: hard to guess, told apart by their prefix, and in order of time where rows are."""

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


def test_a_random_name_is_its_prefix_and_27_safe_characters():
    assert re.fullmatch(r"wh_[0-9a-hjkmnp-tv-z]{27}", random_id("wh", os.urandom(RANDOM_BYTES)))


def test_a_random_name_holds_135_random_bits():
    quiet = random_id("wh", bytes(RANDOM_BYTES))
    names = {random_id("wh", (1 << bit).to_bytes(RANDOM_BYTES, "big")) for bit in range(1, 136)}

    assert len(names - {quiet}) == 135


def test_a_time_ordered_key_is_a_uuidv7_with_its_millisecond():
    key = uuid.UUID(bytes=time_ordered_key(NOW, os.urandom(8)))

    assert (key.version, key.variant, key.int >> 80) == (7, uuid.RFC_4122, NOW // 1000)


def test_keys_stand_in_the_order_of_their_microseconds():
    keys = [time_ordered_key(NOW + microsecond, os.urandom(8)) for microsecond in range(3_000)]

    assert keys == sorted(keys)


def test_keys_of_one_microsecond_differ_in_64_random_bits():
    quiet = time_ordered_key(NOW, bytes(8))
    keys = {time_ordered_key(NOW, (1 << bit).to_bytes(8, "big")) for bit in range(64)}

    assert len(keys - {quiet}) == 64


@pytest.mark.parametrize("now", [0, 2**31 * 1_000_000, 4_102_444_800_000_000], ids=["1970", "2038", "2100"])
def test_a_key_of_any_year_keeps_its_form(now):
    key = time_ordered_key(now, b"\xff" * 8)

    assert (len(key), uuid.UUID(bytes=key).version) == (16, 7)


def test_ids_have_a_prefix_and_32_digits_and_are_read_back():
    key = time_ordered_key(NOW, os.urandom(8))

    assert (delivery_id(key), run_id(key)) == (f"dlv_{key.hex()}", f"run_{key.hex()}")
    assert (delivery_key(delivery_id(key)), run_key(run_id(key))) == (key, key)


@pytest.mark.parametrize(
    "shown",
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
def test_what_is_no_delivery_id_is_refused(shown):
    with pytest.raises(Invalid, match="is not a delivery id"):
        delivery_key(shown)


def test_a_delivery_id_is_no_run_id():
    with pytest.raises(Invalid, match="is not a run id"):
        run_key("dlv_" + "0" * 32)


def test_a_long_thing_that_is_no_id_is_not_repeated_whole():
    with pytest.raises(Invalid) as refused:
        delivery_key("x" * 10_000)

    assert len(str(refused.value)) < 200
