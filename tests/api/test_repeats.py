"""A request that is repeated with its Idempotency-Key is answered again and done once."""

import pytest

from hookmill.domain.permission import Role
from hookmill.web.api.idempotency import STORED_BYTES_MAX
from tests.api.client import PROMPT, Api, Stocked

WEBHOOKS = "/factories/default/webhooks"
KEY = {"Idempotency-Key": "6f0c0b9e-5a0e-4f4e-9b0c-2f7a3c1d8e55"}


def test_a_repeat_gets_the_same_answer_to_the_byte(api: Api):
    first = api.post(WEBHOOKS, {"name": "one"}, headers=KEY)
    again = api.post(WEBHOOKS, {"name": "one"}, headers=KEY)

    assert (again.status, again.body) == (first.status, first.body)
    assert (again.headers["location"], again.headers["content-type"]) == (
        first.headers["location"],
        first.headers["content-type"],
    )
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(api.get(WEBHOOKS).json["items"]) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (WEBHOOKS, {"name": "two"}),
        ("/factories/other/webhooks", {"name": "one"}),
        ("/factories/default/secrets", {"name": "ONE"}),
    ],
    ids=["another body", "another factory", "another noun"],
)
def test_a_key_of_another_request_is_refused(api: Api, path, body):
    api.factory("other")
    api.post(WEBHOOKS, {"name": "one"}, headers=KEY, key=api.admin)
    before = api.get(path, key=api.admin).json

    answer = api.post(path, body, headers=KEY, key=api.admin)

    assert (answer.status, answer.json["code"]) == (409, "idempotency_key_reused")
    assert api.get(path, key=api.admin).json == before


def test_callers_do_not_meet_in_each_others_keys(api: Api):
    other = api.key("another manager", Role.MANAGER, "default")

    mine = api.post(WEBHOOKS, {"name": "mine"}, headers=KEY)
    theirs = api.post(WEBHOOKS, {"name": "theirs"}, headers=KEY, key=other)

    assert (mine.status, theirs.status) == (201, 201)
    assert mine.json["secret"] not in theirs.body.decode()


def test_a_refused_request_uses_no_key_up(api: Api):
    refused = api.post("/factories/default/webhooks", {"name": "x", "signature_scheme": "github"}, headers=KEY)
    answer = api.post(WEBHOOKS, {"name": "x"}, headers=KEY)

    assert (refused.status, answer.status) == (422, 201)


def test_a_key_is_forgotten_after_a_day(api: Api):
    api.post(WEBHOOKS, {"name": "one"}, headers=KEY)
    api.world.clock.advance(days=1, seconds=1)

    assert api.post(WEBHOOKS, {"name": "two"}, headers=KEY).status == 201


@pytest.mark.parametrize("key", ["", " ", "é", "x" * 256], ids=["empty", "blank", "not ASCII", "too long"])
def test_a_key_has_1_to_255_printable_characters(api: Api, key):
    answer = api.post(WEBHOOKS, {"name": "one"}, headers={"Idempotency-Key": key})

    assert answer.status == 422
    assert answer.json["errors"][0]["parameter"] == "Idempotency-Key"


def test_every_creation_can_be_repeated(api: Api, stocked: Stocked):
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
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
        again = api.post(path, body, headers=headers, key=api.admin)

        assert first.status in (200, 201), path
        assert (again.status, again.body) == (first.status, first.body)
        assert again.headers["idempotency-replayed"] == "true"


def kept_bytes(api: Api) -> int:
    """How much the store keeps of all answers."""
    with api.world.database.read() as tx:
        return sum(len(bytes(row["sealed"])) for row in tx.all("SELECT sealed FROM idempotency_keys"))


def automation(stocked: Stocked, prompt: str) -> dict[str, object]:
    trigger = {"provider": "webhook", "event": "received", "filter": {"webhook_ids": [stocked.webhook.webhook.uid]}}
    return {"name": "new", "prompt": prompt, "triggers": [trigger]}


def test_an_answer_is_kept_in_about_as_many_bytes_as_it_has(api: Api, stocked: Stocked):
    answer = api.post("/factories/default/automations", automation(stocked, '"é"\n' * 5_000), headers=KEY)

    assert answer.status == 201
    assert kept_bytes(api) < len(answer.body) + 500


def test_a_large_answer_is_not_kept_and_can_be_repeated_all_the_same(api: Api, stocked: Stocked):
    body = automation(stocked, "é" * (STORED_BYTES_MAX // 2))

    first = api.post("/factories/default/automations", body, headers=KEY)
    again = api.post("/factories/default/automations", body, headers=KEY)
    other = api.post("/factories/default/automations", body | {"name": "other"}, headers=KEY)

    assert kept_bytes(api) < 1_000
    assert (again.status, again.body, again.headers["location"]) == (201, first.body, first.headers["location"])
    assert again.headers["idempotency-replayed"] == "true"
    assert (other.status, other.json["code"]) == (409, "idempotency_key_reused")
