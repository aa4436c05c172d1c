"""The audit log: every change has a line with its actor, time, channel and client address."""

import pytest

from hookmill.domain.errors import Conflict, HookmillError
from hookmill.domain.permission import Role
from tests.support.automations import automation_changed
from tests.support.world import World

SECRET = "the-secret-of-the-webhook-0123456789"


def actions(world: World) -> list[str]:
    entries = world.management.audit.of_team(world.management.access.operator_of_team(), limit=1000)
    return [entry.action for entry in reversed(entries)]


def test_each_change_adds_a_line_in_order(world, admin):
    management = world.management
    source = world.webhook("source", secret=SECRET)
    uid = source.webhook.uid
    management.webhooks.change(world.may, uid, {"name": "origin"})
    management.webhooks.set_enabled(world.may, uid, False)
    management.webhooks.set_enabled(world.may, uid, True)
    management.webhooks.rotate(world.may, uid, SECRET + "2")
    management.secrets.replace(world.may, "WEBHOOK_SOURCE_SECRET", SECRET + "3")
    management.webhooks.sync(world.may, uid)
    automation = world.automation("triage", source)
    delivery_id = world.post(source, token=SECRET + "3").delivery_id
    automation_changed(management, world.may, "triage", prompt="Look twice.")
    management.log.replay(world.may, delivery_id)
    [run, _] = management.runs.of_delivery(world.may, delivery_id)
    management.runs.cancel(world.may, f"run_{run.id.hex()}")
    management.automations.delete(world.may, automation.id)
    management.webhooks.delete(world.may, uid)
    management.secrets.delete(world.may, "WEBHOOK_SOURCE_SECRET")
    key = management.keys.create(admin, "ci", Role.VIEWER, factory="default")
    management.keys.revoke(admin, key.key.id)
    member = management.members.add(admin, "ada@example.com", "Ada")
    management.members.set_role(admin, member.id, "default", Role.MANAGER)
    management.members.remove(admin, member.id)

    assert actions(world) == [
        "secret.create",
        "webhook.create",
        "webhook.change",
        "webhook.disable",
        "webhook.enable",
        "webhook.rotate",
        "secret.replace",
        "webhook.sync",
        "automation.create",
        "automation.change",
        "delivery.replay",
        "run.cancel",
        "automation.delete",
        "webhook.delete",
        "secret.delete",
        "key.create",
        "key.revoke",
        "member.add",
        "member.set_role",
        "member.remove",
    ]


def test_line_has_actor_action_subject_time_channel_and_client(world, manager):
    world.webhook("source")
    world.clock.advance(seconds=7)

    world.management.webhooks.set_enabled(manager, "source", False)

    entry = world.management.audit.of_factory(world.may)[0]
    webhook = world.management.webhooks.get(world.may, "source")
    assert (entry.actor_kind, entry.actor_name) == ("key", "manager's key")
    assert (entry.channel, entry.client) == ("api", "192.0.2.1")
    assert (entry.action, entry.subject_id, entry.subject_name) == ("webhook.disable", webhook.uid, "source")
    assert entry.at == world.clock.now
    assert entry.factory_name == "default"


def test_operation_that_changes_nothing_adds_no_line(world):
    world.webhook("source")
    before = actions(world)

    world.management.webhooks.set_enabled(world.may, "source", True)
    world.management.webhooks.change(world.may, "source", {"name": "source"})
    world.management.webhooks.sync(world.may, "source")

    assert actions(world) == before


def test_refused_operation_adds_no_line(world):
    world.webhook("source")
    before = actions(world)

    with pytest.raises(Conflict):
        world.webhook("source")
    with pytest.raises(HookmillError):
        world.management.webhooks.delete(world.may, "unknown")

    assert actions(world) == before


def test_audit_log_of_a_factory_has_only_its_own_lines(world):
    other_factory = world.operator_of_new_factory()
    world.management.webhooks.create(other_factory, {"name": "theirs"})
    world.webhook("ours")

    names = [entry.subject_name for entry in world.management.audit.of_factory(world.may)]

    assert names == ["ours", "WEBHOOK_OURS_SECRET"]


def test_pages_of_the_audit_log_continue_after_the_last_line(world):
    for number in range(5):
        world.management.secrets.create(world.may, f"SECRET_{number}")

    first = world.management.audit.of_factory(world.may, limit=2)
    second = world.management.audit.of_factory(world.may, before=first[-1].key, limit=2)
    third = world.management.audit.of_factory(world.may, before=second[-1].key, limit=2)

    names = [entry.subject_name for page in (first, second, third) for entry in page]
    assert names == ["SECRET_4", "SECRET_3", "SECRET_2", "SECRET_1", "SECRET_0"]
