"""Texts about runs in comments, chats and webhooks: what they say, and that nothing in them acts."""

import json

import pytest

from hookmill.domain.errors import Invalid
from hookmill.domain.ids import RunKey
from hookmill.domain.result_text import (
    COMMENT_CHARACTERS_MAX,
    SLACK_CHARACTERS_MAX,
    RunResult,
    comment_body,
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


def test_comment_has_the_marker_and_the_summary():
    assert comment_body(result(summary="# Done\n@octocat")) == f"{MARKER}# Done\n@`octocat`"


def test_comment_of_the_run_comes_before_its_summary():
    comment = '{"body":\r\n "short\\u0007 @octocat \\ud800"}'

    assert comment_body(result(summary="long", comment=comment)) == f"{MARKER}short\ufffd @`octocat` \ufffd"


def test_run_without_text_has_no_comment():
    assert comment_body(result()) is None
    assert comment_body(result(comment='{"body": " "}')) is None


def test_last_message_of_an_agent_is_delivered_like_a_summary():
    run_result = result(message="# Done\n@octocat")

    assert comment_body(run_result) == f"{MARKER}# Done\n@`octocat`"
    assert "# Done\n@`octocat`" in slack_body(run_result)["text"]
    data = json.loads(webhook_body(run_result))["data"]
    assert (data["summary"], data["summary_source"]) == ("# Done\n@octocat", "last_message")


def test_blank_comment_delivers_no_last_message():
    assert comment_body(result(message="Nothing to say.", comment='{"body": ""}')) is None


@pytest.mark.parametrize(
    "comment", ["", "[", "[]", "{}", '{"body": 1}', '{"body": "x", "repository": "evil/shop"}', "[" * 60_000]
)
def test_comment_that_does_not_fit_the_schema_is_refused(comment):
    with pytest.raises(Invalid, match=r"outputs/comment\.json must be a JSON object with the text body"):
        comment_body(result(comment=comment))


@pytest.mark.parametrize("text", ["@" * 65_536, "@a " * 21_845, "```\n" + "@a\n" * 21_843])
def test_longest_comment_fits_github(text):
    body = comment_body(result(summary=text))

    assert body is not None
    assert COMMENT_CHARACTERS_MAX - 20 < len(body) <= COMMENT_CHARACTERS_MAX
    assert body.endswith("\n\n\u2026")


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
def test_status_of_every_state(state, has_ended, status):
    body = status_body(result(state, has_ended=has_ended), "ci")

    assert (body["state"], body["context"], body["target_url"]) == (status, "ci", URL)


def test_slack_message_has_no_mention_and_no_markup():
    body = slack_body(result(summary="<!channel> <@U024BE7LH> <https://evil.example|Sign in> @here\n`a\u202e` \u202e"))

    assert body["text"] == (
        "review: The run succeeded.\n\n\\&lt;!channel&gt; &lt;@`U024BE7LH`&gt; &lt;https://evil.example|Sign in&gt; "
        f"@`here`\n\n`a\u202e` \ufffd\n\n{URL}"
    )
    assert (body["mrkdwn"], body["link_names"]) == (False, False)


def test_longest_slack_message_ends_with_its_code_closed():
    text = slack_body(result(summary="```\n" + "@\n" * 2_000))["text"]

    assert text.endswith(f"@\n```\n\n\u2026\n\n{URL}")
    assert 2_990 < len(text.removesuffix(f"\n\n{URL}").partition("\n\n")[2]) <= SLACK_CHARACTERS_MAX


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
