"""Secret values are masked in each form in which commands usually print them."""

import base64
import json
import tracemalloc
from urllib.parse import quote, quote_plus

import pytest

from hookmill.domain.masking import Masker

VALUE = 'p4ss/wörd+"quoted" 1234'
KEY = "-----BEGIN KEY-----\nQUJDREVGR0hJSktMTU5PUFFS\nU1RVVldYWVo=\n-----END KEY-----"

FORMS = {
    "itself": VALUE,
    "JSON": json.dumps(VALUE),
    "JSON in UTF-8": json.dumps(VALUE, ensure_ascii=False),
    "a URL": quote(VALUE, safe=""),
    "a query": quote_plus(VALUE),
    "hexadecimal digits": VALUE.encode().hex(),
    "upper-case hexadecimal digits": VALUE.encode().hex().upper(),
    **{
        f"base64 after {before!r}": base64.b64encode(f"{before}{VALUE}@host".encode()).decode()
        for before in ("", "u", "u:", "us:", "user:")
    },
    "base64 for URLs": base64.urlsafe_b64encode(VALUE.encode()).decode(),
}


def in_chunks(masker: Masker, text: bytes, length: int) -> bytes:
    """The masked text, if it arrives in chunks of this length."""
    parts = [masker.add(text[start : start + length]) for start in range(0, len(text), length)]
    return b"".join([*parts, masker.finish()])


@pytest.mark.parametrize("form", FORMS)
def test_value_is_masked_in_each_form_however_it_is_split(form):
    text = f"before {FORMS[form]} after".encode()
    masked = Masker([VALUE.encode()]).mask(text)

    assert masked.startswith(b"before ")
    assert masked.endswith(b" after")
    assert masked.count(b"[masked]") == 1
    # Characters of base64 that also have bits of the text around the value stay.
    assert len(masked) <= len(b"before [masked] after") + (18 if "base64" in form else 2)
    for length in range(1, len(text)):
        assert in_chunks(Masker([VALUE.encode()]), text, length) == masked


def test_lines_of_a_value_are_masked_one_by_one():
    masker = Masker([KEY.encode()])
    indented = "\n".join(f"  {line}" for line in KEY.split("\n"))

    assert masker.mask(KEY.encode()) == b"[masked]"
    assert masker.mask(indented.encode()) == b"\n".join([b"  [masked]"] * 4)
    assert masker.mask(json.dumps(KEY).encode()) == b'"[masked]"'


def test_overlapping_values_get_one_mask():
    masker = Masker([b"password", b"password-and-more", b"more-of-it"])
    text = b"password, password-and-more, password-and-more-of-it, passwordpassword"

    assert masker.mask(text) == b"[masked], [masked], [masked], [masked][masked]"
    for length in range(1, len(text)):
        assert in_chunks(Masker([b"password", b"password-and-more", b"more-of-it"]), text, length) == masker.mask(text)


def test_repeated_characters_are_held_only_up_to_the_length_of_the_value():
    masker = Masker([b"a" * 8])
    output = [masker.add(b"a" * 1_000) for _ in range(3)]

    assert b"".join([*output, masker.add(b"b"), masker.finish()]) == b"[masked]b"


def test_text_of_nothing_but_values_needs_little_memory():
    masker = Masker([b"secret-x"])
    text = b"secret-x" * 32_768
    tracemalloc.start()
    try:
        assert masker.mask(text) == b"[masked]" * 32_768
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 4 * len(text)


@pytest.mark.parametrize("values", [[], [b""], [b"1234567"]])
def test_short_values_mask_nothing(values):
    masker = Masker(values)

    assert not masker.is_needed
    assert masker.add(b"1234567") + masker.finish() == b"1234567"


def test_text_that_is_no_value_is_not_held_back():
    masker = Masker([VALUE.encode()])

    assert masker.add(b"line\n") == b"line\n"
    assert masker.add(b"ends with p4ss") == b"ends with "
    assert masker.add(b"port\n") == b"p4ssport\n"
    assert masker.mask_text("a \ud800 b") == "a \ud800 b"
