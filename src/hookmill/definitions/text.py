"""Prepare a file for the YAML parser: decode it, find unresolved merges, and split off the front matter."""

import re
from collections.abc import Iterable
from typing import Final

from hookmill.definitions.mapping import ProblemReporter
from hookmill.definitions.problem import START, Place

_WRONG_ENCODINGS: Final = (
    (b"\xef\xbb\xbf", "The file begins with a byte order mark. Save it as UTF-8 without one."),
    (b"\xff\xfe", "The file is UTF-16. Save it as UTF-8."),
    (b"\xfe\xff", "The file is UTF-16. Save it as UTF-8."),
)


def text_of(content: bytes, reporter: ProblemReporter) -> str | None:
    """The file's text, with line feeds as line ends; None after reporting a problem."""
    for mark, message in _WRONG_ENCODINGS:
        if content.startswith(mark):
            reporter.report(START, message)
            return None
    try:
        text = content.decode()
    except UnicodeDecodeError as fault:
        valid_text = content[: fault.start].decode().replace("\r\n", "\n")
        reporter.report(
            _place_after(valid_text),
            "The file is not UTF-8 from here on. Save it as UTF-8. A definition is not a binary file.",
        )
        return None
    text = text.replace("\r\n", "\n")
    if "\0" in text:
        reporter.report(
            _place_after(text.partition("\0")[0]),
            "The file contains NUL: it is not text, or it is UTF-16. Save it as UTF-8.",
        )
        return None
    return text


def _place_after(text: str) -> Place:
    return Place(text.count("\n") + 1, len(text) - text.rfind("\n"))


_INVISIBLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


def has_only_visible_characters(text: str, reporter: ProblemReporter, first_line: int = 1) -> bool:
    """Whether the YAML has only visible characters; the first other character is reported.

    Parsers skip invisible characters, or treat them as line ends.
    """
    match = _INVISIBLE.search(text)
    if match is None:
        return True
    line, column = _place_after(text[: match.start()])
    code = f"U+{ord(match[0]):04X}"
    reporter.report(
        Place(line + first_line - 1, column), f"{code} is an invisible character. Remove it, or escape it in quotes."
    )
    return False


_OUTER_CONFLICT_MARKS: Final = ("<<<<<<<", ">>>>>>>")
_CONFLICT_MARKS: Final = ("<<<<<<<", "=======", ">>>>>>>")


def has_unresolved_merge(
    text: str, reporter: ProblemReporter, *, first_line: int = 1, needs_all_marks: bool = False
) -> bool:
    """Whether the text has an unresolved merge, which is reported at its first mark.

    `needs_all_marks` is for prompts, which may mention conflict marks: only all three marks in order are a conflict.
    """
    lines = enumerate(text.split("\n"), first_line)
    marks = [(line[:7], number) for number, line in lines if line[:7] in _CONFLICT_MARKS and line[7:8] in ("", " ")]
    outer_lines = [number for mark, number in marks if mark in _OUTER_CONFLICT_MARKS]
    has_all_marks = _contains_in_order((mark for mark, _ in marks), _CONFLICT_MARKS)
    if not outer_lines or (needs_all_marks and not has_all_marks):
        return False
    message = "A merge is unresolved here. Choose one side, and remove the lines <<<<<<<, ======= and >>>>>>>."
    reporter.report(Place(outer_lines[0], 1), message)
    return True


def _contains_in_order(values: Iterable[str], expected: Iterable[str]) -> bool:
    # `in` consumes the iterator up to the value, so the next value must come later.
    remaining = iter(values)
    return all(value in remaining for value in expected)


def split_front_matter(text: str, reporter: ProblemReporter) -> tuple[str, str, int] | None:
    """The front matter, the prompt, and the number of the prompt's first line; None after reporting a problem."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        if not has_unresolved_merge(text, reporter, needs_all_marks=True):
            message = (
                "The file does not begin with its front matter. Write a line ---, the triggers, a line ---, the prompt."
            )
            reporter.report(START, message)
        return None
    for number, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            return "\n".join(lines[1:number]), "\n".join(lines[number + 1 :]), number + 2
    reporter.report(START, "The front matter that begins here has no end. Write a line --- between it and the prompt.")
    return None
