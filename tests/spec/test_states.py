"""Enabled, disabled, deleted: a change takes effect in every process before it returns."""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill import ingress
from hookmill.domain.errors import Conflict, NotFound
from hookmill.domain.webhook import AuthMode
from hookmill.management import WebhookWithSecret
from tests.spec import shows
from tests.support.world import World


def disable(world: World) -> None:
    world.management.webhooks.set_enabled(world.may, "source", False)


def enable(world: World) -> None:
    world.management.webhooks.set_enabled(world.may, "source", True)


def delete(world: World) -> None:
    world.management.webhooks.delete(world.may, "source")


def disable_and_enable(world: World) -> None:
    disable(world)
    enable(world)


STOPPING = pytest.mark.parametrize("stop", [disable, delete])


@shows("STATE-1")
def test_webhook_is_enabled_at_first_then_disabled_or_deleted(world):
    made = world.webhook()
    states = [made.webhook.state]
    for change in (disable, enable, disable, delete):
        change(world)
        states.append(world.management.webhooks.get(world.may, made.webhook.uid).state)

    assert states == ["enabled", "disabled", "enabled", "disabled", "deleted"]


@shows("STATE-2")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_disabled_webhook_answers_404_immediately(world, mode):
    made = world.webhook(auth_mode=mode)
    before = world.post(made, b"1").status

    disable(world)

    assert (before, world.post(made, b"2").status, len(world.log(made))) == (202, 404, 1)


@shows("STATE-4")
def test_reenabled_webhook_accepts_deliveries_again(world):
    made = world.webhook()
    disable(world)
    stopped = world.post(made).status

    enable(world)

    assert (stopped, world.post(made).status) == (404, 202)


def test_repeated_toggle_changes_nothing(world):
    made = world.webhook()
    enable(world)
    still_enabled = world.post(made).status
    disable(world)
    disable(world)

    assert (still_enabled, world.post(made).status) == (202, 404)


@shows("STATE-3")
def test_disabling_leaves_automations_and_history_unchanged(world):
    made = world.webhook()
    world.automation("triage", made)
    answer = world.post(made, b"[1]")
    before = world.management.automations.all(world.may), world.log(made), world.runs(made)

    disable(world)

    assert (world.management.automations.all(world.may), world.log(made), world.runs(made)) == before
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"


@shows("STATE-5")
@pytest.mark.parametrize("before", [enable, disable])
def test_deleted_webhook_answers_404_immediately(world, before):
    made = world.webhook()
    world.post(made)
    before(world)

    delete(world)

    assert world.post(made).status == 404


@shows("STATE-6", "AUTOMATION-8")
def test_automation_of_a_deleted_webhook_warns_and_starts_no_run(world):
    made, other = world.webhook(), world.webhook("other")
    automation = world.automation("triage", made, other)

    delete(world)

    assert [each.name for each in world.management.automations.all(world.may)] == ["triage"]
    assert world.management.automations.warnings(world.may, automation) == [
        f"'source' ({made.webhook.uid}) is deleted, so it starts no runs."
    ]
    assert (world.post(made).status, world.runs(made)) == (404, [])
    assert (world.post(other).status, len(world.runs(other))) == (202, 1)


def test_deleted_webhooks_history_stays_readable(world):
    made = world.webhook()
    world.automation("triage", made)
    answer = world.post(made, b"[1]")

    delete(world)

    assert world.labels(made) == ["Accepted"]
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"
    assert len(world.runs(made)) == 1


@shows("STATE-5")
def test_deleted_webhook_stays_deleted(world):
    made = world.webhook()
    delete(world)
    uid = made.webhook.uid

    for change in (
        lambda: world.management.webhooks.set_enabled(world.may, uid, True),
        lambda: world.management.webhooks.set_enabled(world.may, uid, False),
        lambda: world.management.webhooks.rotate(world.may, uid),
        lambda: world.management.webhooks.delete(world.may, uid),
    ):
        with pytest.raises(Conflict, match="is permanently deleted"):
            change()

    assert world.management.webhooks.get(world.may, uid).state == "deleted"


@shows("WEBHOOK-3")
def test_deleted_webhooks_name_is_reusable_and_its_uid_is_not(world):
    old = world.webhook()
    delete(world)

    new = world.webhook()

    assert new.webhook.uid != old.webhook.uid
    assert (world.post(old).status, world.post(new).status) == (404, 202)
    assert world.management.webhooks.get(world.may, "source").uid == new.webhook.uid


def test_deleted_webhook_is_listed_only_on_request(world):
    made = world.webhook()
    delete(world)

    with pytest.raises(NotFound):
        world.management.webhooks.get(world.may, "source")
    assert world.management.webhooks.all(world.may) == []
    assert [each.uid for each in world.management.webhooks.all(world.may, with_deleted=True)] == [made.webhook.uid]


@shows("STATE-2", "STATE-5")
@STOPPING
def test_webhook_stopped_in_one_process_answers_404_in_all(world, stop):
    other = world.beside()
    made = world.webhook()
    before = [each.post(made, b"%d" % i).status for i, each in enumerate((world, other))]

    stop(other)

    assert before == [202, 202]
    assert [each.post(made, b"2").status for each in (world, other)] == [404, 404]


@shows("STATE-4")
def test_webhook_enabled_in_one_process_accepts_deliveries_in_all(world):
    other = world.beside()
    made = world.webhook()
    disable(world)
    before = [each.post(made).status for each in (world, other)]

    enable(other)

    assert before == [404, 404]
    assert [each.post(made).status for each in (world, other)] == [202, 202]


@STOPPING
def test_delivery_gets_404_if_its_webhook_is_stopped_meanwhile(world, stop):
    made = world.webhook()
    world.automation("triage", made)
    world.post(made, b"0")

    answer = world.post(made, in_the_middle(lambda: stop(world)))

    assert answer.status == 404
    assert (len(world.log(made)), len(world.runs(made))) == (1, 1)


def test_delivery_is_accepted_if_its_webhook_is_reenabled_meanwhile(world):
    made = world.webhook()

    answer = world.post(made, in_the_middle(lambda: disable_and_enable(world)))

    assert (answer.status, len(world.log(made))) == (202, 1)


def test_automation_created_during_a_delivery_gets_a_run(world):
    made = world.webhook()
    world.post(made, b"0")

    world.post(made, in_the_middle(lambda: world.automation("triage", made)))

    assert len(world.runs(made)) == 1


@pytest.mark.parametrize("how", ["disabled", "deleted", "turned elsewhere"])
def test_automation_withdrawn_during_a_delivery_gets_no_run(world, how):
    made, elsewhere = world.webhook(), world.webhook("elsewhere")
    automation = world.automation("triage", made)
    world.post(elsewhere)
    triggers = [{"provider": "webhook", "event": "received", "filter": {"webhook_ids": [elsewhere.webhook.uid]}}]
    changes: dict[str, Callable[[], object]] = {
        "disabled": lambda: world.management.automations.set_enabled(world.may, "triage", False),
        "deleted": lambda: world.management.automations.delete(world.may, "triage"),
        "turned elsewhere": lambda: world.management.automations.change(world.may, "triage", triggers=triggers),
    }

    answer = world.post(made, in_the_middle(changes[how]))

    assert (answer.status, world.runs(made)) == (202, [])
    assert automation.name == "triage"


def test_webhook_that_never_stops_changing_is_answered_503(world, monkeypatch):
    monkeypatch.setattr(ingress, "REEVALUATE_SECONDS_MAX", 0.2)
    made = world.webhook()
    world.post(made, b"0")
    world.clock.advance(seconds=1)
    confirmed = world.snapshot.revalidate

    def confirmed_and_changed_again(uid):
        answer = confirmed(uid)
        answer.add_done_callback(lambda _: disable_and_enable(world))
        return answer

    world.snapshot.revalidate = confirmed_and_changed_again

    assert world.post(made, in_the_middle(lambda: disable_and_enable(world))).status == 503
    assert world.labels(made) == ["Accepted"]


ROUNDS = 15


@shows("STATE-2", "STATE-5")
@STOPPING
def test_no_delivery_is_accepted_after_a_concurrent_stop_returns(world, stop):
    """After `stop` has returned, this process and another answer 404 and write no row."""
    other = world.beside()
    for made, after in racing(world, lambda _: stop(world)):
        rows = len(world.log(made))
        assert [each.post(made, after).status for each in (world, other)] == [404, 404]
        assert len(world.log(made)) == rows
        delete_if_there(world)


@shows("AUTH-5")
def test_old_secret_is_refused_after_a_concurrent_rotation_returns(world):
    other = world.beside()
    rotated: list[WebhookWithSecret] = []
    for made, after in racing(world, lambda _: rotated.append(world.management.webhooks.rotate(world.may, "source"))):
        assert [each.post(made, after).status for each in (world, other)] == [401, 401]
        assert [each.post(rotated[-1], after).status for each in (world, other)] == [202, 202]
        delete(world)


def test_new_automation_gets_every_delivery_after_its_creation_returns(world):
    for made, after in racing(world, lambda made: world.automation("triage", made)):
        seen = {run.delivery_key for run in world.runs(made)}
        answer = world.post(made, after)
        assert len(world.management.runs.of_delivery(world.may, answer.delivery_id)) == 1
        assert seen <= {row.key for row in world.log(made)}
        world.management.automations.delete(world.may, "triage")
        delete(world)


def test_webhook_deleted_during_toggles_stays_deleted(world):
    for _ in range(ROUNDS):
        made = world.webhook()
        with ThreadPoolExecutor() as people:
            people.submit(toggled, world, made.webhook.uid)
            world.management.webhooks.delete(world.may, made.webhook.uid)
        assert world.management.webhooks.get(world.may, made.webhook.uid).state == "deleted"
        assert world.post(made).status == 404


def toggled(world: World, uid: str) -> None:
    with contextlib.suppress(Conflict):
        for no in range(20):
            world.management.webhooks.set_enabled(world.may, uid, bool(no % 2))


def racing(world: World, change: Callable[[WebhookWithSecret], object]) -> Iterator[tuple[WebhookWithSecret, bytes]]:
    """Rounds: each posts to a webhook while `change` happens. Yields the webhook, and the body of one more delivery."""
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    for no in range(ROUNDS):
        made = world.webhook()
        world.post(made, b'"first"')
        changed = threading.Timer(chance.random() * 0.01, change, [made])
        changed.start()
        answers = world.post_many([(made, b"[%d, %d]" % (no, i)) for i in range(25)])
        changed.join()
        accepted = [answer.delivery_id for answer in answers if answer.status == 202]
        assert {answer.status for answer in answers} <= {202, 401, 404}
        kept = {f"dlv_{row.key.hex()}" for row in world.log(made) if row.label.wording == "Accepted"}
        assert kept >= set(accepted)
        assert len(kept) == len(accepted) + 1
        world.clock.advance(seconds=61)
        yield made, b"[%d]" % no


def delete_if_there(world: World) -> None:
    for webhook in world.management.webhooks.all(world.may):
        world.management.webhooks.delete(world.may, webhook.uid)


def in_the_middle(change: Callable[[], object]) -> Iterator[bytes]:
    """A body that is interrupted by a change while it arrives."""
    yield b"[1"
    change()
    yield b"]"
