"""A retry with the same Idempotency-Key gets the first answer, and does not perform the operation again."""

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api.idempotency import STORED_BYTES_MAX
from tests.api.client import PROMPT, Api, StockedFactory
from tests.support.triggers import received

WEBHOOKS = "/factories/default/webhooks"
KEY = {"Idempotency-Key": "6f0c0b9e-5a0e-4f4e-9b0c-2f7a3c1d8e55"}


def test_retry_gets_the_same_answer_byte_for_byte(api):
    first = api.post(WEBHOOKS, {"name": "one"}, headers=KEY)
    retry = api.post(WEBHOOKS, {"name": "one"}, headers=KEY)

    assert (retry.status, retry.body) == (first.status, first.body)
    assert (retry.headers["location"], retry.headers["content-type"]) == (
        first.headers["location"],
        first.headers["content-type"],
    )
    assert retry.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(api.get(WEBHOOKS).json["items"]) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "two"}),
        ("/factories/other/webhooks", {"name": "one"}),
        ("/factories/default/secrets", {"name": "ONE"}),
    ],
    ids=["another body", "another factory", "another kind of resource"],
)
def test_idempotency_key_of_another_request_is_refused(api, path, body):
    api.factory("other")
    api.post(WEBHOOKS, {"name": "one"}, headers=KEY, key=api.admin)
    before = api.get(path, key=api.admin).json

    answer = api.post(path, body, headers=KEY, key=api.admin)

    assert answer.problem == (409, "idempotency_key_reused")
    assert api.get(path, key=api.admin).json == before


def test_two_callers_may_use_the_same_idempotency_key(api):
    other = api.key("another manager", Role.MANAGER, "default")

    first = api.post(WEBHOOKS, {"name": "first"}, headers=KEY)
    second = api.post(WEBHOOKS, {"name": "second"}, headers=KEY, key=other)

    assert (first.status, second.status) == (201, 201)
    assert first.json["secret"] not in second.body.decode()


def test_refused_request_leaves_its_idempotency_key_free(api):
    refused = api.post("/factories/default/webhooks", {"name": "x", "signature_scheme": "github"}, headers=KEY)
    answer = api.post(WEBHOOKS, {"name": "x"}, headers=KEY)

    assert (refused.status, answer.status) == (422, 201)


def test_idempotency_key_expires_after_a_day(api):
    api.post(WEBHOOKS, {"name": "one"}, headers=KEY)
    api.world.clock.advance(days=1, seconds=1)

    assert api.post(WEBHOOKS, {"name": "two"}, headers=KEY).status == 201


@pytest.mark.parametrize("key", ["", " ", "é", "x" * 256], ids=["empty", "blank", "not ASCII", "too long"])
def test_idempotency_key_has_1_to_255_printable_characters(api, key):
    answer = api.post(WEBHOOKS, {"name": "one"}, headers={"Idempotency-Key": key})

    assert answer.status == 422
    assert answer.json["errors"][0]["parameter"] == "Idempotency-Key"


def test_every_creation_can_be_retried(api, stocked):
    trigger = received(stocked.webhook.webhook.uid)
    creations = {
        "/factories": {"name": "new"},
        WEBHOOKS: {"name": "new"},
        f"{WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate": None,
        "/factories/default/secrets": {"name": "NEW"},
        "/factories/default/automations": {"name": "new", "prompt": PROMPT, "triggers": [trigger]},
        f"/factories/default/deliveries/{stocked.delivery}/replay": None,
        "/members": {"email": "new@example.com", "name": "New"},
        "/keys": {"name": "new", "role": "admin"},
    }
    for number, (path, body) in enumerate(creations.items()):
        headers = {"Idempotency-Key": f"creation {number}"}
        first = api.post(path, body, headers=headers, key=api.admin)
        retry = api.post(path, body, headers=headers, key=api.admin)

        assert first.status in (200, 201), path
        assert (retry.status, retry.body) == (first.status, first.body)
        assert retry.headers["idempotency-replayed"] == "true"


def stored_bytes(api: Api) -> int:
    """The size of all stored answers."""
    with api.world.database.read() as tx:
        return sum(len(bytes(row["sealed"])) for row in tx.all("SELECT sealed FROM idempotency_keys"))


def automation(stocked: StockedFactory, prompt: str) -> dict[str, object]:
    trigger = received(stocked.webhook.webhook.uid)
    return {"name": "new", "prompt": prompt, "triggers": [trigger]}


def test_stored_answer_is_hardly_larger_than_the_answer(api, stocked):
    answer = api.post("/factories/default/automations", automation(stocked, '"é"\n' * 5_000), headers=KEY)

    assert answer.status == 201
    assert stored_bytes(api) < len(answer.body) + 500


def test_retry_of_a_large_answer_works_although_it_is_not_stored(api, stocked):
    body = automation(stocked, "é" * (STORED_BYTES_MAX // 2))

    first = api.post("/factories/default/automations", body, headers=KEY)
    retry = api.post("/factories/default/automations", body, headers=KEY)
    other = api.post("/factories/default/automations", body | {"name": "other"}, headers=KEY)

    assert stored_bytes(api) < 1_000
    assert (retry.status, retry.body, retry.headers["location"]) == (201, first.body, first.headers["location"])
    assert retry.headers["idempotency-replayed"] == "true"
    assert other.problem == (409, "idempotency_key_reused")
