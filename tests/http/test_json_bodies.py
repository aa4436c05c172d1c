"""Hundreds of bodies, each decided by RFC 8259: what is JSON is accepted and kept as it came, all else is a 400."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.management import Management, WebhookWithSecret
from tests.domain.json_corpus import CORPUS, Body
from tests.support.service import Answer, Service, operator


def kind_of(body: Body) -> str:
    return body.name.partition(":")[0]


@pytest.fixture(scope="module")
def webhook(management: Management) -> WebhookWithSecret:
    return management.webhooks.create(operator(management), "JSON")


@pytest.mark.parametrize("kind", sorted({kind_of(body) for body in CORPUS}))
def test_a_body_is_answered_as_the_grammar_decides(
    service: Service, management: Management, webhook: WebhookWithSecret, kind: str
):
    for body in [body for body in CORPUS if kind_of(body) == kind]:
        answer = post(service, webhook, body)

        assert verdict(answer) == ("accepted" if body.accepted else "invalid_json"), body.name
        newest = management.log.newest(operator(management), webhook=webhook.webhook.uid, limit=1)[0]
        assert newest.label.wording == ("Accepted" if body.accepted else "Rejected (invalid JSON)"), body.name
        assert newest.size == len(body.body), body.name
        if body.accepted:
            assert management.log.payload(operator(management), answer.delivery_id) == body.body, body.name


def test_many_bodies_at_once_are_decided_the_same(service: Service, management: Management):
    may = operator(management)
    webhook = management.webhooks.create(may, "much JSON")

    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(lambda body: post(service, webhook, body), CORPUS))

    decided = [verdict(answer) for answer in answers]
    assert decided == ["accepted" if body.accepted else "invalid_json" for body in CORPUS]
    pairs = [(body, answer) for body, answer in zip(CORPUS, answers, strict=True) if body.accepted]
    kept = [management.log.payload(may, answer.delivery_id) for _, answer in pairs]
    assert kept == [body.body for body, _ in pairs]


def test_there_are_hundreds_of_bodies_of_both_kinds():
    accepted = [body for body in CORPUS if body.accepted]

    assert len(accepted) >= 100
    assert len(CORPUS) - len(accepted) >= 200


def post(service: Service, webhook: WebhookWithSecret, body: Body) -> Answer:
    """The body as an event of its own: equal bodies would be duplicates, and only the first of them kept."""
    return service.post(webhook, body.body, headers={"X-Service-Delivery-Id": f"body {CORPUS.index(body)}"})


def verdict(answer: Answer) -> str:
    """`accepted`, or the code of the problem; the status and the content type must agree with it."""
    if answer.status == 202:
        assert set(answer.json) == {"delivery_id"}
        return "accepted"
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    return str(answer.json["code"])
