"""API keys, roles and permissions: what each of them allows, and when they end."""

import inspect
import typing

import pytest

from hookmill.domain.errors import Forbidden, Invalid, NotFound, Revoked
from hookmill.domain.permission import Actor, ActorKind, Channel, MayAdminister, MayManage, MayView, Role
from hookmill.management.platform_reports import MayReport

PERMISSIONS = (MayView, MayManage, MayAdminister, MayReport)
WITHOUT_PERMISSION = {
    "Access": "it grants permissions",
    "Sessions": "they authenticate members",
    "ExternalSignIns": "they authenticate members",
    "Factories.set_up": "the first start calls it before there are members and keys",
    "Webhooks.url": "it reads nothing: its argument is a webhook that the caller has read",
    "Webhooks.warnings": "the same",
    "PlatformReports.permission": "it grants a permission",
    "Alarms.now": "it reads only the clock",
    "Alarms.open_for": "it checks itself what its caller may view",
}
"""The operations without a permission, and the reason."""


def test_every_operation_requires_a_permission(world):
    groups = [type(group) for name, group in vars(world.management).items() if not name.startswith("_")]
    operations = {
        f"{group.__name__}.{name}": operation
        for group in groups
        for name, operation in inspect.getmembers(group, inspect.isfunction)
        if not name.startswith("_")
    }
    without_permission = []
    for name, operation in operations.items():
        if name in WITHOUT_PERMISSION or name.partition(".")[0] in WITHOUT_PERMISSION:
            continue
        _, first, *_ = inspect.signature(operation).parameters
        hint = typing.get_type_hints(operation)[first]
        if not set(typing.get_args(hint) or (hint,)) <= set(PERMISSIONS):
            without_permission.append(name)

    assert len(operations) > 40
    assert without_permission == []


def test_only_the_exact_token_authenticates_a_key(world, admin):
    created = world.management.keys.create(admin, "ci", Role.VIEWER, factory="default")
    token = created.token.reveal()

    caller = world.management.access.caller_with_token(token, client="192.0.2.1")

    assert caller is not None
    assert caller.actor == Actor(
        kind=ActorKind.KEY, id=created.key.id, name="ci", channel=Channel.API, client="192.0.2.1"
    )
    for other in ("", "hmk_", token[:-1], token + "x", token.upper(), token[4:], created.key.id, "hmk_\udcff"):
        assert world.management.access.caller_with_token(other, client=None) is None


def test_revoked_key_is_rejected_immediately_in_another_process(world, admin):
    other_process = world.another_process()
    created = world.management.keys.create(admin, "ci", Role.VIEWER, factory="default")
    token = created.token.reveal()
    assert other_process.management.access.caller_with_token(token, client=None) is not None

    world.management.keys.revoke(admin, created.key.id)

    assert other_process.management.access.caller_with_token(token, client=None) is None


def test_key_is_rejected_from_its_expiry_time(world, admin):
    expires_at = world.clock.now + 60_000_000
    token = world.management.keys.create(admin, "ci", Role.ADMIN, expires_at=expires_at).token.reveal()

    world.clock.advance(seconds=59)
    before = world.management.access.caller_with_token(token, client=None)
    world.clock.advance(seconds=1)
    after = world.management.access.caller_with_token(token, client=None)

    assert before is not None
    assert after is None


def test_last_use_of_a_key_is_updated_once_a_minute_at_most(world, admin):
    token = world.management.keys.create(admin, "ci", Role.ADMIN).token.reveal()
    world.management.access.caller_with_token(token, client=None)
    first = world.clock.now
    world.clock.advance(seconds=30)
    world.management.access.caller_with_token(token, client=None)

    [key] = world.management.keys.all(admin)

    assert key.last_used_at == first


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MANAGER])
def test_key_of_one_factory_cannot_see_another(world, caller, role):
    world.operator_of_new_factory("other")
    of_one_factory = caller(role)
    access = world.management.access

    for name in ("other", "unknown"):
        with pytest.raises(NotFound) as error:
            access.permission_to_view(of_one_factory, name)
        assert str(error.value) == f"There is no factory {name!r}."
        with pytest.raises(NotFound):
            access.permission_to_manage(of_one_factory, name)
    assert [factory.name for factory in access.visible_factories(of_one_factory)] == ["default"]


def test_key_with_an_unsuitable_role_factory_or_expiry_is_refused(world, admin):
    create = world.management.keys.create

    with pytest.raises(Invalid, match="whole team"):
        create(admin, "ci", Role.ADMIN, factory="default")
    with pytest.raises(Invalid, match="one factory"):
        create(admin, "ci", Role.VIEWER)
    with pytest.raises(NotFound, match="no factory 'unknown'"):
        create(admin, "ci", Role.VIEWER, factory="unknown")
    with pytest.raises(Invalid, match="expired"):
        create(admin, "ci", Role.ADMIN, expires_at=world.clock.now)


def test_permission_from_before_the_key_was_revoked_is_refused(world, admin, manager):
    world.webhook("source")
    world.management.keys.revoke(admin, manager.actor.id)

    with pytest.raises(Revoked):
        world.management.webhooks.set_enabled(manager, "source", False)
    with pytest.raises(Revoked), world.management.one_transaction(manager):
        pass

    assert world.management.webhooks.get(world.may, "source").state == "enabled"


def test_permission_from_before_the_role_was_removed_is_refused(world, admin):
    members = world.management.members
    ada = members.add(admin, "ada@example.com", "Ada")
    members.set_role(admin, ada.id, "default", Role.MANAGER)
    actor = Actor(kind=ActorKind.MEMBER, id=ada.id, name=ada.email, channel=Channel.DASHBOARD)
    may = MayManage(actor=actor, factory=world.factory, is_admin=False)
    world.webhook("source")
    change = world.management.webhooks.set_enabled
    assert change(may, "source", False).state == "disabled"

    members.set_role(admin, ada.id, "default", Role.VIEWER)
    with pytest.raises(Forbidden):
        change(may, "source", True)
    members.set_role(admin, ada.id, "default", Role.MANAGER)
    assert change(may, "source", True).state == "enabled"
    members.remove(admin, ada.id)
    with pytest.raises(Revoked):
        change(may, "source", False)

    assert world.management.webhooks.get(world.may, "source").state == "enabled"
