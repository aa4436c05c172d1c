"""The check run of GitHub about a run: its state, its text, and the annotations that the run wrote.

Texts and annotations are untrusted, like every text of a run. A check run must always be completed. So if one
annotation can't be used, all are left out, and the summary says why.
"""

import json
from typing import Any, Final

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import run_id
from hookmill.domain.inert_text import fitted, inert
from hookmill.domain.moment import iso
from hookmill.domain.result_text import RunResult, state_text
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import ANNOTATIONS_FILE, RunOutputs, summary_of

SUMMARY_BYTES_MAX: Final = 65_535
"""The longest summary that GitHub accepts. Its documentation says characters, and it counts bytes."""
ANNOTATIONS_MAX: Final = 50
"""How many annotations GitHub accepts in one request."""
LEVELS: Final = ("notice", "warning", "failure")
PATH_CHARACTERS_MAX: Final = 500
LINE_MAX: Final = 2**31 - 1
MESSAGE_BYTES_MAX: Final = 16_384
TITLE_BYTES_MAX: Final = 255
_REQUIRED: Final = frozenset({"path", "start_line", "annotation_level", "message"})
_KEYS: Final = _REQUIRED | {"end_line", "title"}

_CONCLUSIONS: Final = {
    RunState.SUCCEEDED: "success",
    RunState.CANCELLED: "cancelled",
    RunState.REPLACED: "cancelled",
    RunState.SKIPPED: "cancelled",
    RunState.SUPERSEDED: "cancelled",
}
"""Any other state is a failure. `neutral` and `skipped` are not used: with them, a required check would pass."""


def external_id(result: RunResult) -> str:
    """What identifies the check run of this result."""
    return f"{run_id(result.run)} {result.number}"


def check_run_body(
    result: RunResult, *, name: str, commit: str, started_at: int, details_url: str | None
) -> dict[str, Any]:
    """The check run: `in_progress`, or completed with a conclusion and the run's summary."""
    body: dict[str, Any] = {
        "name": name,
        "head_sha": commit,
        "external_id": external_id(result),
        "started_at": _seconds(started_at),
    }
    if details_url is not None:
        body["details_url"] = details_url
    if not result.has_ended:
        return body | {"status": "in_progress"}
    return body | {
        "status": "completed",
        "conclusion": _CONCLUSIONS.get(result.state, "failure"),
        "completed_at": _seconds(max(result.at, started_at)),
        "output": _output(result),
    }


def annotations_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    annotations: list[dict[str, Any]] = body.get("output", {}).get("annotations", [])
    return annotations


def without_annotations(body: dict[str, Any]) -> dict[str, Any]:
    """The same check run without annotations, because GitHub has refused it with them."""
    output = {key: value for key, value in body["output"].items() if key != "annotations"}
    note = f"GitHub refused the annotations of outputs/{ANNOTATIONS_FILE}."
    # What is inert stays as it is when it is made inert again.
    return body | {"output": output | {"summary": _with_note(output["summary"], note)}}


def _output(result: RunResult) -> dict[str, Any]:
    summary = summary_of(result.outputs)
    text, is_cut = (summary.text, summary.is_cut) if summary is not None else ("The run wrote no summary.", False)
    annotations: list[dict[str, Any]] = []
    note = None
    try:
        annotations, total = run_annotations(result.outputs)
        if total > len(annotations):
            note = f"These are {len(annotations)} of {total} annotations."
        annotations = [_inert_annotation(annotation) for annotation in annotations]
    except Invalid as error:
        note = str(error)
    output = {"title": state_text(result.state), "summary": _with_note(text, note, is_cut=is_cut)}
    return output | ({"annotations": annotations} if annotations else {})


def _with_note(text: str, note: str | None, *, is_cut: bool = False) -> str:
    following = f"\n\n{note}" if note is not None else ""
    return fitted(text, SUMMARY_BYTES_MAX, inert, is_cut=is_cut, following=following, size=bytes_of)


def run_annotations(outputs: RunOutputs) -> tuple[list[dict[str, Any]], int]:
    """The annotations to send, and how many the run wrote. Raises `Invalid` if one can't be used.

    Their texts are not inert yet: inert texts that are put together could act.
    """
    file = outputs.get(ANNOTATIONS_FILE)
    if file is None:
        return [], 0
    try:
        source = json.loads(file.text) if not file.is_cut else None
    except (ValueError, RecursionError):
        source = None
    if not isinstance(source, list):
        raise Invalid(
            f"The run's file outputs/{ANNOTATIONS_FILE} was not used: it must be a JSON array of at most 65,536 bytes."
        )
    return [_annotation(each, number) for number, each in enumerate(source[:ANNOTATIONS_MAX])], len(source)


def _annotation(source: Any, number: int) -> dict[str, Any]:
    if not isinstance(source, dict) or not _REQUIRED <= set(source) <= _KEYS:
        raise _unusable(number, f"must be an object with the keys {', '.join(sorted(_REQUIRED))}")
    path, message, title = source["path"], source["message"], source.get("title")
    if not isinstance(path, str) or not _is_path(path):
        raise _unusable(number, "must have the path of a file in the repository")
    start, end = source["start_line"], source.get("end_line", source["start_line"])
    if not _is_line(start) or not _is_line(end) or end < start:
        raise _unusable(number, "must have the numbers of its first and its last line")
    if source["annotation_level"] not in LEVELS:
        raise _unusable(number, f"must have an annotation_level of {', '.join(LEVELS)}")
    if not isinstance(message, str) or not message.strip():
        raise _unusable(number, "must have a message")
    if title is not None and not isinstance(title, str):
        raise _unusable(number, "must have a text as its title")
    annotation = {
        "path": path,
        "start_line": start,
        "end_line": end,
        "annotation_level": source["annotation_level"],
        "message": message,
    }
    # A title is one line, and no code of its own.
    title = " ".join((title or "").split())
    return annotation | ({"title": title} if title else {})


def _inert_annotation(annotation: dict[str, Any]) -> dict[str, Any]:
    texts = {"message": fitted(annotation["message"], MESSAGE_BYTES_MAX, inert, size=bytes_of)}
    if "title" in annotation:
        texts["title"] = fitted(annotation["title"], TITLE_BYTES_MAX, inert, cut="…", size=bytes_of)
    return annotation | texts


def _is_path(path: str) -> bool:
    segments = path.split("/")
    return len(path) <= PATH_CHARACTERS_MAX and path.isprintable() and not {"", ".", ".."} & set(segments)


def _is_line(number: Any) -> bool:
    return type(number) is int and 1 <= number <= LINE_MAX


def _unusable(number: int, rule: str) -> Invalid:
    return Invalid(f"The run's file outputs/{ANNOTATIONS_FILE} was not used: its element {number} {rule}.")


def bytes_of(text: str) -> int:
    return len(text.encode())


def _seconds(at_us: int) -> str:
    return iso(at_us)[:19] + "Z"
