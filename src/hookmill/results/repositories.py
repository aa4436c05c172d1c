"""Sends commit statuses and check runs to a GitHub or a Gitea. `discussion` sends comments and reviews."""

from dataclasses import replace
from typing import Any
from urllib.parse import quote

from hookmill.domain.check_run import annotations_of, check_run_body, external_id, without_annotations
from hookmill.domain.result_text import status_body
from hookmill.domain.results import ResultKind
from hookmill.results.api import page_of
from hookmill.results.discussion import send_comment, send_review
from hookmill.results.repository_access import RepositoryAccess, number_of
from hookmill.results.search import ARRIVED, details_url, find
from hookmill.store.results import ClaimedResult, NotSent, Outcome, Sent


def send_to_repository(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    match claimed.kind:
        case ResultKind.GITHUB_STATUS:
            return _send_status(claimed, access)
        case ResultKind.GITHUB_CHECK:
            return _send_check_run(claimed, access)
        case ResultKind.GITHUB_COMMENT:
            return send_comment(claimed, access)
        case ResultKind.GITHUB_REVIEW:
            return send_review(claimed, access)
        case _:
            raise AssertionError(f"results of the kind {claimed.kind} are for no repository")


def _send_status(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    target = claimed.target
    body = status_body(claimed.result, target.context or "") | {
        "target_url": details_url(claimed, access),
    }
    outcome = access.call("POST", f"/statuses/{target.commit}", body)[0]
    if isinstance(outcome, NotSent) and outcome.status == 404 and access.destination.kind == "gitea":
        # For some seconds after a push, Gitea does not know the commit.
        return replace(outcome, is_final=False)
    return outcome


def _send_check_run(claimed: ClaimedResult, access: RepositoryAccess) -> Outcome:
    """Create the check run when the run starts, and complete it when the run has ended.

    If GitHub has no check run when the run has ended, or has it no longer, a completed one is created.
    """
    number = claimed.remote_id
    # `may_have_arrived` is about this message only. The message about the start may also have created a check run.
    if number is None and claimed.may_have_check_run:
        existing = _existing_check_run(claimed, access)
        if isinstance(existing, NotSent) or (existing is not None and not claimed.result.has_ended):
            return existing
        number = existing.remote_id if existing is not None else None
    body = check_run_body(
        claimed.result,
        name=claimed.target.context or "",
        commit=claimed.target.commit or "",
        started_at=claimed.run_started_at,
        details_url=details_url(claimed, access),
    )
    outcome = _write_check_run(access, body, number)
    if isinstance(outcome, NotSent) and outcome.status == 404 and number is not None:
        number = None
        if claimed.remote_id is not None and claimed.may_have_arrived:
            # An earlier attempt may have created another one.
            existing = _existing_check_run(claimed, access)
            if isinstance(existing, NotSent):
                return existing
            number = existing.remote_id if existing is not None else None
        outcome = _write_check_run(access, body, number)
    if isinstance(outcome, NotSent) and outcome.status == 422 and outcome.is_final and annotations_of(body):
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
    return Sent(status=outcome.status, url=page_of(answer), remote_id=number_of(answer))


def _existing_check_run(claimed: ClaimedResult, access: RepositoryAccess) -> Sent | NotSent | None:
    """The check run that an earlier attempt has created, or why it can't be searched. None if there is none."""
    expected = external_id(claimed.result)
    name = quote(claimed.target.context or "", safe="")
    found = find(
        access,
        f"/commits/{claimed.target.commit}/check-runs?check_name={name}&filter=all",
        lambda check_run: _is_ours(check_run, expected, access.app_number),
        key="check_runs",
    )
    if found is None or isinstance(found, NotSent):
        return found
    return Sent(status=200, url=page_of(found), remote_id=number_of(found), note=ARRIVED)


def _is_ours(check_run: Any, expected: str, app_number: int | None) -> bool:
    """Whether this is the check run of the message. Other apps may have copied its `external_id`."""
    if not isinstance(check_run, dict) or check_run.get("external_id") != expected:
        return False
    app = check_run.get("app")
    return isinstance(app, dict) and app.get("id") == app_number and number_of(check_run) is not None
