"""Many at once: limits hold, nobody's change is lost, and what is asked for twice is done once. On both stores."""

import itertools

from tests.api.client import Api, Stocked, at_once

WEBHOOKS = "/factories/default/webhooks"


def test_forty_creates_at_once_make_exactly_twenty_webhooks(each_api: Api):
    answers = at_once(40, lambda number: each_api.post(WEBHOOKS, {"name": f"webhook {number}"}))

    assert sorted(answer.status for answer in answers) == [201] * 20 + [409] * 20
    assert {answer.json["code"] for answer in answers if answer.status == 409} == {"limit_reached"}
    assert len(each_api.get(WEBHOOKS).json["items"]) == 20


def test_of_two_edits_of_one_version_only_one_is_made(each_api: Api):
    stocked = Stocked(each_api, each_api.world.may)
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}"
    seen = each_api.get(path).headers["etag"]
    edits = [{"name": "renamed by one"}, {"delivery_id_header": "X-Of-The-Other"}]

    answers = at_once(2, lambda number: each_api.patch(path, edits[number], headers={"If-Match": seen}))

    assert sorted(answer.status for answer in answers) == [200, 412]
    (won,) = [number for number, answer in enumerate(answers) if answer.status == 200]
    now = each_api.get(path).json
    assert now["name"] == ("renamed by one" if won == 0 else "source of default")
    assert now["delivery_id_header"] == ("X-Of-The-Other" if won == 1 else None)
    assert answers[1 - won].json["code"] == "changed"


def test_the_loser_of_two_edits_looks_again_and_then_both_are_kept(each_api: Api):
    stocked = Stocked(each_api, each_api.world.may)
    path = f"/factories/default/automations/{stocked.automation.id}"
    edits = [{"name": "renamed by one"}, {"prompt": "Said by the other."}]

    def until_it_is_done(number: int) -> int:
        for attempt in itertools.count(1):
            seen = each_api.get(path).headers["etag"]
            if each_api.patch(path, edits[number], headers={"If-Match": seen}).status == 200:
                return attempt
        raise AssertionError

    at_once(2, until_it_is_done)

    now = each_api.get(path).json
    assert (now["name"], now["prompt"]) == ("renamed by one", "Said by the other.")


def test_ten_concurrent_repeats_make_one_webhook_with_one_answer(each_api: Api):
    answers = at_once(
        10, lambda _: each_api.post(WEBHOOKS, {"name": "only one"}, headers={"Idempotency-Key": "the same"})
    )

    assert {answer.status for answer in answers} == {201}
    assert len({answer.body for answer in answers}) == 1
    assert answers[0].json["secret"]
    assert sorted(answer.headers.get("idempotency-replayed", "") for answer in answers) == [""] + ["true"] * 9
    assert len(each_api.get(WEBHOOKS).json["items"]) == 1


def test_two_rotations_at_once_leave_one_secret_that_works(each_api: Api):
    stocked = Stocked(each_api, each_api.world.may)
    path = f"{WEBHOOKS}/{stocked.webhook.webhook.uid}/rotate"

    answers = at_once(2, lambda _: each_api.post(path))

    told = [answer.json["secret"] for answer in answers]
    assert len(set(told)) == 2
    accepted = [each_api.world.post(stocked.webhook, f'"{secret}"'.encode(), token=secret).status for secret in told]
    assert sorted(accepted) == [202, 401]
