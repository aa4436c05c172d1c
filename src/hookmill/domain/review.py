"""The review of a pull request with comments on lines, from the annotations that a run wrote.

GitHub refuses a whole review if one comment is on a line that the diff does not show, so such comments are in the text
of the review instead. The author of the pull request has written the diff.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hookmill.domain.check_run import MESSAGE_BYTES_MAX, bytes_of, run_annotations
from hookmill.domain.errors import Invalid
from hookmill.domain.inert_text import closed, fitted, inert
from hookmill.domain.result_text import COMMENT_CHARACTERS_MAX, RunResult, marker
from hookmill.domain.run_outputs import ANNOTATIONS_FILE, OutputText

_HUNK: Final = re.compile(r"@@ -[0-9]{1,10}(?:,([0-9]{1,10}))? \+([0-9]{1,10})(?:,([0-9]{1,10}))? @@")
_ESCAPES: Final = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPED: Final = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}

_NOTE_CHARACTERS_MAX: Final = 100

Annotation = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ShownLines:
    """The lines of the new files that a diff shows, as the ranges of its hunks."""

    hunks_by_path: dict[str, list[range]] = field(default_factory=dict)

    def hunk(self, path: str, line: int) -> range | None:
        return next((hunk for hunk in self.hunks_by_path.get(path, ()) if line in hunk), None)


def shown_lines_of(diff: str) -> ShownLines:
    """The lines that a diff in Git's format shows. Of a diff that is cut, those before the cut."""
    hunks_by_path: dict[str, list[range]] = {}
    path, old_left, new_left, line = None, 0, 0, 0
    # `splitlines` would also split at characters inside of a line. The last line may be cut.
    for text in diff.split("\n")[:-1]:
        if old_left > 0 or new_left > 0:
            # Inside of a hunk, a line may look like a header.
            if text[:1] in ("+", "-", " ", ""):
                if text[:1] != "-":
                    new_left, line = new_left - 1, line + 1
                    _extend(hunks_by_path, path, line)
                if text[:1] != "+":
                    old_left -= 1
            continue
        if text.startswith("+++ "):
            path = _path(text[4:])
        elif (match := _HUNK.match(text)) is not None:
            old_left, new_left = int(match[1] or 1), int(match[3] or 1)
            line = int(match[2]) - 1
            if path is not None:
                hunks_by_path.setdefault(path, []).append(range(line + 1, line + 1))
        elif text.startswith("diff "):
            path = None
    return ShownLines(hunks_by_path)


def _extend(hunks_by_path: dict[str, list[range]], path: str | None, line: int) -> None:
    if path is not None:
        hunks = hunks_by_path[path]
        hunks[-1] = range(hunks[-1].start, line + 1)


def _path(text: str) -> str | None:
    """The path of the new file; None if the pull request removes it."""
    text = text.removesuffix("\r").removesuffix("\t")
    if text.startswith('"') and text.endswith('"'):
        content = _ESCAPES.sub(
            lambda match: bytes([int(match[1], 8) & 255]) if len(match[1]) == 3 else _ESCAPED.get(match[1], match[1]),
            text[1:-1].encode(),
        )
        text = content.decode("utf-8", "replace")
    return text[2:] if text.startswith("b/") else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewDraft:
    """What a run has to say about lines that no earlier review has said."""

    annotations: Sequence[Annotation]
    left_out: int
    """How many annotations are too many."""


def draft_of(result: RunResult, earlier: Sequence[str]) -> ReviewDraft:
    """The draft. `earlier`: the files with the annotations of earlier reviews. Raises `Invalid` for a bad file."""
    annotations, total = run_annotations(result.outputs)
    known = {_text_of(annotation) for content in earlier for annotation in _earlier_annotations(content)}
    new = [annotation for annotation in annotations if _text_of(annotation) not in known]
    return ReviewDraft(annotations=new, left_out=total - len(annotations))


def _earlier_annotations(content: str) -> Sequence[Annotation]:
    try:
        return run_annotations({ANNOTATIONS_FILE: OutputText(text=content)})[0]
    except Invalid:
        return ()


def _text_of(annotation: Annotation) -> tuple[str, str, str]:
    # A push may move the lines.
    return annotation["path"], annotation.get("title", ""), annotation["message"]


def review_body(
    result: RunResult, draft: ReviewDraft, lines: ShownLines, *, commit: str | None, has_ranges: bool
) -> dict[str, Any]:
    """The review. `has_ranges`: whether a comment can be on several lines, as at GitHub."""
    comments, others = [], []
    for annotation in draft.annotations:
        if lines.hunk(annotation["path"], annotation["end_line"]) is None:
            others.append(annotation)
        else:
            comments.append(_comment(annotation, lines, has_ranges=has_ranges))
    body = {"event": "COMMENT", "body": _text(result, draft, others, len(comments)), "comments": comments}
    return body | ({"commit_id": commit} if commit is not None and comments else {})


def _comment(annotation: Annotation, lines: ShownLines, *, has_ranges: bool) -> dict[str, Any]:
    path, start, end = annotation["path"], annotation["start_line"], annotation["end_line"]
    if not has_ranges:
        return {"path": path, "new_position": end, "body": _annotation_text(annotation)}
    comment = {"path": path, "line": end, "side": "RIGHT", "body": _annotation_text(annotation)}
    # GitHub refuses a range that is not in one hunk, or has one line.
    if start < end and start in (lines.hunk(path, end) or ()):
        comment |= {"start_line": start, "start_side": "RIGHT"}
    return comment


def _annotation_text(annotation: Annotation) -> str:
    """The text of an annotation, which is made inert as a whole: its parts could act together."""
    title = f"**{annotation['title']}**\n\n" if "title" in annotation else ""
    return fitted(f"{title}{annotation['message']}", MESSAGE_BYTES_MAX, inert, size=bytes_of)


def _text(result: RunResult, draft: ReviewDraft, others: Sequence[Annotation], count: int) -> str:
    text = marker(result.run, result.number)
    left_out = draft.left_out
    if count or not others:
        text += f"\n{count} comment{'s' if count != 1 else ''} on lines.\n"
    if others:
        text += "\nOn lines that the diff does not show:\n"
    for annotation in others:
        # The blank line keeps the text from becoming more of the paragraph.
        part = f"\n{_place(annotation)}\n\n{closed(_annotation_text(annotation))}"
        # A cut could turn code into text that acts.
        if len(text) + len(part) <= COMMENT_CHARACTERS_MAX - _NOTE_CHARACTERS_MAX:
            text += part
        else:
            left_out += 1
    if left_out:
        text += f"\n{left_out} more annotations of the run are left out."
    return text.rstrip()


def _place(annotation: Annotation) -> str:
    start, end = annotation["start_line"], annotation["end_line"]
    # No path can end the code.
    path = annotation["path"].replace("`", "'")
    return f"`{path}:{start if start == end else f'{start}-{end}'}`"
