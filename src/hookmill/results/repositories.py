"""Sends comments, commit statuses and check runs to a GitHub or a Gitea."""

from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, urlsplit

from hookmill.domain.check_run import annotations_of, check_run_body, external_id, without_annotations
from hookmill.domain.moment import iso
from hookmill.domain.result_text import comment_body, marker, status_body
from hookmill.domain.results import ResultKind
from hookmill.results.api import page_of
from hookmill.results.repository_access import RepositoryAccess
from hookmill.store.results import ClaimedResult, NothingToSend, NotSent, Outcome, Sent

COMMENTS_PER_PAGE: Final = 50
CHECK_RUNS_PER_PAGE: Final = 100
PAGES_MAX: Final = 5
"""How many pages are searched for what an earlier attempt may have created."""
_ARRIVED: Final = "An earlier attempt had arrived."


def send_to_repository(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    match claimed.kind:
        case ResultKind.GITHUB_STATUS:
            return _send_status(claimed, access)
        case ResultKind.GITHUB_CHECK:
            return _send_check_run(claimed, access)
        case ResultKind.GITHUB_COMMENT:
            return _send_comment(claimed, access)
        case _:
            raise AssertionError(f"results of the kind {claimed.kind} are for no repository")


def _details_url(claimed: ClaimedResult, access: RepositoryAccess) -> str | None:
    # GitHub refuses a URL of a host that only this machine can reach.
    is_usable = urlsplit(claimed.result.url).scheme == "https" or access.destination.kind != "github"
    return claimed.result.url if is_usable else None


def _send_status(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    target = claimed.target
    body = status_body(claimed.result, target.context or "") | {"target_url": _details_url(claimed, access)}
    outcome = access.call("POST", f"/statuses/{target.commit}", body)[0]
    if isinstance(outcome, NotSent) and outcome.status == 404 and access.destination.kind == "gitea":
        # For some seconds after a push, Gitea does not know the commit.
        return replace(outcome, is_final=False)
    return outcome


def _send_comment(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    body = comment_body(claimed.result)
    if body is None:
        return NothingToSend(reason="The run wrote no text for a comment.")
    path = f"/issues/{claimed.target.number}/comments"
    if claimed.may_have_arrived:
        existing = _existing_comment(claimed, access, path)
        if existing is not None:
            return existing
    outcome, answer = access.call("POST", path, {"body": body})
    return Sent(status=outcome.status, url=page_of(answer)) if isinstance(outcome, Sent) else outcome


def _existing_comment(claimed: ClaimedResult, access: RepositoryAccess, path: str) -> Outcome | None:
    """The comment that an earlier attempt has created, or why it can't be searched. None if there is none."""
    first_line = marker(claimed.result.run, claimed.result.number)
    since = iso(claimed.run_started_at)[:19] + "Z"
    for page in range(1, PAGES_MAX + 1):
        query = f"since={since}&per_page={COMMENTS_PER_PAGE}&limit={COMMENTS_PER_PAGE}&page={page}"
        outcome, answer = access.call("GET", f"{path}?{query}")
        if not isinstance(outcome, Sent):
            return outcome
        if not isinstance(answer, list):
            return _unreadable(outcome, "comments")
        for comment in answer:
            if isinstance(comment, dict) and str(comment.get("body")).startswith(first_line):
                return Sent(status=outcome.status, url=page_of(comment), note=_ARRIVED)
        if len(answer) < COMMENTS_PER_PAGE:
            return None
    return None


def _send_check_run(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    """Create the check run when the run starts, and complete it when the run has ended.

    If GitHub has no check run when the run has ended, or has it no longer, a completed one is created.
    """
    number = claimed.check_run
    # `may_have_arrived` is about this message only. The message about the start may also have created a check run.
    if number is None and claimed.may_have_check_run:
        existing = _existing_check_run(claimed, access)
        if isinstance(existing, NotSent) or (existing is not None and not claimed.result.has_ended):
            return existing
        number = existing.check_run if existing is not None else None
    body = check_run_body(
        claimed.result,
        name=claimed.target.context or "",
        commit=claimed.target.commit or "",
        started_at=claimed.run_started_at,
        details_url=_details_url(claimed, access),
    )
    outcome = _write_check_run(access, body, number)
    if isinstance(outcome, NotSent) and outcome.status == 404 and number is not None:
        number = None
        if claimed.check_run is not None and claimed.may_have_arrived:
            # An earlier attempt may have created another one.
            existing = _existing_check_run(claimed, access)
            if isinstance(existing, NotSent):
                return existing
            number = existing.check_run if existing is not None else None
        outcome = _write_check_run(access, body, number)
    if isinstance(outcome, NotSent) and outcome.status == 422 and annotations_of(body):
        # A check run must be completed, also if GitHub refuses an annotation.
        return _write_check_run(access, without_annotations(body), number)
    return outcome


def _write_check_run(access: RepositoryAccess, body: dict[str, Any], number: int | None) -> Outcome:
    if number is None:
        outcome, answer = access.call("POST", "/check-runs", body)
    else:
        changes = {name: value for name, value in body.items() if name != "head_sha"}
        outcome, answer = access.call("PATCH", f"/check-runs/{number}", changes)
    if isinstance(outcome, NotSent):
        return outcome
    return Sent(status=outcome.status, url=page_of(answer), check_run=_check_run_number(answer))


def _existing_check_run(claimed: ClaimedResult, access: RepositoryAccess) -> Sent | NotSent | None:
    """The check run that an earlier attempt has created, or why it can't be searched. None if there is none."""
    expected = external_id(claimed.result)
    path = f"/commits/{claimed.target.commit}/check-runs?check_name={quote(claimed.target.context or '', safe='')}"
    for page in range(1, PAGES_MAX + 1):
        outcome, answer = access.call("GET", f"{path}&filter=all&per_page={CHECK_RUNS_PER_PAGE}&page={page}")
        if not isinstance(outcome, Sent):
            return outcome
        check_runs = answer.get("check_runs") if isinstance(answer, dict) else None
        if not isinstance(check_runs, list):
            return _unreadable(outcome, "check runs")
        for check_run in check_runs:
            if _is_ours(check_run, expected, access.app_number):
                return Sent(
                    status=outcome.status,
                    url=page_of(check_run),
                    check_run=_check_run_number(check_run),
                    note=_ARRIVED,
                )
        if len(check_runs) < CHECK_RUNS_PER_PAGE:
            return None
    return None


def _unreadable(outcome: Sent, noun: str) -> NotSent:
    """If an answer was cut on its way, what an earlier attempt has created may be in its missing part."""
    return NotSent(problem=f"The answer with the {noun} could not be read.", status=outcome.status)


def _is_ours(check_run: Any, expected: str, app_number: int | None) -> bool:
    """Whether this is the check run of the message. Other apps may have copied its `external_id`."""
    if not isinstance(check_run, dict) or check_run.get("external_id") != expected:
        return False
    app = check_run.get("app")
    return isinstance(app, dict) and app.get("id") == app_number and _check_run_number(check_run) is not None


def _check_run_number(answer: Any) -> int | None:
    number = answer.get("id") if isinstance(answer, dict) else None
    return number if type(number) is int and 0 < number < 2**63 else None
