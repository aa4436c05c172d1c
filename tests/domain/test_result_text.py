"""Texts about runs in comments, chats and webhooks: what they say, and that nothing in them acts."""

import json
import re

import pytest
from markdown_it import MarkdownIt

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey
from hookmill.domain.result_text import (
    COMMENT_CHARACTERS_MAX,
    RunResult,
    comment_body,
    inert,
    slack_body,
    status_body,
    webhook_body,
)
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import LAST_MESSAGE, OutputText

URL = "https://hooks.example.com/f/default/runs/run_1"
MARKER = f"<!-- hookmill run_{'01' * 16} 0 -->\n"


def result(state: RunState = RunState.SUCCEEDED, *, has_ended: bool = True, **texts: str) -> RunResult:
    files = {
        "summary": "summary.md",
        "comment": "comment.json",
        "message": LAST_MESSAGE,
        "annotations": "annotations.json",
    }
    return RunResult(
        run=RunKey(bytes([1]) * 16),
        number=0,
        has_ended=has_ended,
        state=state,
        attempt=1,
        automation="review",
        factory="default",
        delivery_id="dlv_1",
        at=1_764_000_000_000_000,
        exit_status=0,
        outputs={files[name]: OutputText(text=text) for name, text in texts.items()},
        url=URL,
    )


ACTING = [
    "@octocat",
    "@acme/security",
    "\\@octocat",
    "ops@example.com",
    "&#64;octocat",
    "&commat;octocat",
    "https://evil.example",
    "https:\\//evil.example",
    "www.evil.example",
    "[x](https://evil.example)",
    "[x](//evil.example)",
    "[x](/login)",
    "[x]: /login",
    "[x][y]",
    "![x](https://evil.example/x.png)",
    "<https://evil.example>",
    "<a href='//evil.example'>x</a>",
    "<img src=x>",
    "<!-- hookmill run_1 0 -->",
    "#1",
    "acme/shop#1",
    "GH-1",
    "gh-1",
    "gh\\-1",
    "!1",
    "acme/shop!1",
    "/merge",
    "  /deploy now",
    "mailto:x",
]
PATTERNS = [
    r"@\w", r"\]\(", r"\]\[", r"\]:", r"<[a-z/!?]", r"&(#|\w+;)", r"://", r":\\/", r"www\.", r"[#!]\d", r"gh\\?-\d",
    r"(?m)^[ \t]*/[a-z]", r"mailto:",
]  # fmt: skip
"""What GitHub, Gitea and Slack would act on."""


@pytest.mark.parametrize("text", ACTING)
def test_text_of_a_run_cannot_act(text: str):
    inert_text = inert(text)

    assert inert_text != text
    assert inert_text.replace("\u200b", "") == text
    assert [pattern for pattern in PATTERNS if re.search(pattern, inert_text, re.IGNORECASE)] == []
    html = MarkdownIt("gfm-like", {"linkify": False}).render(f"before {inert_text} after\n\n{inert_text}")
    assert re.search(r"<(a|img|script)\b", html) is None


@pytest.mark.parametrize("text", ["# Done", "- two `a < b` bugs & more", "**3 of 4**, a/b, 5:30", "1 > 0 [x]"])
def test_harmless_markdown_is_unchanged(text: str):
    assert inert(text) == text


def test_comment_has_the_marker_and_the_summary():
    assert comment_body(result(summary="# Done\n@octocat")) == f"{MARKER}# Done\n@\u200boctocat"


def test_comment_of_the_run_comes_before_its_summary():
    assert comment_body(result(summary="long", comment='{"body": "short\\u0007"}')) == f"{MARKER}short\ufffd"


def test_run_without_text_has_no_comment():
    assert comment_body(result()) is None
    assert comment_body(result(comment='{"body": " "}')) is None


def test_last_message_of_an_agent_is_delivered_like_a_summary():
    run_result = result(message="# Done\n@octocat")

    assert comment_body(run_result) == f"{MARKER}# Done\n@\u200boctocat"
    assert "# Done\n@\u200boctocat" in slack_body(run_result)["text"]
    data = json.loads(webhook_body(run_result))["data"]
    assert (data["summary"], data["summary_source"]) == ("# Done\n@octocat", "last_message")


def test_blank_comment_delivers_no_last_message():
    assert comment_body(result(message="Nothing to say.", comment='{"body": ""}')) is None


@pytest.mark.parametrize(
    "comment", ["", "[", "[]", "{}", '{"body": 1}', '{"body": "x", "repository": "evil/shop"}', "[" * 60_000]
)
def test_comment_that_does_not_fit_the_schema_is_refused(comment: str):
    with pytest.raises(Invalid, match=r"outputs/comment\.json must be a JSON object with the text body"):
        comment_body(result(comment=comment))


def test_longest_comment_fits_github():
    body = comment_body(result(summary="@" * 65_536))

    assert body is not None
    assert len(body) == COMMENT_CHARACTERS_MAX
    assert body.endswith("\n\n…")


@pytest.mark.parametrize(
    ("state", "has_ended", "status"),
    [
        (RunState.RUNNING, False, "pending"),
        (RunState.SUCCEEDED, False, "pending"),
        (RunState.SUCCEEDED, True, "success"),
        (RunState.FAILED, True, "failure"),
        (RunState.CANCELLED, True, "error"),
        (RunState.INTERRUPTED, True, "error"),
        (RunState.REPLACED, True, "error"),
        (RunState.SKIPPED, True, "error"),
        (RunState.SUPERSEDED, True, "error"),
    ],
)
def test_status_of_every_state(state: RunState, has_ended: bool, status: str):
    body = status_body(result(state, has_ended=has_ended, summary="@octocat"), "ci")

    assert (body["state"], body["context"], body["target_url"]) == (status, "ci", URL)
    assert "octocat" not in str(body)


def test_slack_message_has_no_mention_and_no_markup():
    body = slack_body(result(summary="<!channel> <@U024BE7LH> <https://evil.example|Sign in> @here"))

    assert body["text"] == (
        "review: The run succeeded.\n\n&lt;\u200b!channel&gt; &lt;@\u200bU024BE7LH&gt; "
        f"&lt;\u200bhttps:\u200b//evil.example|Sign in&gt; @\u200bhere\n\n{URL}"
    )
    assert (body["mrkdwn"], body["link_names"]) == (False, False)


def test_webhook_has_the_run_and_its_summary():
    message = json.loads(webhook_body(result(summary="# Done")))

    assert message["type"] == "run.succeeded"
    assert message["timestamp"] == "2025-11-24T16:00:00.000000Z"
    assert message["data"] == {
        "run_id": f"run_{'01' * 16}", "state": "succeeded", "attempt": 1, "automation": "review",
        "factory": "default", "delivery_id": "dlv_1", "exit_status": 0, "summary": "# Done",
        "summary_is_cut": False, "summary_source": "file", "url": URL,
    }  # fmt: skip


def test_webhook_about_the_start_says_that_the_run_is_running():
    message = json.loads(webhook_body(result(RunState.FAILED, has_ended=False, summary="# Done")))

    assert (message["type"], message["data"]["state"], message["data"]["summary"]) == ("run.started", "running", None)
