"""The texts that a run writes: their size, and what is replaced in them."""

import pytest

from hookmill.domain.run_outputs import OUTPUT_BYTES_MAX, OutputText, output_text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"# Done\n\n\ttwo bugs", "# Done\n\n\ttwo bugs"),
        (b"\x1b[31mred\0 \xe2\x80\xae", "\ufffd[31mred\ufffd \ufffd"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_text_has_printable_characters_only(content: bytes, text: str):
    assert output_text(content) == OutputText(text=text)


@pytest.mark.parametrize("content", [b"", b" \n\t"])
def test_blank_text_counts_as_none(content: bytes):
    assert output_text(content) is None


def test_long_text_is_cut_between_two_characters():
    longest = "x" * (OUTPUT_BYTES_MAX - 1)

    assert output_text(f"{longest}x".encode()) == OutputText(text=f"{longest}x")
    assert output_text(f"{longest}é".encode()) == OutputText(text=longest, is_cut=True)
