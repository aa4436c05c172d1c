"""Every act of management leaves a line: who, what, when, through which channel, from which address."""

import pytest

from hookmill.domain.errors import Conflict, HookmillError
from hookmill.domain.permission import MayAdminister, MayManage, Role
from tests.support.world import World

SECRET = "a-secret-that-nobody-reads-again-0123456789"


def actions(world: World) -> list[str]:
    entries = world.management.audit.of_team(world.management.access.operator_of_team(), limit=1000)
    return [entry.action for entry in reversed(entries)]


def test_details_stored_under_former_names_are_read_under_their_names(world: World, admin: MayAdminister):
    stored = '{"authMode": "signature", "signatureScheme": "github", "secretName": "X", "deliveryIdHeader": null}'
    world.webhook("source")
    with world.database.write() as tx:
        tx.run("UPDATE audit_log SET details = :details WHERE action = 'webhook.create'", details=stored)

    entry, *_ = world.management.audit.of_team(admin)

    assert dict(entry.details) == {
        "auth_mode": "signature",
        "signature_scheme": "github",
        "secret_name": "X",
        "delivery_id_header": None,
    }


def test_each_change_is_a_line_in_its_order(world: World, admin: MayAdminister):
    manage = world.management
    made = world.webhook("source", secret=SECRET)
    uid = made.webhook.uid
    manage.webhooks.rename(world.may, uid, "origin")
    manage.webhooks.set_enabled(world.may, uid, False)
    manage.webhooks.set_enabled(world.may, uid, True)
    manage.webhooks.rotate(world.may, uid, SECRET + "2")
    manage.secrets.replace(world.may, "WEBHOOK_SOURCE_SECRET", SECRET + "3")
    manage.webhooks.sync(world.may, uid)
    made_automation = world.automation("triage", made)
    delivery_id = world.post(made, token=SECRET + "3").delivery_id
    manage.automations.change(world.may, "triage", prompt="Look twice.")
    manage.log.replay(world.may, delivery_id)
    [run, _] = manage.runs.of_delivery(world.may, delivery_id)
    manage.runs.cancel(world.may, f"run_{run.id.hex()}")
    manage.automations.delete(world.may, made_automation.id)
    manage.webhooks.delete(world.may, uid)
    manage.secrets.delete(world.may, "WEBHOOK_SOURCE_SECRET")
    key = manage.keys.create(admin, "ci", Role.VIEWER, factory="default")
    manage.keys.revoke(admin, key.key.id)
    member = manage.members.add(admin, "ada@example.com", "Ada")
    manage.members.set_role(admin, member.id, "default", Role.MANAGER)
    manage.members.remove(admin, member.id)

    assert actions(world) == [
        "secret.create",
        "webhook.create",
        "webhook.rename",
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


def test_a_line_says_who_what_when_and_from_where(world: World, manager: MayManage):
    world.webhook("source")
    world.clock.advance(seconds=7)

    world.management.webhooks.set_enabled(manager, "source", False)

    entry = world.management.audit.of_factory(world.may)[0]
    webhook = world.management.webhooks.get(world.may, "source")
    assert (entry.actor_kind, entry.actor_name) == ("key", "a manager's")
    assert (entry.channel, entry.client) == ("api", "192.0.2.1")
    assert (entry.action, entry.subject_id, entry.subject_name) == ("webhook.disable", webhook.uid, "source")
    assert entry.at == world.clock.now
    assert entry.factory_name == "default"


def test_what_was_so_already_leaves_no_line(world: World):
    world.webhook("source")
    before = actions(world)

    world.management.webhooks.set_enabled(world.may, "source", True)
    world.management.webhooks.rename(world.may, "source", "source")
    world.management.webhooks.sync(world.may, "source")

    assert actions(world) == before


def test_what_was_refused_leaves_no_line(world: World):
    world.webhook("source")
    before = actions(world)

    with pytest.raises(Conflict):
        world.webhook("source")
    with pytest.raises(HookmillError):
        world.management.webhooks.delete(world.may, "nothing")

    assert actions(world) == before


def test_no_line_holds_a_secret(world: World):
    world.webhook("source", secret=SECRET)
    world.management.webhooks.rotate(world.may, "source", SECRET + "2")
    world.management.secrets.create(world.may, "OTHER", SECRET + "3")

    with world.database.read() as tx:
        kept = " ".join(str(dict(row)) for row in tx.all("SELECT * FROM audit_log"))

    assert "webhook.rotate" in kept
    assert SECRET not in kept


def test_a_factorys_lines_are_its_own(world: World):
    elsewhere = world.elsewhere()
    world.management.webhooks.create(elsewhere, "theirs")
    world.webhook("ours")

    ours = [entry.subject_name for entry in world.management.audit.of_factory(world.may)]

    assert ours == ["ours", "WEBHOOK_OURS_SECRET"]


def test_lines_come_page_by_page(world: World):
    for number in range(5):
        world.management.secrets.create(world.may, f"SECRET_{number}")

    first = world.management.audit.of_factory(world.may, limit=2)
    second = world.management.audit.of_factory(world.may, before=first[-1].key, limit=2)
    third = world.management.audit.of_factory(world.may, before=second[-1].key, limit=2)

    names = [entry.subject_name for page in (first, second, third) for entry in page]
    assert names == ["SECRET_4", "SECRET_3", "SECRET_2", "SECRET_1", "SECRET_0"]
