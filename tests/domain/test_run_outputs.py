"""The texts that a run writes: their size, and what is replaced in them."""

import pytest

from hookmill.domain.run_outputs import (
    LAST_MESSAGE,
    NO_OUTPUTS,
    OUTPUT_BYTES_MAX,
    READ_FILES,
    OutputText,
    RunSummary,
    SummarySource,
    output_text,
    summary_of,
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"# Done\n\n\ttwo bugs", "# Done\n\n\ttwo bugs"),
        (b"a\r\n\x1b[31mred\0 \xe2\x80\xae", "a\r\n\x1b[31mred\ufffd \u202e"),
        (b"\xef\xbb\xbf# Done", "# Done"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_text_is_stored_as_the_run_wrote_it(content, text):
    assert output_text(content) == OutputText(text=text)


@pytest.mark.parametrize("content", [b"", b" \n\t"])
def test_blank_text_counts_as_none(content):
    assert output_text(content) is None


def test_long_text_is_cut_between_two_characters():
    longest = "x" * (OUTPUT_BYTES_MAX - 1)

    assert output_text(f"{longest}x".encode()) == OutputText(text=f"{longest}x")
    assert output_text(f"{longest}é".encode()) == OutputText(text=longest, is_cut=True)


def test_last_message_is_the_summary_of_a_run_that_wrote_none():
    message, file = OutputText(text="message", is_cut=True), OutputText(text="file")

    from_message = RunSummary(text="message", is_cut=True, source=SummarySource.LAST_MESSAGE)
    from_file = RunSummary(text="file", is_cut=False, source=SummarySource.FILE)
    assert summary_of({LAST_MESSAGE: message}) == from_message
    assert summary_of({LAST_MESSAGE: message, "summary.md": file}) == from_file
    assert summary_of({"comment.json": file}) is summary_of(NO_OUTPUTS) is None
    assert LAST_MESSAGE not in READ_FILES
