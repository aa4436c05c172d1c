"""Comments and reviews on a pull request over several pushes: one comment, which only newer runs change."""

import json
import os
import signal
import ssl
import threading
import time
from typing import Any

import pytest

from hookmill.domain.agent_report import AgentReport
from hookmill.domain.ids import RunKey, run_id
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_outputs import OutputText
from hookmill.domain.spec import read
from hookmill.results.delivery import ResultDelivery
from hookmill.results.destinations import RepositoryDestination
from hookmill.results.sender import ResultSender
from hookmill.store import results
from hookmill.store.database import open_database
from hookmill.store.notices import CLAIM_US
from hookmill.store.results import NothingToSend, NotSent, Outcome, Sent
from hookmill.store.runs import agent_reports, outputs
from tests.results.github import CLIENT_ID, TOKEN, GitHub, app_private_key, github_server, pem
from tests.results.scene import COMMENT, PULL_REQUEST, REVIEW, SHA, WORKER, Scene
from tests.runs.backlog import Backlog
from tests.support.loaded import fork_context
from tests.support.waiting import until

DIFF = """diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -10,3 +10,4 @@ def f():
 old
+new
+++ b/looks_like_a_header
-gone
 old
"""
SHOWN = {"src/a.py": [range(10, 14)]}
FOREIGN = {"login": "mallory", "id": 6_660, "type": "User"}


def delivery_to(destination: RepositoryDestination) -> ResultDelivery:
    return ResultDelivery(
        {"github": destination}, tls=ssl.create_default_context, now_us=lambda: time.time_ns() // 1000
    )


class PullRequest:
    """The runs of one automation for a pull request, in the order of its pushes."""

    def __init__(self, scene: Scene, github: GitHub, declared: Any = COMMENT, **destination: Any):
        self.scene = scene
        self.automation = scene.backlog.automation(options=read(RunOptions, {"results": [declared]}))
        credential = destination or {"secret_from": "GITHUB_TOKEN"}
        self.destination = RepositoryDestination(
            url=github.url,
            allow_http=True,
            repositories=("acme/*",),
            **{"kind": "github", **credential},
        )
        self.by = delivery_to(self.destination)

    def push(self) -> RunKey:
        """Start a run."""
        self.scene.advance(60)
        key = self.scene.backlog.queue(self.automation, payload=json.dumps(PULL_REQUEST).encode(), now=self.scene.now)
        self.scene.begin(key)
        return key

    def end(self, key: RunKey, summary: str = "", *, annotations: Any = None):
        texts = {"summary.md": summary, "annotations.json": json.dumps(annotations) if annotations else ""}
        with self.scene.backlog.database.write() as tx:
            outputs.add(tx, key, {name: OutputText(text=text) for name, text in texts.items() if text})
        self.scene.finish(key)

    def send(self) -> Outcome:
        claimed = self.scene.claim()
        assert claimed is not None
        outcome = self.by.send(claimed)
        self.scene.record(claimed, outcome)
        return outcome

    def review(self, summary: str = "", **texts: Any) -> Outcome:
        """A push whose run ends, and delivers its result."""
        self.end(self.push(), summary, **texts)
        return self.send()


@pytest.fixture
def pull_request(scene, github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    return PullRequest(scene, github)


@pytest.fixture
def reviewed(scene, github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github.diff, github.shown_lines = DIFF, SHOWN
    return PullRequest(scene, github, REVIEW)


def text_of(comment: Any) -> str:
    """The text of a comment without its hidden lines and its footer."""
    lines = comment["body"].split("\n")
    assert [line.startswith("<!-- hookmill ") for line in lines[:3]] == [True, True, False]
    return "\n".join(lines[2 : lines.index("---") - 1])


def test_each_push_updates_the_one_comment(pull_request, github):
    outcomes = [pull_request.review(f"Review {number}") for number in (1, 2, 3)]

    page = f"{github.url}/acme/shop/issues/7#1"
    assert outcomes == [Sent(status=status, url=page, remote_id=1) for status in (201, 200, 200)]
    assert [text_of(comment) for comment in github.comments] == ["Review 3"]
    assert github.updates == 2


def test_comments_are_not_updated_if_the_automation_says_so(scene, github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    pull_request = PullRequest(scene, github, {**COMMENT, "update": False})

    for number in (1, 2):
        pull_request.review(f"Review {number}")

    assert [comment["body"].split("\n")[1] for comment in github.comments] == ["Review 1", "Review 2"]


def test_another_automation_has_its_own_comment(pull_request, github):
    other = PullRequest(pull_request.scene, github)

    for each in (pull_request, other, pull_request):
        each.review(f"Review of {each.automation}")

    assert [text_of(comment) for comment in github.comments] == [
        f"Review of {each.automation}" for each in (pull_request, other)
    ]


def test_older_run_that_ends_later_does_not_replace_the_comment(pull_request, github):
    older, newer = pull_request.push(), pull_request.push()
    pull_request.end(newer, "New")
    pull_request.send()

    pull_request.end(older, "Old")

    assert pull_request.scene.claim() is None
    assert [text_of(comment) for comment in github.comments] == ["New"]
    assert pull_request.scene.states(older) == ["superseded"]


@pytest.mark.parametrize("ends_first", [0, 1])
def test_only_the_newest_of_waiting_comments_is_sent(pull_request, github, ends_first):
    runs = pull_request.push(), pull_request.push()

    for number in (ends_first, 1 - ends_first):
        pull_request.end(runs[number], f"Review {number}")
    pull_request.send()

    assert pull_request.scene.claim() is None
    assert [text_of(comment) for comment in github.comments] == ["Review 1"]


def test_older_run_never_overwrites_what_a_newer_one_wrote_elsewhere(pull_request, github):
    """Such as another copy of the installation."""
    pull_request.review("Review 1")
    lines = github.comments[0]["body"].split("\n")
    newer = "\n".join([lines[0].replace("run_0", "run_f"), *lines[1:]])
    github.comments[0]["body"] = newer

    outcome = pull_request.review("Review 2")

    assert outcome == NothingToSend(reason="The comment is already that of a newer run.")
    assert [comment["body"] for comment in github.comments] == [newer]


def test_run_without_a_text_leaves_the_comment_as_it_is(pull_request, github):
    pull_request.review("Review 1")

    assert isinstance(pull_request.review(), NothingToSend)

    assert [text_of(comment) for comment in github.comments] == ["Review 1"]


def test_comment_that_a_frozen_worker_overwrites_late_is_restored(pull_request, github):
    pull_request.review("Review 1")
    scene, older = pull_request.scene, pull_request.push()
    pull_request.end(older, "Review 2")
    frozen = scene.claim(WORKER)
    assert frozen is not None
    newer = pull_request.push()
    pull_request.end(newer, "Review 3")
    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)
    pull_request.send()
    newest = dict(github.comments[0])

    # It had read the comment before it was frozen.
    github.comments[0]["body"] = newest["body"].replace(run_id(newer), run_id(older)).replace("Review 3", "Review 2")
    assert not scene.record(frozen, Sent(status=200, remote_id=1))
    pull_request.send()

    assert github.comments == [newest]


def test_deleted_comment_is_created_again(pull_request, github):
    pull_request.review("Review 1")
    github.comments = [{"id": 41, "body": "Somebody's", "user": FOREIGN}]

    assert isinstance(pull_request.review("Review 2"), Sent)

    assert [comment["id"] for comment in github.comments] == [41, 42]
    assert text_of(github.comments[1]) == "Review 2"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_comment_of_somebody_else_is_never_changed(pull_request, github, is_recorded):
    pull_request.review("Review 1")
    copied = {**github.comments[0], "user": FOREIGN, "id": 1 if is_recorded else 9}
    github.comments = [copied]

    pull_request.review("Review 2")

    assert [text_of(comment) for comment in github.comments] == ["Review 1", "Review 2"]
    assert github.updates == 0


def test_comment_is_found_again_without_a_record(pull_request, github):
    """Retention has removed the run."""
    pull_request.review("Review 1")
    with pull_request.scene.backlog.database.write() as tx:
        tx.run("DELETE FROM run_results")
    foreign = {**github.comments[0], "user": FOREIGN, "id": 9}
    github.comments = [foreign] * 60 + github.comments

    pull_request.review("Review 2")

    assert len(github.comments) == 61
    assert text_of(github.comments[-1]) == "Review 2"


def test_comment_of_a_worker_that_died_is_updated_by_the_next_run(pull_request, github):
    scene, first = pull_request.scene, pull_request.push()
    pull_request.end(first, "Review 1")
    dying = scene.claim(WORKER)
    assert dying is not None
    pull_request.by.send(dying)
    second = pull_request.push()
    pull_request.end(second, "Review 2")
    with scene.backlog.database.write() as tx:
        results.release(tx, WORKER)

    outcome = pull_request.send()

    assert outcome == Sent(status=200, url=f"{github.url}/acme/shop/issues/7#1", remote_id=1)
    assert [text_of(comment) for comment in github.comments] == ["Review 2"]


def send_one(store: str, destination: RepositoryDestination, now: int):
    """Send the message that is due, as a process of its own."""
    os.environ["GITHUB_TOKEN"] = TOKEN
    with open_database(store) as database:
        ResultSender(
            database,
            delivery_to(destination).send,
            lambda: now,
            public_url="https://hooks.test",
            report_failure=lambda *_: None,
        ).send_next()


@pytest.mark.parametrize("has_newer", [False, True])
def test_worker_killed_after_its_request_leaves_one_comment(pull_request, github, has_newer):
    pull_request.end(pull_request.push(), "Review 1")
    github.performs_held, github.held = True, lambda method, _path: method == "POST"
    arguments = pull_request.scene.backlog.url, pull_request.destination, pull_request.scene.now
    worker = fork_context().Process(target=send_one, args=arguments)
    worker.start()
    until(github.is_holding.is_set, "GitHub has created the comment")
    worker.kill()
    worker.join()
    github.release.set()
    pull_request.scene.advance(CLAIM_US / 1_000_000)

    if has_newer:
        pull_request.end(pull_request.push(), "Review 2")
    send_one(*arguments[:2], pull_request.scene.now)
    send_one(*arguments[:2], pull_request.scene.now)

    assert worker.exitcode == -signal.SIGKILL
    assert [text_of(comment) for comment in github.comments] == [f"Review {2 if has_newer else 1}"]


def test_comment_whose_answer_was_lost_is_not_created_twice(pull_request, github):
    pull_request.end(pull_request.push(), "Review 1")
    github.next_answers = [None, 0]
    assert isinstance(pull_request.send(), NotSent)
    pull_request.scene.advance(3_600)

    assert isinstance(pull_request.send(), Sent)
    pull_request.review("Review 2")

    assert [text_of(comment) for comment in github.comments] == ["Review 2"]


@pytest.mark.parametrize("words", ["A", "\N{PILE OF POO}"])
def test_many_long_comments_of_others_do_not_prevent_a_comment(pull_request, github, words):
    pull_request.review("Review 1")
    with pull_request.scene.backlog.database.write() as tx:
        tx.run("DELETE FROM run_results")
    long = {"id": 9, "body": words * 65_536, "user": FOREIGN}
    github.comments = [long] * 7 + github.comments

    pull_request.review("Review 2")

    assert [len(github.comments), text_of(github.comments[-1])] == [8, "Review 2"]


def test_token_that_may_not_read_its_user_updates_what_it_has_created(pull_request, github):
    github.may_read_user = False

    for number in (1, 2):
        pull_request.review(f"Review {number}")

    assert [text_of(comment) for comment in github.comments] == ["Review 2"]


@pytest.mark.parametrize(
    "author",
    [
        {"performed_via_github_app": {"id": 99}},
        {"performed_via_github_app": None, "user": {"login": "quotes[bot]", "id": 10, "type": "Bot"}},
    ],
    ids=["app", "unnamed app"],
)
def test_app_updates_its_comment_and_no_copy(scene, github, monkeypatch, author):
    monkeypatch.setenv("APP_KEY", pem(app_private_key()))
    pull_request = PullRequest(scene, github, app_id=CLIENT_ID, app_key_from="APP_KEY")
    pull_request.review("Review 1")
    copied = {**github.comments[0], "id": 9, **author}
    github.comments[0]["performed_via_github_app"] = None
    with scene.backlog.database.write() as tx:
        tx.run("DELETE FROM run_results")
    github.comments.insert(0, copied)

    pull_request.review("Review 2")

    assert [text_of(comment) for comment in github.comments] == ["Review 1", "Review 2"]


def test_footer_has_the_run_its_duration_cost_and_model(pull_request, github):
    key = pull_request.push()
    with pull_request.scene.backlog.database.write() as tx:
        for attempt, cost in ((1, 200_000), (2, 50_000)):
            report = AgentReport(cost_microusd=cost, model="claude-sonnet-4-5")
            agent_reports.add(tx, key, attempt, report)
    pull_request.scene.advance(125)
    pull_request.end(key, "Review")
    pull_request.send()

    page = f"https://hooks.test/f/fac_one/runs/{run_id(key)}"
    assert github.comments[0]["body"].endswith(
        f"Review\n\n---\n[{run_id(key)}]({page}) · 2 min 5 s · $0.25 · `claude-sonnet-4-5`"
    )


def test_two_workers_leave_one_comment_of_the_newest_run(store_url, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    backlog = Backlog(store_url, tmp_path)
    with github_server() as github:
        pull_request = PullRequest(Scene(backlog), github)
        runs = [pull_request.push() for _ in range(6)]
        for number in (0, 3, 1, 5, 4, 2):
            pull_request.end(runs[number], f"Review {number}")

        def work():
            with open_database(store_url) as database:
                sender = ResultSender(
                    database,
                    pull_request.by.send,
                    lambda: pull_request.scene.now,
                    public_url="https://hooks.test",
                    report_failure=lambda *_: None,
                )
                while any(pull_request.scene.states(run) in (["open"], ["waiting"]) for run in runs):
                    sender.send_next()

        workers = [threading.Thread(target=work) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

        assert [text_of(comment) for comment in github.comments] == ["Review 5"]
    backlog.database.close()


def annotation(message: str, line: int = 11, path: str = "src/a.py", **fields: Any) -> dict[str, Any]:
    return {"path": path, "start_line": line, "annotation_level": "warning", "message": message, **fields}


def test_review_has_comments_on_lines_and_the_others_in_its_text(reviewed, github):
    outcome = reviewed.review(
        annotations=[
            annotation("One line @octocat"),
            annotation("Several lines", 10, end_line=12, title="Loop"),
            annotation("Range that begins before the hunk", 3, end_line=13),
            annotation("Line that is not shown", 90, end_line=91),
            annotation("File that is not shown", path="looks_like_a_header"),
        ]
    )

    [review] = github.reviews
    assert outcome == Sent(status=200, url=f"{github.url}/acme/shop/pull/7#1", remote_id=1)
    assert (review["event"], review["commit_id"]) == ("COMMENT", SHA)
    common = {"path": "src/a.py", "side": "RIGHT"}
    assert review["comments"] == [
        {**common, "line": 11, "body": "One line @`octocat`"},
        {**common, "line": 12, "start_line": 10, "start_side": "RIGHT", "body": "**Loop**\n\nSeveral lines"},
        {**common, "line": 13, "body": "Range that begins before the hunk"},
    ]
    assert review["body"].split("\n", 1)[1] == (
        "3 comments on lines.\n\nOn lines that the diff does not show:\n\n"
        "`src/a.py:90-91`\n\nLine that is not shown\n\n`looks_like_a_header:11`\n\nFile that is not shown"
    )


def test_review_at_gitea_has_its_form(scene, github, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github.is_gitea, github.diff, github.shown_lines = True, DIFF, SHOWN
    pull_request = PullRequest(scene, github, REVIEW, kind="gitea", secret_from="GITHUB_TOKEN")

    outcome = pull_request.review(annotations=[annotation("Several lines", 10, end_line=12), annotation("Other", 99)])

    assert isinstance(outcome, Sent)
    assert github.paths() == ["GET /repos/acme/shop/pulls/7.diff", "POST /repos/acme/shop/pulls/7/reviews"]
    assert github.reviews[0]["comments"] == [{"path": "src/a.py", "new_position": 12, "body": "Several lines"}]


def test_comment_at_gitea_is_found_among_many(scene, github, monkeypatch):
    """A Gitea has all comments on one page."""
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    github.is_gitea = True
    pull_request = PullRequest(scene, github, kind="gitea", secret_from="GITHUB_TOKEN")
    pull_request.review("Review 1")
    github.comments = [{"id": 9, "body": "Somebody's", "user": FOREIGN}] * 60 + github.comments
    with scene.backlog.database.write() as tx:
        tx.run("DELETE FROM run_results")

    pull_request.review("Review 2")

    assert [len(github.comments), text_of(github.comments[-1])] == [61, "Review 2"]


def test_next_push_reviews_only_what_is_new(reviewed, github):
    reviewed.review(annotations=[annotation("First")])
    reviewed.review(annotations=[annotation("First", 12), annotation("Second", 13)])

    outcome = reviewed.review(annotations=[annotation("Second", 12)])

    assert isinstance(outcome, NothingToSend)
    assert [[comment["body"] for comment in review["comments"]] for review in github.reviews] == [["First"], ["Second"]]


def test_review_that_github_refuses_has_all_in_its_text(reviewed, github):
    """The pull request has changed since its diff was read."""
    github.shown_lines = {}

    assert isinstance(reviewed.review(annotations=[annotation("First")]), Sent)

    [review] = github.reviews
    assert (review["comments"], "commit_id" in review) == ([], False)
    assert review["body"].endswith("`src/a.py:11`\n\nFirst")


def test_review_without_a_readable_diff_has_all_in_its_text(reviewed, github):
    github.next_answers = [406]

    assert isinstance(reviewed.review(annotations=[annotation("First")]), Sent)

    assert [review["comments"] for review in github.reviews] == [[]]


def test_review_whose_answer_was_lost_is_not_created_twice(reviewed, github):
    reviewed.end(reviewed.push(), annotations=[annotation("First")])
    github.next_answers = [None, 0]
    assert isinstance(reviewed.send(), NotSent)
    reviewed.scene.advance(3_600)

    assert isinstance(reviewed.send(), Sent)

    assert len(github.reviews) == 1


@pytest.mark.parametrize("annotations", ["[]", "{}", '[{"path": "../x"}]'])
def test_run_without_usable_annotations_creates_no_review(reviewed, github, annotations):
    key = reviewed.push()
    with reviewed.scene.backlog.database.write() as tx:
        outputs.add(tx, key, {"annotations.json": OutputText(text=annotations)})
    reviewed.scene.finish(key)

    outcome = reviewed.send()

    assert isinstance(outcome, NothingToSend) or (isinstance(outcome, NotSent) and outcome.is_final)
    assert github.reviews == []
