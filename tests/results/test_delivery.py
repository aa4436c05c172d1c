"""Results arrive at real servers, as GitHub, Slack and receivers of webhooks expect them."""

import json
import os
import signal
import ssl
import time
from typing import Any

import pytest
from standardwebhooks import Webhook

from hookmill.domain.ids import RunKey
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import OutputText
from hookmill.results.delivery import ResultDelivery
from hookmill.results.destinations import RepositoryDestination, SlackDestination, WebhookDestination
from hookmill.results.sender import ResultSender
from hookmill.store.database import open_database
from hookmill.store.notices import CLAIM_US
from hookmill.store.results import DIED, ClaimedResult, NothingToSend, NotSent, Outcome, Sent
from hookmill.store.runs import outputs
from tests.notices.receivers import closed_port, http_receiver
from tests.outbound.forward_proxy import forward_proxy
from tests.results.github import ACCOUNT_NUMBER, TOKEN
from tests.results.scene import COMMENT, SHA, SLACK, STATUS, WEBHOOK, WORKER, Scene
from tests.support.loaded import fork_context
from tests.support.waiting import until

SECRET = "whsec_" + "ZWVl" * 8
NEW_COMMENT = {**COMMENT, "update": False}
OURS = {"id": 9, "user": {"id": ACCOUNT_NUMBER}}


@pytest.fixture
def receiver():
    with http_receiver() as server:
        yield server


def delivery(monkeypatch: pytest.MonkeyPatch, *, seconds: float = 10, **destinations: Any) -> ResultDelivery:
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    monkeypatch.setenv("CI_SECRET", SECRET)
    return ResultDelivery(
        destinations, tls=ssl.create_default_context, now_us=lambda: time.time_ns() // 1000, seconds=seconds
    )


def at_github(url: str, *repositories: str) -> RepositoryDestination:
    return RepositoryDestination(
        kind="github", url=url, allow_http=True, secret_from="GITHUB_TOKEN", repositories=repositories or ("acme/*",)
    )


def ended(scene: Scene, declared: Any, *, summary: str | None = "# Done\n@octocat", **comment: str) -> RunKey:
    key = scene.started(declared)
    texts = {"summary.md": summary, **{f"{name}.json": text for name, text in comment.items()}}
    with scene.backlog.database.write() as tx:
        outputs.add(tx, key, {name: OutputText(text=text) for name, text in texts.items() if text is not None})
    scene.finish(key)
    return key


def claimed(scene: Scene) -> ClaimedResult:
    message = scene.claim()
    assert message is not None
    return message


def send_again(scene: Scene, first: ClaimedResult, outcome: Outcome, by: ResultDelivery) -> Outcome:
    scene.record(first, outcome)
    scene.advance(3_600)
    return by.send(claimed(scene))


def test_comment_arrives_with_the_marker(scene, github, monkeypatch):
    key = ended(scene, NEW_COMMENT)

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert outcome == Sent(status=201, url=f"{github.url}/acme/shop/issues/7#1", remote_id=1)
    assert github.requests == [("POST", "/repos/acme/shop/issues/7/comments")]
    page = f"https://hooks.test/f/fac_one/runs/run_{key.hex()}"
    assert github.comments[0]["body"] == (
        f"<!-- hookmill run_{key.hex()} 0 -->\n# Done\n@`octocat`\n\n---\n[run_{key.hex()}]({page}) · 0 s"
    )


def test_status_arrives_at_the_commit(scene, github, monkeypatch):
    scene.started(STATUS)

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert outcome == Sent(status=201)
    assert github.statuses == [
        {
            "sha": SHA,
            "state": "pending",
            "context": "hookmill/Answer",
            "description": "The run has started.",
            "target_url": github.statuses[0]["target_url"],
        }
    ]
    assert github.statuses[0]["target_url"].startswith("https://hooks.test/f/fac_one/runs/run_")


def test_result_is_sent_through_the_proxy(scene, github, monkeypatch):
    scene.started(STATUS)
    with forward_proxy() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert proxy.requests == [f"POST {github.url}/repos/acme/shop/statuses/{SHA} HTTP/1.1"]
    assert len(github.statuses) == 1


def test_comment_whose_answer_was_lost_is_found_and_not_repeated(scene, github, monkeypatch):
    ended(scene, NEW_COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.next_answers = [0]
    first = claimed(scene)
    outcome = by.send(first)
    assert isinstance(outcome, NotSent)
    assert outcome.may_have_arrived

    again = send_again(scene, first, outcome, by)

    page = f"{github.url}/acme/shop/issues/7#1"
    assert again == Sent(status=200, url=page, note="An earlier attempt had arrived.", remote_id=1)
    assert len(github.comments) == 1


@pytest.mark.parametrize("status", [408, 502])
def test_comment_that_a_gateway_has_given_up_is_searched_before_it_is_repeated(scene, github, monkeypatch, status):
    key = ended(scene, NEW_COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.next_answers = [status]
    first = claimed(scene)
    outcome = by.send(first)
    github.comments.append({**OURS, "body": f"<!-- hookmill run_{key.hex()} 0 -->\n# Done", "html_url": github.url})

    again = send_again(scene, first, outcome, by)

    assert again == Sent(status=200, url=github.url, note="An earlier attempt had arrived.", remote_id=9)
    assert [method for method, _ in github.requests] == ["POST", "GET", "GET"]


def test_comment_that_did_not_arrive_is_sent_again(scene, github, monkeypatch):
    ended(scene, COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.comments.append({"id": 1, "body": "Somebody's comment about <!-- hookmill", "html_url": "x"})
    first = claimed(scene)

    again = send_again(scene, first, NotSent(problem="no answer", may_have_arrived=True), by)

    assert isinstance(again, Sent)
    assert [method for method, _ in github.requests] == ["GET", "POST"]


def test_comment_is_not_repeated_while_earlier_ones_cannot_be_searched(scene, github, monkeypatch):
    ended(scene, COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.next_answers = [502]
    first = claimed(scene)

    again = send_again(scene, first, NotSent(problem="no answer", may_have_arrived=True), by)

    assert isinstance(again, NotSent)
    assert github.comments == []


def test_comment_is_not_repeated_after_a_search_whose_answer_was_cut(scene, github, monkeypatch):
    ended(scene, NEW_COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.next_answers = [0]
    first = claimed(scene)
    lost = by.send(first)
    github.cut = lambda method, _path: method == "GET"

    again = send_again(scene, first, lost, by)

    assert again == NotSent(problem="The answer with the comments could not be read.", status=200)
    assert len(github.comments) == 1


@pytest.mark.parametrize(
    ("status", "is_final"),
    [(302, True), (400, True), (401, False), (403, False), (404, True), (422, True), (429, False), (500, False)],
)
def test_answer_decides_whether_a_result_is_sent_again(scene, github, monkeypatch, status, is_final):
    ended(scene, COMMENT)
    github.next_answers = [status]

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.status, outcome.is_final, outcome.retry_after_seconds) == (status, is_final, 120)
    assert f"answered with the status {status}" in outcome.problem
    assert outcome.problem.endswith(': "words-of-the-receiver".')
    assert len(github.requests) == 1


@pytest.mark.parametrize(
    ("status", "words", "seconds"),
    [
        (422, "No commit found for SHA: aaaa", 0),
        (422, "Reference does not exist", 0),
        (422, "Validation Failed: was submitted too quickly", 0),
        (423, "Locked", 0),
        (409, "Conflict", 0),
        (502, "Bad Gateway", 0),
        (403, "You have exceeded a secondary rate limit.", 60),
        (403, "You have triggered an abuse detection mechanism.", 60),
    ],
)
def test_answer_that_heals_by_itself_is_followed_by_another_attempt(scene, github, monkeypatch, status, words, seconds):
    scene.started(STATUS)
    github.next_answers, github.next_words, github.answer_headers = [status], words, {}

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, outcome.retry_after_seconds) == (False, seconds)
    assert f'"{words}"' in outcome.problem


def test_status_for_a_commit_that_gitea_does_not_know_yet_is_sent_again(scene, github, monkeypatch):
    scene.started(STATUS)
    github.next_answers = [404]
    gitea = at_github(github.url).model_copy(update={"kind": "gitea"})

    outcome = delivery(monkeypatch, github=gitea).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert not outcome.is_final


def test_status_is_sent_again_until_github_knows_the_commit(scene, github, monkeypatch):
    scene.started(STATUS)
    by = delivery(monkeypatch, github=at_github(github.url))
    github.next_answers, github.next_words = [422], f"No commit found for SHA: {SHA}"
    first = claimed(scene)

    assert send_again(scene, first, by.send(first), by) == Sent(status=201)
    assert github.states() == ["pending"]


@pytest.mark.parametrize(
    "words",
    [
        f"Bad credentials: {TOKEN}",
        f"The header was Bearer {TOKEN[:14]}…",
        f"x{TOKEN.replace('-', '%2D')}",
        "x" * 290 + TOKEN,
    ],
)
def test_answer_that_repeats_the_token_is_not_shown(scene, github, monkeypatch, words):
    scene.started(STATUS)
    github.next_answers, github.next_words = [403], words

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert "its text contains a part of the credential and is not shown" in outcome.problem
    assert "ghp" not in outcome.problem


def test_words_of_the_destination_are_cut_and_escaped(scene, github, monkeypatch):
    scene.started(STATUS)
    github.next_answers, github.next_words = [400], 'a"\n\x1b[31m\u202eb' + "x" * 1_000

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    words = "a' \\u001b[31m\\u202eb" + "x" * 1_000
    assert outcome.problem == f'{github.url} answered with the status 400: "{words[:300]}…".'


def test_url_of_a_chat_in_its_answer_is_not_shown(scene, receiver, monkeypatch):
    ended(scene, SLACK)
    monkeypatch.setenv("SLACK_URL", receiver.url("/status/404/secret-of-the-receiver"))
    team = SlackDestination(secret_from="SLACK_URL", allow_http=True)

    outcome = delivery(monkeypatch, team=team).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert "secret-of" not in outcome.problem


def test_answer_that_is_too_large_is_not_read(scene, github, monkeypatch):
    ended(scene, COMMENT)
    github.comments = [{"id": 1, "body": "", "padding": [[]] * 1_000_000}]
    sizes: list[int] = []
    loads = json.loads

    def measured(body):
        sizes.append(len(body))
        return loads(body)

    monkeypatch.setattr("hookmill.results.api.json.loads", measured)

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert outcome == NotSent(problem="The answer with the comments could not be read.", status=200)
    assert max(sizes) <= 1_048_576
    assert len(github.comments) == 1


def test_destination_that_the_factory_may_no_longer_use_gets_nothing(scene, github, monkeypatch):
    scene.started(STATUS)
    destination = at_github(github.url).model_copy(update={"factories": ("another",)})

    outcome = delivery(monkeypatch, github=destination).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert outcome.is_final
    assert "no destination 'github' that the factory may use" in outcome.problem
    assert github.requests == []


def test_repository_that_the_settings_no_longer_allow_gets_nothing(scene, github, monkeypatch):
    ended(scene, COMMENT)

    outcome = delivery(monkeypatch, github=at_github(github.url, "acme/other")).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, github.requests) == (True, [])
    assert "does not allow the repository acme/shop" in outcome.problem


@pytest.mark.parametrize("texts", [{"summary": None}, {"comment": '{"body": ""}'}])
def test_run_without_a_text_has_nothing_to_comment(scene, github, monkeypatch, texts):
    ended(scene, COMMENT, **texts)

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert outcome == NothingToSend(reason="The run wrote no text for a comment.")
    assert github.requests == []


def test_unusable_comment_of_a_run_is_refused(scene, github, monkeypatch):
    ended(scene, COMMENT, comment='{"body": "x", "repository": "evil/shop"}')

    outcome = delivery(monkeypatch, github=at_github(github.url)).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, github.requests) == (True, [])


@pytest.mark.parametrize("token", ["", "token\r\nX-Evil: 1", "tökén"])
def test_unusable_token_is_reported_without_its_value(scene, github, monkeypatch, token):
    ended(scene, COMMENT)
    by = delivery(monkeypatch, github=at_github(github.url))
    monkeypatch.setenv("GITHUB_TOKEN", token)

    outcome = by.send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, github.requests) == (False, [])
    assert not token or token not in outcome.problem


def test_webhook_is_verified_by_the_published_library(scene, receiver, monkeypatch):
    key = ended(scene, WEBHOOK)
    ci = WebhookDestination(url=receiver.url("/hooks?x=1"), allow_http=True, secret_from="CI_SECRET")
    by = delivery(monkeypatch, ci=ci)

    start, end = claimed(scene), None
    assert by.send(start) == Sent(status=200)
    scene.record(start, Sent(status=200))
    end = claimed(scene)
    assert by.send(end) == Sent(status=200)

    messages = [Webhook(SECRET).verify(request.body, request.headers) for request in receiver.requests]
    assert [message["type"] for message in messages] == ["run.started", "run.succeeded"]
    assert [request.headers["webhook-id"] for request in receiver.requests] == [
        f"msg_{key.hex()}_0_1",
        f"msg_{key.hex()}_0_2",
    ]
    assert messages[1]["data"]["summary"] == "# Done\n@octocat"


def test_slack_gets_one_inert_text(scene, receiver, monkeypatch):
    ended(scene, SLACK, summary="<!channel>")
    monkeypatch.setenv("SLACK_URL", receiver.url("/services/secret"))
    team = SlackDestination(secret_from="SLACK_URL", allow_http=True)

    assert delivery(monkeypatch, team=team).send(claimed(scene)) == Sent(status=200)

    [request] = receiver.requests
    assert request.path == "/services/secret"
    assert "&lt;!channel&gt;" in json.loads(request.body)["text"]


@pytest.mark.parametrize("url", ["", "hooks.slack.example/secret", "http://hooks.slack.example/secret"])
def test_unusable_url_of_a_chat_is_reported_without_its_path(scene, monkeypatch, url):
    ended(scene, SLACK)
    monkeypatch.setenv("SLACK_URL", url)

    outcome = delivery(monkeypatch, team=SlackDestination(secret_from="SLACK_URL")).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert "SLACK_URL" in outcome.problem
    assert "secret" not in outcome.problem


def test_destination_that_refuses_connections_has_not_got_the_message(scene, monkeypatch):
    ended(scene, COMMENT)
    with closed_port() as port:
        outcome = delivery(monkeypatch, github=at_github(f"http://127.0.0.1:{port}")).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, outcome.may_have_arrived) == (False, False)


def test_destination_that_does_not_answer_may_have_got_the_message(scene, receiver, monkeypatch):
    ended(scene, WEBHOOK)
    ci = WebhookDestination(url=receiver.url("/silent"), allow_http=True, secret_from="CI_SECRET")

    outcome = delivery(monkeypatch, ci=ci, seconds=2).send(claimed(scene))

    assert isinstance(outcome, NotSent)
    assert (outcome.is_final, outcome.may_have_arrived) == (False, True)


def test_sender_sends_what_is_due_and_reports_what_it_gives_up(scene, github, monkeypatch):
    key = ended(scene, COMMENT)
    failures: list[str] = []
    sender = ResultSender(
        scene.backlog.database,
        delivery(monkeypatch, github=at_github(github.url)).send,
        lambda: scene.now,
        public_url="https://hooks.test",
        report_failure=lambda _where, error: failures.append(str(error)),
    )
    github.next_answers = [404]

    assert sender.send_next()
    assert not sender.send_next()

    assert scene.states(key) == ["refused"]
    assert failures == [
        f"The github_comment of run_{key.hex()} for the destination 'github' was given up: "
        f'{github.url} answered with the status 404: "words-of-the-receiver".'
    ]
    assert scene.backlog.run(key).state is RunState.SUCCEEDED


def send_to_chat(store: str, url: str, now: int):
    """Send the message that is due to the chat, in a process of its own."""
    os.environ["SLACK_URL"] = url
    by = ResultDelivery(
        {"team": SlackDestination(secret_from="SLACK_URL", allow_http=True)},
        tls=ssl.create_default_context,
        now_us=lambda: now,
    )
    with open_database(store) as database:
        ResultSender(
            database, by.send, lambda: now, public_url="https://hooks.test", report_failure=lambda *_: None
        ).send_next()


def test_message_of_a_sender_that_is_killed_is_sent_again_and_marked(scene, receiver, monkeypatch):
    monkeypatch.setenv("SLACK_URL", "")
    key = ended(scene, SLACK)
    arguments = (scene.backlog.url, receiver.url("/held"))
    killed = fork_context().Process(target=send_to_chat, args=(*arguments, scene.now))
    killed.start()
    until(lambda: receiver.requests, "the receiver holds the request")
    killed.kill()
    killed.join()
    receiver.release.set()
    scene.advance(CLAIM_US / 1_000_000)

    send_to_chat(*arguments, scene.now)

    first, second = receiver.requests
    assert (killed.exitcode, first.body) == (-signal.SIGKILL, second.body)
    (result,) = scene.deliveries(key)
    assert (result.state, result.is_uncertain) == ("sent", True)
    assert [(attempt.status, attempt.problem) for attempt in result.attempts] == [(None, DIED), (200, None)]


def test_message_that_a_stopping_worker_cuts_off_may_be_sent_again(scene, receiver, monkeypatch):
    monkeypatch.setenv("SLACK_URL", receiver.url("/held"))
    key = ended(scene, SLACK)
    sender = ResultSender(
        scene.backlog.database,
        delivery(monkeypatch, team=SlackDestination(secret_from="SLACK_URL", allow_http=True)).send,
        lambda: scene.now,
        public_url="https://hooks.test",
        report_failure=lambda *_: None,
    )
    sender.executor = WORKER
    sender.start()
    sender.wake()
    until(lambda: receiver.requests, "the receiver holds the request")

    sender.close(0)

    (result,) = scene.deliveries(key)
    assert (result.state, result.is_uncertain, result.problem) == ("waiting", True, DIED)
    receiver.release.set()
    until(lambda: scene.states(key) == ["sent"], "the thread has recorded the response after all")
