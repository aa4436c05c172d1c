"""Enabled, disabled and deleted webhooks. A change takes effect in every process before it returns."""

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
from tests.support.automations import automation_changed
from tests.support.triggers import received
from tests.support.world import World


def disable(world: World):
    world.management.webhooks.set_enabled(world.may, "source", False)


def enable(world: World):
    world.management.webhooks.set_enabled(world.may, "source", True)


def delete(world: World):
    world.management.webhooks.delete(world.may, "source")


def disable_and_enable(world: World):
    disable(world)
    enable(world)


EVERY_STOP = pytest.mark.parametrize("stop", [disable, delete])
ROUNDS = 15
"""How often a change races with deliveries."""


@shows("STATE-1")
def test_new_webhook_is_enabled_and_can_be_disabled_and_deleted(world):
    webhook = world.webhook()
    states = [webhook.webhook.state]
    for change in (disable, enable, disable, delete):
        change(world)
        states.append(world.management.webhooks.get(world.may, webhook.webhook.uid).state)

    assert states == ["enabled", "disabled", "enabled", "disabled", "deleted"]


@shows("STATE-2")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_disabled_webhook_answers_404_immediately(world, mode):
    webhook = world.webhook(auth_mode=mode)
    before = world.post(webhook, b"1").status

    disable(world)

    assert (before, world.post(webhook, b"2").status, len(world.log(webhook))) == (202, 404, 1)


@shows("STATE-4")
def test_reenabled_webhook_accepts_deliveries_again(world):
    webhook = world.webhook()
    disable(world)
    while_disabled = world.post(webhook).status

    enable(world)

    assert (while_disabled, world.post(webhook).status) == (404, 202)


def test_repeated_toggle_has_no_further_effect(world):
    webhook = world.webhook()
    enable(world)
    while_enabled = world.post(webhook).status
    disable(world)
    disable(world)

    assert (while_enabled, world.post(webhook).status) == (202, 404)


@shows("STATE-3")
def test_disabling_leaves_automations_deliveries_and_runs_unchanged(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    answer = world.post(webhook, b"[1]")
    before = world.management.automations.all(world.may), world.log(webhook), world.runs(webhook)

    disable(world)

    assert (world.management.automations.all(world.may), world.log(webhook), world.runs(webhook)) == before
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"


@shows("STATE-5")
@pytest.mark.parametrize("before", [enable, disable])
def test_deleted_webhook_answers_404_immediately(world, before):
    webhook = world.webhook()
    world.post(webhook)
    before(world)

    delete(world)

    assert world.post(webhook).status == 404


@shows("STATE-6", "AUTOMATION-8")
def test_automation_of_a_deleted_webhook_warns_and_starts_no_run(world):
    webhook, other = world.webhook(), world.webhook("other")
    automation = world.automation("triage", webhook, other)

    delete(world)

    assert [each.name for each in world.management.automations.all(world.may)] == ["triage"]
    assert world.management.automations.warnings(world.may, automation) == [
        f"'source' ({webhook.webhook.uid}) is deleted, so it starts no runs."
    ]
    assert (world.post(webhook).status, world.runs(webhook)) == (404, [])
    assert (world.post(other).status, len(world.runs(other))) == (202, 1)


def test_deleted_webhooks_history_stays_readable(world):
    webhook = world.webhook()
    world.automation("triage", webhook)
    answer = world.post(webhook, b"[1]")

    delete(world)

    assert world.labels(webhook) == ["Accepted"]
    assert world.management.log.payload(world.may, answer.delivery_id) == b"[1]"
    assert len(world.runs(webhook)) == 1


@shows("STATE-5")
def test_deleted_webhook_stays_deleted(world):
    webhook = world.webhook()
    delete(world)
    uid = webhook.webhook.uid

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
    webhook = world.webhook()
    delete(world)

    with pytest.raises(NotFound):
        world.management.webhooks.get(world.may, "source")
    assert world.management.webhooks.all(world.may) == []
    assert [each.uid for each in world.management.webhooks.all(world.may, with_deleted=True)] == [webhook.webhook.uid]


@shows("STATE-2", "STATE-5")
@EVERY_STOP
def test_webhook_stopped_in_one_process_answers_404_in_all(world, stop):
    other = world.another_process()
    webhook = world.webhook()
    before = [each.post(webhook, b"%d" % i).status for i, each in enumerate((world, other))]

    stop(other)

    assert before == [202, 202]
    assert [each.post(webhook, b"2").status for each in (world, other)] == [404, 404]


@shows("STATE-4")
def test_webhook_enabled_in_one_process_accepts_deliveries_in_all(world):
    other = world.another_process()
    webhook = world.webhook()
    disable(world)
    before = [each.post(webhook).status for each in (world, other)]

    enable(other)

    assert before == [404, 404]
    assert [each.post(webhook).status for each in (world, other)] == [202, 202]


@EVERY_STOP
def test_delivery_gets_404_if_its_webhook_is_stopped_while_it_arrives(world, stop):
    webhook = world.webhook()
    world.automation("triage", webhook)
    world.post(webhook, b"0")

    answer = world.post(webhook, interrupted_body(lambda: stop(world)))

    assert answer.status == 404
    assert (len(world.log(webhook)), len(world.runs(webhook))) == (1, 1)


def test_delivery_is_accepted_if_its_webhook_is_reenabled_in_time(world):
    webhook = world.webhook()

    answer = world.post(webhook, interrupted_body(lambda: disable_and_enable(world)))

    assert (answer.status, len(world.log(webhook))) == (202, 1)


def test_automation_created_during_a_delivery_gets_a_run(world):
    webhook = world.webhook()
    world.post(webhook, b"0")

    world.post(webhook, interrupted_body(lambda: world.automation("triage", webhook)))

    assert len(world.runs(webhook)) == 1


@pytest.mark.parametrize("change", ["disabled", "deleted", "given another webhook"])
def test_automation_withdrawn_during_a_delivery_gets_no_run(world, change):
    webhook, other = world.webhook(), world.webhook("other")
    world.automation("triage", webhook)
    world.post(other)
    triggers = [received(other.webhook.uid)]
    changes: dict[str, Callable[[], object]] = {
        "disabled": lambda: world.management.automations.set_enabled(world.may, "triage", False),
        "deleted": lambda: world.management.automations.delete(world.may, "triage"),
        "given another webhook": lambda: automation_changed(world.management, world.may, "triage", triggers=triggers),
    }

    answer = world.post(webhook, interrupted_body(changes[change]))

    assert (answer.status, world.runs(webhook)) == (202, [])


def test_webhook_that_changes_continually_answers_503(world, monkeypatch):
    monkeypatch.setattr(ingress, "REEVALUATE_SECONDS_MAX", 0.2)
    webhook = world.webhook()
    world.post(webhook, b"0")
    world.clock.advance(seconds=1)
    revalidate = world.snapshot.revalidate

    def revalidate_before_another_change(uid):
        revalidated = revalidate(uid)
        revalidated.add_done_callback(lambda _: disable_and_enable(world))
        return revalidated

    world.snapshot.revalidate = revalidate_before_another_change

    assert world.post(webhook, interrupted_body(lambda: disable_and_enable(world))).status == 503
    assert world.labels(webhook) == ["Accepted"]


@shows("STATE-2", "STATE-5")
@EVERY_STOP
def test_no_delivery_is_accepted_after_a_concurrent_stop_returns(world, stop):
    other = world.another_process()
    for webhook, body in races(world, lambda _: stop(world)):
        rows = len(world.log(webhook))
        assert [each.post(webhook, body).status for each in (world, other)] == [404, 404]
        assert len(world.log(webhook)) == rows
        delete_all(world)


@shows("AUTH-5")
def test_old_secret_is_refused_after_a_concurrent_rotation_returns(world):
    other = world.another_process()
    rotated: list[WebhookWithSecret] = []
    for webhook, body in races(world, lambda _: rotated.append(world.management.webhooks.rotate(world.may, "source"))):
        assert [each.post(webhook, body).status for each in (world, other)] == [401, 401]
        assert [each.post(rotated[-1], body).status for each in (world, other)] == [202, 202]
        delete(world)


def test_new_automation_gets_every_delivery_after_its_creation_returns(world):
    for webhook, body in races(world, lambda webhook: world.automation("triage", webhook)):
        keys_of_runs = {run.delivery_key for run in world.runs(webhook)}
        answer = world.post(webhook, body)
        assert len(world.management.runs.of_delivery(world.may, answer.delivery_id)) == 1
        assert keys_of_runs <= {row.key for row in world.log(webhook)}
        world.management.automations.delete(world.may, "triage")
        delete(world)


def test_webhook_deleted_during_toggles_stays_deleted(world):
    for _ in range(ROUNDS):
        webhook = world.webhook()
        with ThreadPoolExecutor() as thread:
            thread.submit(toggle_repeatedly, world, webhook.webhook.uid)
            world.management.webhooks.delete(world.may, webhook.webhook.uid)
        assert world.management.webhooks.get(world.may, webhook.webhook.uid).state == "deleted"
        assert world.post(webhook).status == 404


def toggle_repeatedly(world: World, uid: str):
    with contextlib.suppress(Conflict):
        for no in range(20):
            world.management.webhooks.set_enabled(world.may, uid, bool(no % 2))


def races(world: World, change: Callable[[WebhookWithSecret], object]) -> Iterator[tuple[WebhookWithSecret, bytes]]:
    """Change a new webhook while deliveries arrive, `ROUNDS` times. Yields it, and a body for a later delivery."""
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    for no in range(ROUNDS):
        webhook = world.webhook()
        world.post(webhook, b'"first"')
        timer = threading.Timer(chance.random() * 0.01, change, [webhook])
        timer.start()
        answers = world.post_many([(webhook, b"[%d, %d]" % (no, i)) for i in range(25)])
        timer.join()
        accepted = [answer.delivery_id for answer in answers if answer.status == 202]
        assert {answer.status for answer in answers} <= {202, 401, 404}
        logged = {f"dlv_{row.key.hex()}" for row in world.log(webhook) if row.label.wording == "Accepted"}
        assert logged >= set(accepted)
        assert len(logged) == len(accepted) + 1
        world.clock.advance(seconds=61)
        yield webhook, b"[%d]" % no


def delete_all(world: World):
    for webhook in world.management.webhooks.all(world.may):
        world.management.webhooks.delete(world.may, webhook.uid)


def interrupted_body(change: Callable[[], object]) -> Iterator[bytes]:
    """A body during whose arrival the change happens."""
    yield b"[1"
    change()
    yield b"]"
