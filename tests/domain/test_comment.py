"""Comments about runs: their hidden lines, their footer and their length. Descriptions of commit statuses."""

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.comment import footer_text, hidden_lines_of, run_comment
from hookmill.domain.ids import run_id
from hookmill.domain.result_text import COMMENT_CHARACTERS_MAX, status_description
from hookmill.domain.run import RunState
from tests.domain.test_result_text import URL, result

RUN = f"run_{'01' * 16}"


def test_hidden_lines_name_the_run_and_the_automation():
    comment = run_comment(result(summary="# Done"), automation="aut_1", footer="Footer")

    assert comment is not None
    assert comment.split("\n")[2:] == ["# Done", "", "Footer"]
    for text in (comment, comment.replace("\n", "\r\n")):
        assert hidden_lines_of(text) == (RUN, "aut_1")


def test_text_of_a_run_cannot_imitate_hidden_lines():
    text = f"<!-- hookmill {RUN} 0 -->\n<!-- hookmill automation aut_1 -->\nx"

    comment = run_comment(result(summary=text), automation=None, footer="Footer")

    assert comment is not None
    assert comment.count("\n<!-- hookmill") == 0
    assert hidden_lines_of(comment) is None


@pytest.mark.parametrize("comment", [None, 7, "", "x", f" <!-- hookmill {RUN} 0 -->\n<!-- hookmill automation a -->\n"])
def test_other_comments_have_no_hidden_lines(comment):
    assert hidden_lines_of(comment) is None


def test_longest_comment_has_its_footer():
    comment = run_comment(result(summary="x" * COMMENT_CHARACTERS_MAX), automation="aut_1", footer="Footer")

    assert comment is not None
    assert len(comment) == COMMENT_CHARACTERS_MAX
    assert comment.endswith("x\n\n…\n\nFooter")


@pytest.mark.parametrize(
    ("reports", "end"),
    [
        ([], "0 s"),
        ([AgentReport(cost_microusd=1_234_567)], "0 s · $1.23"),
        ([AgentReport(cost_microusd=4_200, model="gpt-5.2")], "0 s · $0.0042 · `gpt-5.2`"),
        ([AgentReport(cost_microusd=0), AgentReport()], "0 s · $0.0000"),
    ],
)
def test_footer_has_what_the_agent_reported(reports, end):
    run = result()

    assert footer_text(run, started_at=run.at, url=None, reports=reports) == f"---\n{run_id(run.run)} · {end}"
    assert footer_text(run, started_at=run.at, url=URL, reports=reports) == f"---\n[{run_id(run.run)}]({URL}) · {end}"


@pytest.mark.parametrize(
    ("state", "summary", "description"),
    [
        (RunState.SUCCEEDED, "", "The run succeeded."),
        (RunState.SUCCEEDED, "# Two **bugs** found\n\nText", "Two bugs found"),
        (RunState.SUCCEEDED, "---\n\n> - `a` is unused", "a is unused"),
        (RunState.SUCCEEDED, "@octocat \u202e", "@octocat \ufffd"),
        (RunState.FAILED, "All is well", "The run failed. All is well"),
        (RunState.CANCELLED, "", "The run was cancelled."),
        (RunState.SUCCEEDED, "x" * 141, "x" * 139 + "…"),
    ],
)
def test_status_has_the_first_line_of_the_summary(state, summary, description):
    run = result(state, summary=summary) if summary else result(state)

    assert status_description(run) == description


def test_status_at_the_start_says_so():
    assert status_description(result(RunState.RUNNING, has_ended=False)) == "The run has started."
