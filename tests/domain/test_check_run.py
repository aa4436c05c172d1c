"""Check runs about runs: their conclusions, their text, and the annotations that a run wrote."""

import json
from typing import Any

import pytest

from hookmill.domain.check_run import (
    ANNOTATIONS_MAX,
    SUMMARY_BYTES_MAX,
    annotations_of,
    check_run_body,
    external_id,
    without_annotations,
)
from hookmill.domain.ids import RunKey
from hookmill.domain.result_text import RunResult
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import OutputText
from tests.domain.test_result_text import result

STARTED_AT = 1_764_000_000_000_000
ANNOTATION = {"path": "src/a.py", "start_line": 3, "annotation_level": "warning", "message": "Unused."}


def body_of(of: RunResult, details_url: str | None = "https://hooks.example.com/r") -> dict[str, Any]:
    return check_run_body(of, name="ci", commit="a" * 40, started_at=STARTED_AT, details_url=details_url)


def with_annotations(text: str, *, is_cut: bool = False, summary: str = "# Done") -> dict[str, Any]:
    outputs = {"summary.md": OutputText(text=summary), "annotations.json": OutputText(text=text, is_cut=is_cut)}
    run = result()
    return body_of(
        RunResult(**{name: getattr(run, name) for name in RunResult.__slots__ if name != "outputs"}, outputs=outputs)
    )


def test_check_run_at_the_start_is_in_progress():
    assert body_of(result(RunState.RUNNING, has_ended=False)) == {
        "name": "ci",
        "head_sha": "a" * 40,
        "external_id": f"run_{'01' * 16} 0",
        "details_url": "https://hooks.example.com/r",
        "started_at": "2025-11-24T16:00:00Z",
        "status": "in_progress",
    }
    assert "details_url" not in body_of(result(has_ended=False), None)


@pytest.mark.parametrize(
    ("state", "conclusion"),
    [
        (RunState.SUCCEEDED, "success"),
        (RunState.FAILED, "failure"),
        (RunState.INTERRUPTED, "failure"),
        (RunState.CANCELLED, "cancelled"),
        (RunState.REPLACED, "cancelled"),
        (RunState.SKIPPED, "cancelled"),
        (RunState.SUPERSEDED, "cancelled"),
    ],
)
def test_conclusion_of_every_state(state, conclusion):
    body = body_of(result(state))

    assert (body["status"], body["conclusion"]) == ("completed", conclusion)
    assert body["output"]["summary"] == "The run wrote no summary."


def test_check_run_never_ends_before_it_starts():
    body = check_run_body(result(), name="ci", commit="", started_at=STARTED_AT + 5_000_000, details_url=None)

    assert body["started_at"] == body["completed_at"] == "2025-11-24T16:00:05Z"


def test_each_result_has_an_external_id_of_its_own():
    runs = {external_id(result()) for _ in range(2)}

    assert len(runs) == 1
    assert RunKey(bytes(16)).hex() not in "".join(runs)


def test_summary_is_inert():
    assert body_of(result(summary="@octocat ![x](https://evil.example/x.png)"))["output"]["summary"] == (
        "@`octocat` \\![x](https://evil.example/x.png)"
    )


@pytest.mark.parametrize("character", ["x", "@", "é", "\U0001f600"])
def test_longest_summary_fits_in_the_bytes_that_github_accepts(character):
    summary = body_of(result(summary=character * 65_536))["output"]["summary"]

    assert SUMMARY_BYTES_MAX - 6 <= len(summary.encode()) <= SUMMARY_BYTES_MAX
    assert summary.endswith("…")


def test_annotations_of_the_run_are_sent_and_inert():
    other = {**ANNOTATION, "end_line": 9, "title": "t" * 300, "message": "See #1 <b>\u0007"}
    first, second = annotations_of(with_annotations(json.dumps([ANNOTATION, other])))

    assert first == {**ANNOTATION, "end_line": 3}
    assert (second["end_line"], second["message"]) == (9, "See #`1` \\<b>\ufffd")
    assert len(second["title"].encode()) == 255


def test_only_so_many_annotations_are_sent_as_github_accepts():
    body = with_annotations(json.dumps([ANNOTATION] * 60))

    assert len(annotations_of(body)) == ANNOTATIONS_MAX
    assert body["output"]["summary"] == "# Done\n\nThese are 50 of 60 annotations."


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("[", "must be a JSON array"),
        ("{}", "must be a JSON array"),
        ("[" * 60_000, "must be a JSON array"),
        ("[1]", "element 0 must be an object"),
        ([{"path": "a"}], "element 0 must be an object with the keys"),
        ([ANNOTATION, {**ANNOTATION, "raw_details": "x"}], "element 1 must be an object with the keys"),
        ([{**ANNOTATION, "path": "../a"}], "path"),
        ([{**ANNOTATION, "path": "/etc/passwd"}], "path"),
        ([{**ANNOTATION, "path": "a\nb"}], "path"),
        ([{**ANNOTATION, "path": "\ud800"}], "path"),
        ([{**ANNOTATION, "path": "a" * 501}], "path"),
        ([{**ANNOTATION, "path": 7}], "path"),
        ([{**ANNOTATION, "start_line": 0}], "line"),
        ([{**ANNOTATION, "start_line": True}], "line"),
        ([{**ANNOTATION, "start_line": 1.5}], "line"),
        ([{**ANNOTATION, "start_line": 2**31}], "line"),
        ([{**ANNOTATION, "end_line": 2}], "line"),
        ([{**ANNOTATION, "annotation_level": "error"}], "annotation_level"),
        ([{**ANNOTATION, "annotation_level": []}], "annotation_level"),
        ([{**ANNOTATION, "message": " "}], "message"),
        ([{**ANNOTATION, "message": None}], "message"),
        ([{**ANNOTATION, "title": 1}], "title"),
    ],
)
def test_unusable_annotations_are_left_out_and_the_check_run_is_completed(source, problem):
    body = with_annotations(source if isinstance(source, str) else json.dumps(source))

    assert annotations_of(body) == []
    assert (body["status"], body["conclusion"]) == ("completed", "success")
    start, _, note = body["output"]["summary"].partition("\n\n")
    assert start == "# Done"
    assert note.startswith("The run's file outputs/annotations.json was not used:")
    assert problem in note


def test_annotations_that_were_cut_are_left_out():
    assert annotations_of(with_annotations("[]", is_cut=True)) == []


def test_note_about_annotations_is_outside_of_open_code():
    body = without_annotations(with_annotations(json.dumps([ANNOTATION] * 60), summary="> ```\n> @a"))

    assert body["output"]["summary"] == (
        "> ```\n> @a\n> ```\n\nThese are 50 of 60 annotations."
        "\n\nGitHub refused the annotations of outputs/annotations.json."
    )


def test_note_about_annotations_fits_behind_the_longest_summary():
    body = without_annotations(with_annotations(json.dumps([ANNOTATION]), summary="x" * 65_536))

    assert annotations_of(body) == []
    assert len(body["output"]["summary"].encode()) <= SUMMARY_BYTES_MAX
    assert body["output"]["summary"].endswith(
        "x\n\n\u2026\n\nGitHub refused the annotations of outputs/annotations.json."
    )
