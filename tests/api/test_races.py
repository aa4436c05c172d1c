"""Concurrent requests, on both kinds of store: limits are exact, no change is lost, and retries create nothing."""

from tests.api.client import StockedFactory, concurrently

WEBHOOKS = "/factories/default/webhooks"


def test_one_of_two_concurrent_changes_of_one_version_succeeds(each_api):
    stocked = StockedFactory(each_api, each_api.world.may)
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    etag = each_api.get(path).headers["etag"]
    changes = [{"name": "renamed"}, {"delivery_id_header": "X-Other"}]

    answers = concurrently(2, lambda number: each_api.patch(path, changes[number], headers={"If-Match": etag}))

    assert sorted(answer.status for answer in answers) == [200, 412]
    (winner,) = [number for number, answer in enumerate(answers) if answer.status == 200]
    webhook = each_api.get(path).json
    assert webhook["name"] == ("renamed" if winner == 0 else "source of default")
    assert webhook["delivery_id_header"] == ("X-Other" if winner == 1 else None)
    assert answers[1 - winner].json["code"] == "changed"


def test_both_of_two_concurrent_changes_succeed_with_retries(each_api):
    stocked = StockedFactory(each_api, each_api.world.may)
    path = f"/factories/default/automations/{stocked.automation.id}"
    changes = [{"name": "renamed"}, {"prompt": "Another prompt."}]

    def change_with_retries(number: int) -> None:
        is_changed = False
        while not is_changed:
            etag = each_api.get(path).headers["etag"]
            is_changed = each_api.patch(path, changes[number], headers={"If-Match": etag}).status == 200

    concurrently(2, change_with_retries)

    automation = each_api.get(path).json
    assert (automation["name"], automation["prompt"]) == ("renamed", "Another prompt.")


def test_ten_concurrent_retries_create_one_webhook_with_one_answer(each_api):
    answers = concurrently(
        10, lambda _: each_api.post(WEBHOOKS, {"name": "only one"}, headers={"Idempotency-Key": "the same"})
    )

    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].json["secret"]
    assert sorted(answer.headers.get("idempotency-replayed", "") for answer in answers) == [""] + ["true"] * 9
    assert len(each_api.get(WEBHOOKS).json["items"]) == 1
