"""Hundreds of bodies: those that are JSON by RFC 8259 are accepted and stored unchanged, the others get a 400."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.management import WebhookWithSecret
from tests.domain.json_corpus import CORPUS, Body
from tests.support.service import Answer, Service, create_webhook, operator


def kind_of(body: Body) -> str:
    return body.name.partition(":")[0]


@pytest.fixture(scope="module")
def webhook(management):
    return create_webhook(management, "JSON")


@pytest.mark.parametrize("kind", sorted({kind_of(body) for body in CORPUS}))
def test_body_is_accepted_if_and_only_if_it_is_json(service, management, webhook, kind):
    for body in [body for body in CORPUS if kind_of(body) == kind]:
        answer = post(service, webhook, body)

        assert result(answer) == ("accepted" if body.accepted else "invalid_json"), body.name
        newest = management.log.newest(operator(management), webhook=webhook.webhook.uid, limit=1)[0]
        assert newest.label.wording == ("Accepted" if body.accepted else "Rejected (invalid JSON)"), body.name
        assert newest.size == len(body.body), body.name
        if body.accepted:
            assert management.log.payload(operator(management), answer.delivery_id) == body.body, body.name


def test_concurrent_bodies_get_the_same_results(service, management):
    may = operator(management)
    webhook = management.webhooks.create(may, {"name": "much JSON"})

    with ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(lambda body: post(service, webhook, body), CORPUS))

    results = [result(answer) for answer in answers]
    assert results == ["accepted" if body.accepted else "invalid_json" for body in CORPUS]
    pairs = [(body, answer) for body, answer in zip(CORPUS, answers, strict=True) if body.accepted]
    payloads = [management.log.payload(may, answer.delivery_id) for _, answer in pairs]
    assert payloads == [body.body for body, _ in pairs]


def post(service: Service, webhook: WebhookWithSecret, body: Body) -> Answer:
    """Deliver the body with an id of its own, because equal bodies without ids would be Duplicates."""
    return service.post(webhook, body.body, headers={"X-Service-Delivery-Id": f"body {CORPUS.index(body)}"})


def result(answer: Answer) -> str:
    """`accepted`, or the code of the error. Fails unless the status and the content type agree with it."""
    if answer.status == 202:
        assert set(answer.json) == {"delivery_id"}
        return "accepted"
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
    return str(answer.json["code"])
