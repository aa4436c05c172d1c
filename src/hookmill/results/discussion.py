"""Sends comments and reviews to a GitHub or a Gitea.

The runs of an automation for one issue or pull request share a comment. The outbox has the comment's number. If it has
none, because a worker died or the rows were removed, the comment is searched by its hidden lines. Only comments that
the account of the credential has written count.
"""

from typing import Any, Final

from hookmill.domain.comment import footer_text, hidden_lines_of, run_comment
from hookmill.domain.ids import run_id
from hookmill.domain.moment import iso
from hookmill.domain.result_text import marker
from hookmill.domain.review import ShownLines, draft_of, review_body, shown_lines_of
from hookmill.results.api import page_of
from hookmill.results.repository_access import RepositoryAccess, number_of
from hookmill.results.search import ARRIVED, details_url, find
from hookmill.store.results import ClaimedResult, NothingToSend, NotSent, Outcome, Sent

_IS_GONE: Final = frozenset({404, 410})
_IS_INVALID: Final = 422
_DIFF: Final = "application/vnd.github.diff"


def send_comment(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    is_updated = claimed.target.is_updated
    footer = footer_text(
        claimed.result,
        started_at=claimed.run_started_at,
        url=details_url(claimed, access),
        reports=claimed.reports,
    )
    body = run_comment(claimed.result, automation=claimed.automation_id if is_updated else None, footer=footer)
    if body is None:
        return NothingToSend(reason="The run wrote no text for a comment.")
    if is_updated:
        comment = _comment_to_update(claimed, access)
        if isinstance(comment, NotSent):
            return comment
        if comment is not None:
            outcome = _update(claimed, access, comment, body)
            if not isinstance(outcome, NotSent) or outcome.status not in _IS_GONE:
                return outcome
    elif claimed.may_have_arrived:
        found = _find_comment(claimed, access)
        if found is not None:
            return found if isinstance(found, NotSent) else _arrived(found)
    return _sent(*access.call("POST", f"/issues/{claimed.target.number}/comments", {"body": body}))


def _comment_to_update(claimed: ClaimedResult, access: RepositoryAccess) -> dict[str, Any] | NotSent | None:
    if claimed.remote_id is not None:
        outcome, comment = access.call("GET", f"/issues/comments/{claimed.remote_id}")
        if isinstance(outcome, NotSent) and outcome.status not in _IS_GONE:
            return outcome
        lines = hidden_lines_of(comment.get("body")) if isinstance(comment, dict) else None
        if lines is not None and lines.automation == claimed.automation_id:
            is_author = access.is_author(comment)
            if isinstance(is_author, NotSent):
                return is_author
            # This process or another one has created the comment, so an unknown account is no obstacle.
            if is_author is not False:
                return {**comment, "id": claimed.remote_id}
    return _find_comment(claimed, access)


def _update(claimed: ClaimedResult, access: RepositoryAccess, comment: dict[str, Any], body: str) -> Outcome:
    lines = hidden_lines_of(comment["body"])
    own_run = run_id(claimed.result.run)
    if lines is not None and lines.run > own_run:
        return NothingToSend(reason="The comment is already that of a newer run.")
    if lines is not None and lines.run == own_run:
        return _arrived(comment)
    return _sent(*access.call("PATCH", f"/issues/comments/{number_of(comment)}", {"body": body}))


def _find_comment(claimed: ClaimedResult, access: RepositoryAccess) -> dict[str, Any] | NotSent | None:
    """The comment that an earlier attempt has created, or an earlier run if the comment is updated."""
    first_line = marker(claimed.result.run, claimed.result.number)

    def is_wanted(comment: dict[str, Any]) -> bool | NotSent:
        lines = hidden_lines_of(comment.get("body")) if claimed.target.is_updated else None
        is_of_automation = lines is not None and lines.automation == claimed.automation_id
        return _is_ours(comment, first_line, claimed, access, is_known=is_of_automation)

    path = f"/issues/{claimed.target.number}/comments"
    since = f"since={iso(claimed.run_started_at)[:19]}Z"
    if not claimed.target.is_updated:
        return find(access, f"{path}?{since}", is_wanted)
    found = find(access, path, is_wanted)
    # Others may have written more than can be read.
    is_unreadable = isinstance(found, NotSent) and found.status == 200
    return find(access, f"{path}?{since}", is_wanted) if is_unreadable else found


def _is_ours(
    source: dict[str, Any], first_line: str, claimed: ClaimedResult, access: RepositoryAccess, *, is_known: bool = False
) -> bool | NotSent:
    """Whether this comment or review is that of the message, and not a copy that somebody else has written."""
    is_of_run = str(source.get("body")).startswith(first_line)
    if number_of(source) is None or not (is_of_run or is_known):
        return False
    is_author = access.is_author(source)
    return is_of_run and claimed.may_have_arrived if is_author is None else is_author


def send_review(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    draft = draft_of(claimed.result, claimed.earlier_annotations)
    if not draft.annotations:
        return NothingToSend(reason="The run wrote no annotations that an earlier review does not have.")
    path = f"/pulls/{claimed.target.number}/reviews"
    if claimed.may_have_arrived:
        first_line = marker(claimed.result.run, claimed.result.number)
        found = find(access, path, lambda review: _is_ours(review, first_line, claimed, access))
        if found is not None:
            return found if isinstance(found, NotSent) else _arrived(found)
    lines = _shown_lines(claimed, access)
    if isinstance(lines, NotSent):
        return lines
    commit, has_ranges = claimed.target.commit, access.destination.kind == "github"
    body = review_body(claimed.result, draft, lines, commit=commit, has_ranges=has_ranges)
    outcome = _sent(*access.call("POST", path, body))
    if isinstance(outcome, NotSent) and outcome.status == _IS_INVALID and outcome.is_final and body["comments"]:
        # The diff has changed meanwhile. GitHub accepts a review without comments on lines.
        body = review_body(claimed.result, draft, ShownLines(), commit=None, has_ranges=has_ranges)
        outcome = _sent(*access.call("POST", path, body))
    return outcome


def _shown_lines(claimed: ClaimedResult, access: RepositoryAccess) -> ShownLines | NotSent:
    suffix = "" if access.destination.kind == "github" else ".diff"
    outcome, diff = access.text(f"/pulls/{claimed.target.number}{suffix}", _DIFF)
    if isinstance(outcome, NotSent):
        # GitHub shows no diff that is too large.
        return ShownLines() if outcome.status in (406, _IS_INVALID) else outcome
    return shown_lines_of(diff)


def _arrived(found: dict[str, Any]) -> Sent:
    return Sent(status=200, url=page_of(found), remote_id=number_of(found), note=ARRIVED)


def _sent(outcome: Sent | NotSent, answer: Any) -> Sent | NotSent:
    if isinstance(outcome, NotSent):
        return outcome
    return Sent(status=outcome.status, url=page_of(answer), remote_id=number_of(answer))
