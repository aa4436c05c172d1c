"""Changes of resources: transactions, limits, definitions by files, and idempotency."""

import pytest

from hookmill.domain.errors import Conflict, Invalid
from hookmill.domain.permission import Channel, Role
from hookmill.domain.webhook import AuthMode
from tests.support.automations import automation_changed, automation_created
from tests.support.triggers import received


def test_changes_in_one_transaction_are_committed_together(world):
    with world.management.one_transaction(world.may):
        world.webhook("one")
        world.webhook("two")
        names_inside = [webhook.name for webhook in world.management.webhooks.all(world.may)]

    assert names_inside == ["one", "two"]
    assert [webhook.name for webhook in world.management.webhooks.all(world.may)] == ["one", "two"]


def test_changes_in_one_transaction_are_rolled_back_together(world):
    with pytest.raises(Conflict), world.management.one_transaction(world.may):
        world.webhook("one")
        world.webhook("one")

    assert world.management.webhooks.all(world.may) == []
    assert world.management.audit.of_factory(world.may) == []


def test_fields_of_a_webhook_change_together_or_not_at_all(world):
    world.webhook("existing")
    world.webhook("source")
    change = world.management.webhooks.change

    with pytest.raises(Conflict):
        change(world.may, "source", {"enabled": False, "delivery_id_header": "X-Event-Id", "name": "existing"})
    unchanged = world.management.webhooks.get(world.may, "source")
    changed = change(world.may, "source", {"enabled": False, "delivery_id_header": "X-Event-Id", "name": "origin"})

    assert (unchanged.state, unchanged.delivery_id_header) == ("enabled", None)
    assert (changed.state, changed.delivery_id_header, changed.name) == ("disabled", "X-Event-Id", "origin")
    assert change(world.may, "origin", {"delivery_id_header": None}).delivery_id_header is None
    assert change(world.may, "origin", {}).name == "origin"


def test_webhook_that_a_new_catalogue_refuses_can_be_changed_where_the_scheme_does_not_matter(world):
    uid = world.webhook("source", auth_mode="signature", signature_scheme="github").webhook.uid
    with world.database.write() as tx:
        tx.run("UPDATE webhooks SET signature_scheme = 'gone' WHERE uid = :uid", uid=uid)
    change = world.management.webhooks.change

    assert change(world.may, uid, {"enabled": False}).state == "disabled"
    assert change(world.may, uid, {"name": "other", "allowed_networks": ["192.0.2.7"]}).name == "other"
    with pytest.raises(Invalid, match="gone"):
        change(world.may, uid, {"event_header": "X-Event-Type"})
    automation = automation_created(world.management, world.may, "reader", triggers=[received(uid, event=["push"])])
    [warning] = world.management.automations.warnings(world.may, automation)
    assert "is disabled" in warning


def test_new_delivery_id_header_applies_immediately_in_every_process(world):
    source = world.webhook("source")
    other_process = world.another_process()
    other_process.post(source, b"0")

    world.management.webhooks.change(world.may, "source", {"delivery_id_header": "X-Event-Id"})

    assert other_process.post(source, b"1", headers={"X-Event-Id": "one"}).status == 202
    world.clock.advance(seconds=1)
    other_process.post(source, b"2", headers={"X-Event-Id": "one"})
    assert world.labels(source)[0] == "Duplicate"


def test_only_files_can_change_the_definitions_of_their_factory(world):
    source = world.webhook("source")
    world.automation("triage", source)
    by_files = world.management.access.operator("default", channel=Channel.FILES)
    world.management.factories.define_by_files(by_files)
    management = world.management

    for change in (
        lambda: world.webhook("another"),
        lambda: management.webhooks.change(world.may, "source", {"name": "origin"}),
        lambda: management.webhooks.delete(world.may, "source"),
        lambda: management.webhooks.change(world.may, "source", {"delivery_id_header": "X-Event-Id"}),
        lambda: world.automation("another", source),
        lambda: automation_changed(management, world.may, "triage", prompt="Look twice."),
        lambda: management.automations.delete(world.may, "triage"),
    ):
        with pytest.raises(Conflict, match="defined by files"):
            change()

    assert management.webhooks.set_enabled(world.may, "source", False).state == "disabled"
    assert management.webhooks.set_enabled(world.may, "source", True).state == "enabled"
    assert management.webhooks.rotate(world.may, "source").secret is not None
    management.secrets.replace(world.may, source.webhook.secret_name)
    assert management.webhooks.sync(world.may, "source").secret_is_current
    assert management.automations.set_enabled(world.may, "triage", False).enabled is False
    assert management.webhooks.change(by_files, "source", {"name": "origin"}).name == "origin"


def test_webhook_keeps_its_uid_and_log_if_its_authentication_changes(world):
    source = world.webhook("source")
    world.post(source)
    world.management.secrets.create(world.may, "TOKEN", "valid-in-a-path-0123456789")
    other_process = world.another_process()
    other_process.post(source, b"1")

    webhook = world.management.webhooks.change(
        world.may, "source", {"auth_mode": "url_token", "secret_name": "TOKEN", "expect_every": "1h"}
    )

    assert (webhook.uid, webhook.auth_mode, webhook.secret_name) == (source.webhook.uid, AuthMode.URL_TOKEN, "TOKEN")
    assert other_process.post(source, b"2").status == 401
    path = f"/webhooks/w/{webhook.uid}/valid-in-a-path-0123456789"
    assert other_process.request("POST", path, body=b"3").status == 202
    assert len(world.log(source)) == 4


def test_change_without_a_difference_adds_no_version(world):
    source = world.webhook("source")
    before = world.automation("triage", source, payload={"action": ["opened"]})

    after = automation_changed(
        world.management,
        world.may,
        "triage",
        prompt=before.prompt,
        triggers=before.spec.as_json()["triggers"],
    )

    assert after.version == before.version == 1


def test_automation_of_another_factory_does_not_change_a_webhook(world):
    source = world.webhook("source")
    other_factory = world.operator_of_new_factory()
    trigger = received(source.webhook.uid)

    automation_created(world.management, other_factory, "theirs", triggers=[trigger])

    assert world.management.webhooks.get(world.may, "source").revision == source.webhook.revision


def test_last_admin_cannot_be_removed(world, admin):
    members = world.management.members
    ada = members.add(admin, "Ada@Example.com ", "Ada", is_admin=True)

    with pytest.raises(Conflict, match="only admin"):
        members.set_admin(admin, ada.id, False)
    with pytest.raises(Conflict, match="only admin"):
        members.remove(admin, "ada@example.com")
    grace = members.add(admin, "grace@example.com", "Grace", is_admin=True)
    members.remove(admin, ada.id)

    assert [member.id for member in members.all(admin)] == [grace.id]


def test_member_has_at_most_one_role_in_a_factory(world, admin):
    members = world.management.members
    ada = members.add(admin, "ada@example.com", "Ada")
    with pytest.raises(Conflict):
        members.add(admin, "ADA@example.com", "Another Ada")

    members.set_role(admin, ada.id, "default", Role.VIEWER)
    promoted = members.set_role(admin, ada.id, "default", Role.MANAGER)
    without_role = members.set_role(admin, ada.id, "default", None)

    assert promoted.roles == {"default": Role.MANAGER}
    assert without_role.roles == {}
