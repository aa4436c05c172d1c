"""Check runs, comments and statuses that a GitHub App sends: its tokens, and that no check run is left in progress."""

import base64
import json
import os
import re
import signal
import ssl
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import OutputText
from hookmill.domain.secret import SecretValue
from hookmill.results.app_tokens import InstallationToken
from hookmill.results.delivery import ResultDelivery
from hookmill.results.destinations import RepositoryDestination
from hookmill.results.sender import ResultSender
from hookmill.store.database import open_database
from hookmill.store.notices import CLAIM_US
from hookmill.store.results import NotSent, Outcome, Sent
from hookmill.store.runs import outputs
from tests.notices.receivers import closed_port
from tests.results.github import APP_NUMBER, CLIENT_ID, GitHub, app_private_key, pem
from tests.results.scene import CHECK, COMMENT, SHA, STATUS, Scene
from tests.support.counts import only_in_proof
from tests.support.loaded import fork_context
from tests.support.waiting import until

ANNOTATION = {"path": "a.py", "start_line": 1, "annotation_level": "notice", "message": "Unused."}
INSTALLATION = "GET /repos/acme/shop/installation"
NEW_TOKEN = "POST /app/installations/77/access_tokens"
CREATE = "POST /repos/acme/shop/check-runs"
UPDATE = "PATCH /repos/acme/shop/check-runs/1"
SEARCH = f"GET /repos/acme/shop/commits/{SHA}/check-runs"


@pytest.fixture(autouse=True)
def variable_with_key(monkeypatch):
    monkeypatch.setenv("APP_KEY", pem(app_private_key()))


def delivery_to(url: str, *, app_id: str = CLIENT_ID) -> ResultDelivery:
    destination = RepositoryDestination(
        kind="github", url=url, allow_http=True, app_id=app_id, app_key_from="APP_KEY", repositories=("acme/*",)
    )
    return ResultDelivery(
        {"github": destination}, tls=ssl.create_default_context, now_us=lambda: time.time_ns() // 1000, seconds=10
    )


def send_next(scene: Scene, by: ResultDelivery) -> Outcome:
    """Send the message that is due, and record what happened."""
    claimed = scene.claim()
    assert claimed is not None
    outcome = by.send(claimed)
    assert scene.record(claimed, outcome)
    return outcome


def finish(scene: Scene, key: RunKey, state: RunState = RunState.SUCCEEDED, **texts: str):
    with scene.backlog.database.write() as tx:
        names = {"summary": "summary.md", "annotations": "annotations.json"}
        outputs.add(tx, key, {names[name]: OutputText(text=text) for name, text in texts.items()})
    scene.finish(key, state)


def test_check_run_is_created_at_the_start_and_completed_at_the_end(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)

    start = send_next(scene, by)
    created = dict(github.check_runs[0])
    scene.advance(60)
    finish(scene, key, summary="# Done\n@octocat", annotations=json.dumps([ANNOTATION]))
    end = send_next(scene, by)

    page = f"{github.url}/acme/shop/runs/1"
    assert start == Sent(status=201, url=page, remote_id=1)
    assert end == Sent(status=200, url=page, remote_id=1)
    # The second message uses the same token.
    assert github.paths() == [INSTALLATION, NEW_TOKEN, CREATE, UPDATE]
    assert created == {
        "id": 1,
        "html_url": page,
        "app": {"id": APP_NUMBER},
        "name": "hookmill/Answer",
        "head_sha": SHA,
        "external_id": f"{run_id(key)} 0",
        "details_url": f"https://hooks.test/f/fac_one/runs/{run_id(key)}",
        "started_at": "2033-05-18T03:33:20Z",
        "status": "in_progress",
    }
    assert github.check_runs == [
        created
        | {
            "status": "completed",
            "conclusion": "success",
            "completed_at": "2033-05-18T03:34:20Z",
            "output": {
                "title": "The run succeeded.",
                "summary": "# Done\n@`octocat`",
                "annotations": [{**ANNOTATION, "end_line": 1}],
            },
        }
    ]


@pytest.mark.parametrize(
    ("declared", "permissions"),
    [(CHECK, {"checks"}), (STATUS, {"statuses"}), (COMMENT, {"issues", "pull_requests"})],
)
def test_token_is_for_one_repository_and_the_needed_permissions(scene, github, declared, permissions):
    key = scene.started(declared)
    finish(scene, key, summary="# Done")

    assert isinstance(send_next(scene, delivery_to(github.url)), Sent)

    assert github.token_requests == [{"repositories": ["shop"], "permissions": dict.fromkeys(permissions, "write")}]
    assert [len(github.check_runs), len(github.statuses), len(github.comments)].count(1) == 1


def test_comment_needs_only_one_of_its_permissions(scene, github):
    del github.permissions["issues"]
    finish(scene, scene.started(COMMENT), summary="# Done")

    assert isinstance(send_next(scene, delivery_to(github.url, app_id=str(APP_NUMBER))), Sent)

    assert github.token_requests[0]["permissions"] == {"pull_requests": "write"}


def test_run_that_ends_before_its_start_was_sent_gets_a_completed_check_run(scene, github):
    key = scene.started(CHECK)
    finish(scene, key, RunState.FAILED)

    assert isinstance(send_next(scene, delivery_to(github.url)), Sent)

    assert scene.states(key) == ["superseded", "sent"]
    assert github.paths() == [INSTALLATION, NEW_TOKEN, CREATE]
    assert [(each["status"], each["conclusion"]) for each in github.check_runs] == [("completed", "failure")]


@pytest.mark.parametrize("ends_first", [False, True])
def test_check_run_whose_answer_was_lost_is_found_and_completed(scene, github, ends_first):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    github.next_answers = [None, None, 0]
    lost = send_next(scene, by)
    if ends_first:
        finish(scene, key)
    scene.advance(3_600)
    github.requests.clear()

    again = send_next(scene, by)
    if not ends_first:
        finish(scene, key)
        send_next(scene, by)

    assert isinstance(lost, NotSent)
    assert lost.may_have_arrived
    assert isinstance(again, Sent)
    assert github.paths() == [SEARCH, UPDATE]
    assert [each["conclusion"] for each in github.check_runs] == ["success"]
    assert scene.states(key) == [("superseded" if ends_first else "sent"), "sent"]
    assert scene.deliveries(key)[0].is_uncertain


def test_no_second_check_run_is_created_after_a_search_whose_answer_was_cut(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    github.next_answers = [None, None, 0]
    send_next(scene, by)
    finish(scene, key)
    scene.advance(3_600)
    github.cut = lambda _method, path: "/commits/" in path

    cut = send_next(scene, by)
    github.cut = lambda _method, _path: False
    scene.advance(3_600)
    send_next(scene, by)

    assert cut == NotSent(problem="The answer with the check runs could not be read.", status=200)
    assert [each["status"] for each in github.check_runs] == ["completed"]


def test_longest_summaries_of_a_hundred_check_runs_can_be_searched(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    longest = {"title": "x", "summary": "\n" * 65_535}
    common = {"name": "hookmill/Answer", "head_sha": SHA, "external_id": "run_1 0", "app": {"id": APP_NUMBER}}
    github.check_runs = [{**common, "id": number, "output": longest} for number in range(1, 100)]
    github.next_answers = [None, None, 0]
    send_next(scene, by)
    scene.advance(3_600)

    send_next(scene, by)
    finish(scene, key)
    send_next(scene, by)

    assert len(github.check_runs) == 100
    assert github.check_runs[-1]["status"] == "completed"


def test_commit_that_github_does_not_know_yet_costs_no_annotations(scene, github):
    by = delivery_to(github.url)
    finish(scene, scene.started(CHECK), annotations=json.dumps([ANNOTATION]))
    github.next_answers, github.next_words = [None, None, 422], f"No commit found for SHA: {SHA}"
    assert isinstance(send_next(scene, by), NotSent)
    assert github.check_runs == []
    scene.advance(3_600)

    assert isinstance(send_next(scene, by), Sent)

    assert len(github.check_runs[0]["output"]["annotations"]) == 1


def test_check_run_that_no_longer_exists_is_created_completed(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    send_next(scene, by)
    # The repository was created again, for example.
    github.check_runs.clear()
    finish(scene, key)
    github.requests.clear()

    assert isinstance(send_next(scene, by), Sent)

    assert github.paths() == [UPDATE, CREATE]
    assert [each["status"] for each in github.check_runs] == ["completed"]


def test_replacement_of_a_check_run_whose_answer_was_lost_is_not_created_again(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    send_next(scene, by)
    # The first check run no longer exists. Its number has one of another name.
    github.check_runs = [{"id": 1, "name": "ci/build", "head_sha": SHA}]
    finish(scene, key)
    github.next_answers = [404, 0]
    lost = send_next(scene, by)
    scene.advance(3_600)
    github.requests.clear()
    github.next_answers = [404]

    again = send_next(scene, by)

    assert isinstance(lost, NotSent)
    assert isinstance(again, Sent)
    assert github.paths() == [UPDATE, SEARCH, "PATCH /repos/acme/shop/check-runs/2"]
    assert [each.get("status") for each in github.check_runs] == [None, "completed"]


@pytest.mark.parametrize("is_removed", [True, False])
def test_check_run_stays_in_progress_without_its_app(scene, github, is_removed):
    key = scene.started(CHECK)
    send_next(scene, delivery_to(github.url))
    finish(scene, key)
    with_token = RepositoryDestination(
        kind="github", url=github.url, allow_http=True, secret_from="GITHUB_TOKEN", repositories=("acme/*",)
    )
    destinations = {} if is_removed else {"github": with_token}
    by = ResultDelivery(destinations, tls=ssl.create_default_context, now_us=lambda: time.time_ns() // 1000)

    outcome = send_next(scene, by)

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, github.check_runs[0]["status"]) == (True, "in_progress")


def test_check_run_of_another_app_or_run_is_never_completed(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    common = {"name": "hookmill/Answer", "head_sha": SHA, "status": "in_progress"}
    github.check_runs = [
        {**common, "id": 1, "external_id": f"{run_id(key)} 0", "app": {"id": 9}},
        {**common, "id": 2, "external_id": f"{run_id(key)} 1", "app": {"id": APP_NUMBER}},
    ]
    others = [dict(each) for each in github.check_runs]
    github.next_answers = [None, None, 0]
    assert isinstance(send_next(scene, by), NotSent)
    github.check_runs.pop()
    scene.advance(3_600)

    send_next(scene, by)
    finish(scene, key)
    send_next(scene, by)

    assert github.check_runs[:2] == others
    assert [(each["id"], each["status"]) for each in github.check_runs[2:]] == [(3, "completed")]


def test_newer_run_for_the_commit_leaves_no_check_run_in_progress(scene, github):
    by = delivery_to(github.url)
    older, newer = scene.started(CHECK), scene.started({**CHECK, "context": "hookmill/Answer"})
    for _ in range(2):
        send_next(scene, by)

    finish(scene, newer)
    finish(scene, older, RunState.REPLACED)
    for _ in range(2):
        send_next(scene, by)

    assert sorted(each["conclusion"] for each in github.check_runs) == ["cancelled", "success"]


def test_destination_that_was_down_gets_the_completed_check_run(scene, github):
    key = scene.started(CHECK)
    with closed_port() as port:
        down = send_next(scene, delivery_to(f"http://127.0.0.1:{port}"))
    finish(scene, key, RunState.INTERRUPTED)

    assert isinstance(down, NotSent)
    assert not down.may_have_arrived
    assert isinstance(send_next(scene, delivery_to(github.url)), Sent)
    assert [each["conclusion"] for each in github.check_runs] == ["failure"]


def test_token_that_expires_soon_is_not_used_again(scene, github):
    by = delivery_to(github.url)
    github.token_seconds = 299
    key = scene.started(CHECK)
    send_next(scene, by)
    finish(scene, key)

    assert isinstance(send_next(scene, by), Sent)

    assert len(github.token_requests) == 2


def test_token_that_has_become_invalid_is_replaced_once(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    send_next(scene, by)
    github.tokens.clear()
    finish(scene, key)
    github.requests.clear()

    outcome = send_next(scene, by)

    assert isinstance(outcome, Sent)
    assert github.paths() == [UPDATE, INSTALLATION, NEW_TOKEN, UPDATE]


def test_token_that_is_refused_again_is_not_replaced_again(scene, github):
    github.next_answers = [None, None, 401, None, None, 401]
    scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert (outcome.status, outcome.is_final) == (401, False)
    assert github.paths() == [INSTALLATION, NEW_TOKEN, CREATE] * 2


@pytest.mark.parametrize("performed", range(3))
@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "120"}, 120),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "in 600 s"}, 600),
        (403, {"X-RateLimit-Remaining": "1", "X-RateLimit-Reset": "in 600 s"}, 0),
    ],
)
def test_rate_limit_of_each_request_is_waited_for(scene, github, performed, status, headers, seconds):
    reset = str(int(time.time()) + 600)
    github.answer_headers = {name: reset if value == "in 600 s" else value for name, value in headers.items()}
    github.next_answers = [*[None] * performed, status]
    scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert (outcome.status, outcome.is_final, outcome.may_have_arrived) == (status, False, False)
    assert seconds - 30 <= outcome.retry_after_seconds <= seconds
    assert len(github.requests) == performed + 1


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (lambda: "not a key", "The variable APP_KEY has no usable key."),
        (lambda: pem(app_private_key())[:-200], "The variable APP_KEY has no usable key."),
        (lambda: pem(rsa.generate_private_key(65_537, 2_048)), "GitHub refused the key of the app."),
    ],
    ids=["text", "cut", "other"],
)
def test_wrong_key_is_reported_without_its_value(scene, github, monkeypatch, key, problem):
    monkeypatch.setenv("APP_KEY", text := key())
    scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, outcome.may_have_arrived, github.check_runs) == (False, False, [])
    assert problem in outcome.problem
    assert not any(line in outcome.problem for line in text.splitlines())


def test_key_may_be_in_base64_on_one_line(scene, github, monkeypatch):
    monkeypatch.setenv("APP_KEY", base64.b64encode(pem(app_private_key()).encode()).decode())
    scene.started(CHECK)

    assert isinstance(send_next(scene, delivery_to(github.url)), Sent)


def test_app_without_an_installation_is_reported(scene, github):
    github.is_installed = False
    scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert (outcome.status, outcome.is_final) == (404, False)
    assert outcome.problem.startswith(f"The GitHub App {CLIENT_ID} is not installed for acme/shop. Install it.")


def test_app_without_the_permission_is_reported(scene, github):
    github.permissions["checks"] = "read"
    scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert "may not send a github_check to acme/shop. Give it write access to checks" in outcome.problem
    assert (outcome.is_final, github.token_requests) == (False, [])


def test_token_request_that_is_lost_may_not_have_created_a_check_run(scene, github):
    github.next_answers = [None, 0]
    key = scene.started(CHECK)

    outcome = send_next(scene, delivery_to(github.url))

    assert isinstance(outcome, NotSent)
    assert not outcome.may_have_arrived
    assert not scene.deliveries(key)[0].is_uncertain


def test_annotations_that_github_refuses_never_leave_a_check_run_in_progress(scene, github):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    send_next(scene, by)
    finish(scene, key, summary="# Done", annotations=json.dumps([ANNOTATION]))
    github.next_answers = [422]

    assert isinstance(send_next(scene, by), Sent)

    assert github.check_runs[0]["output"] == {
        "title": "The run succeeded.",
        "summary": "# Done\n\nGitHub refused the annotations of outputs/annotations.json.",
    }


def test_no_text_contains_a_credential(scene, github, caplog):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    github.next_answers = [None, None, None, 500]
    send_next(scene, by)
    finish(scene, key)
    failed = send_next(scene, by)
    (token,) = github.tokens
    kept = InstallationToken(value=SecretValue(token), app_number=APP_NUMBER, usable_until=0)

    texts = f"{failed} {kept} {scene.deliveries(key)} {caplog.text} {vars(by)}"

    assert token not in texts
    assert "PRIVATE KEY" not in texts
    assert re.search(r"eyJ[\w-]+\.", texts) is None


def send_in_own_process(store: str, url: str, key: str, now: int):
    """Send the message that is due, with a worker's sender."""
    os.environ["APP_KEY"] = key
    by = delivery_to(url)
    with open_database(store) as database:
        ResultSender(
            database, by.send, lambda: now, public_url="https://hooks.test", report_failure=lambda *_: None
        ).send_next()


def kill_while_sending(scene: Scene, github: GitHub, request: str, *, is_performed: bool):
    """Start to send the message that is due, and kill the process while it waits for the answer to the request."""
    github.performs_held = is_performed
    github.held = lambda method, path: f"{method} {path.partition('?')[0]}" == request
    arguments = scene.backlog.url, github.url, os.environ["APP_KEY"], scene.now
    process = fork_context().Process(target=send_in_own_process, args=arguments)
    process.start()
    until(github.is_holding.is_set, "the request is held")
    process.kill()
    process.join()
    github.release.set()
    assert process.exitcode == -signal.SIGKILL
    scene.advance(CLAIM_US / 1_000_000)


@pytest.mark.parametrize("phase", ["start", "end"])
@pytest.mark.parametrize(
    ("request_", "is_performed"),
    [
        only_in_proof(INSTALLATION, False),
        only_in_proof(NEW_TOKEN, True),
        only_in_proof("write", False),
        ("write", True),
    ],
)
def test_check_run_of_a_worker_that_is_killed_is_created_once_and_completed(
    scene, github, phase, request_, is_performed
):
    by = delivery_to(github.url)
    key = scene.started(CHECK)
    writes = {"start": CREATE, "end": UPDATE}
    if phase == "end":
        send_next(scene, by)
        finish(scene, key)

    kill_while_sending(scene, github, writes[phase] if request_ == "write" else request_, is_performed=is_performed)
    send_next(scene, by)
    if phase == "start":
        finish(scene, key)
        send_next(scene, by)

    assert [(each["status"], each["conclusion"]) for each in github.check_runs] == [("completed", "success")]
    killed = scene.deliveries(key)[0 if phase == "start" else 1]
    assert (killed.state, killed.is_uncertain, len(killed.attempts)) == ("sent", True, 2)
