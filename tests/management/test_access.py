"""Who may do what, and what they can't even see."""

import inspect
import typing
from collections.abc import Callable

import pytest

from hookmill.domain.errors import Forbidden, Invalid, NotFound, Revoked
from hookmill.domain.permission import Actor, ActorKind, Caller, Channel, MayAdminister, MayManage, MayView, Role
from tests.support.world import World

PERMISSIONS = (MayView, MayManage, MayAdminister)
ASKS_NOBODY = {
    "Access": "it is what gives permissions",
    "Sessions": "they say who somebody is, before anybody may anything",
    "Factories.set_up": "the first start, when there is nobody yet",
    "Webhooks.url": "a webhook that somebody holds",
}


def test_every_operation_asks_for_a_permission(world: World):
    groups = [type(group) for name, group in vars(world.management).items() if not name.startswith("_")]
    operations = {
        f"{group.__name__}.{name}": operation
        for group in groups
        for name, operation in inspect.getmembers(group, inspect.isfunction)
        if not name.startswith("_")
    }
    asks_for_none = []
    for name, operation in operations.items():
        if name in ASKS_NOBODY or name.partition(".")[0] in ASKS_NOBODY:
            continue
        _, first, *_ = inspect.signature(operation).parameters
        hint = typing.get_type_hints(operation)[first]
        if not set(typing.get_args(hint) or (hint,)) <= set(PERMISSIONS):
            asks_for_none.append(name)

    assert len(operations) > 40
    assert asks_for_none == []


def test_a_key_is_known_by_its_token_alone(world: World, admin: MayAdminister):
    made = world.management.keys.create(admin, "ci", Role.VIEWER, factory="default")
    token = made.token.reveal()

    found = world.management.access.caller_with_token(token, client="192.0.2.1")

    assert found is not None
    assert found.actor == Actor(kind=ActorKind.KEY, id=made.key.id, name="ci", channel=Channel.API, client="192.0.2.1")
    for other in ("", "hmk_", token[:-1], token + "x", token.upper(), token[4:], made.key.id, "hmk_\udcff"):
        assert world.management.access.caller_with_token(other, client=None) is None


def test_no_table_holds_a_keys_token(world: World, admin: MayAdminister):
    token = world.management.keys.create(admin, "ci", Role.ADMIN).token.reveal()

    with world.database.read() as tx:
        kept = [value for row in tx.all("SELECT * FROM api_keys") for value in row.values()]

    assert kept
    assert not any(token in str(value) for value in kept)


def test_a_revoked_key_opens_nothing_at_once_in_another_process(world: World, admin: MayAdminister):
    other = world.beside()
    made = world.management.keys.create(admin, "ci", Role.VIEWER, factory="default")
    token = made.token.reveal()
    assert other.management.access.caller_with_token(token, client=None) is not None

    world.management.keys.revoke(admin, made.key.id)

    assert other.management.access.caller_with_token(token, client=None) is None


def test_a_key_opens_nothing_from_the_moment_that_it_expires(world: World, admin: MayAdminister):
    soon = world.clock.now + 60_000_000
    token = world.management.keys.create(admin, "ci", Role.ADMIN, expires_at=soon).token.reveal()

    world.clock.advance(seconds=59)
    before = world.management.access.caller_with_token(token, client=None)
    world.clock.advance(seconds=1)
    after = world.management.access.caller_with_token(token, client=None)

    assert before is not None
    assert after is None


def test_a_keys_last_use_is_kept_to_the_minute(world: World, admin: MayAdminister):
    token = world.management.keys.create(admin, "ci", Role.ADMIN).token.reveal()
    world.management.access.caller_with_token(token, client=None)
    first = world.clock.now
    world.clock.advance(seconds=30)
    world.management.access.caller_with_token(token, client=None)

    [key] = world.management.keys.all(admin)

    assert key.last_used_at == first


@pytest.mark.parametrize("role", [Role.VIEWER, Role.MANAGER])
def test_a_key_for_one_factory_does_not_know_of_another(world: World, caller: Callable[..., Caller], role: Role):
    world.elsewhere("other")
    known = caller(role)
    access = world.management.access

    for name in ("other", "there is none"):
        with pytest.raises(NotFound) as refused:
            access.permission_to_view(known, name)
        assert str(refused.value) == f"There is no factory {name!r}."
        with pytest.raises(NotFound):
            access.permission_to_manage(known, name)
    assert [factory.name for factory in access.visible_factories(known)] == ["default"]


def test_a_viewer_manages_nothing_and_a_manager_no_team(world: World, caller: Callable[..., Caller]):
    access = world.management.access

    with pytest.raises(Forbidden, match="role manager"):
        access.permission_to_manage(caller(Role.VIEWER), "default")
    with pytest.raises(Forbidden, match="role admin"):
        access.permission_to_administer(caller(Role.MANAGER))
    assert not access.permission_to_manage(caller(Role.MANAGER), "default").is_admin


def test_an_admin_may_do_everything_in_every_factory(world: World, caller: Callable[..., Caller]):
    world.elsewhere("other")
    known = caller(Role.ADMIN)
    access = world.management.access

    assert access.permission_to_manage(known, "other").is_admin
    assert access.permission_to_administer(known).team_id == world.factory.team_id
    assert [factory.name for factory in access.visible_factories(known)] == ["default", "other"]


def test_role_and_factory_of_a_key_go_together(world: World, admin: MayAdminister):
    create = world.management.keys.create

    with pytest.raises(Invalid, match="whole team"):
        create(admin, "ci", Role.ADMIN, factory="default")
    with pytest.raises(Invalid, match="one factory"):
        create(admin, "ci", Role.VIEWER)
    with pytest.raises(NotFound, match="no factory 'nope'"):
        create(admin, "ci", Role.VIEWER, factory="nope")
    with pytest.raises(Invalid, match="expired"):
        create(admin, "ci", Role.ADMIN, expires_at=world.clock.now)


@pytest.mark.parametrize("group", ["webhooks", "automations", "log", "runs"])
def test_another_factorys_things_are_not_there(world: World, group: str):
    stranger = world.elsewhere()
    made = world.webhook()
    automation = world.automation("triage", made)
    delivery_id = world.post(made).delivery_id
    [run] = world.management.runs.of_delivery(world.may, delivery_id)
    named = {
        "webhooks": made.webhook.uid,
        "automations": automation.id,
        "log": delivery_id,
        "runs": f"run_{run.id.hex()}",
    }[group]

    with pytest.raises(NotFound):
        getattr(world.management, group).get(stranger, named)
    assert getattr(world.management, group).get(world.may, named)


def test_a_permission_from_before_a_key_was_revoked_changes_nothing(
    world: World, admin: MayAdminister, manager: MayManage
):
    world.webhook("source")
    world.management.keys.revoke(admin, manager.actor.id)

    with pytest.raises(Revoked):
        world.management.webhooks.set_enabled(manager, "source", False)
    with pytest.raises(Revoked), world.management.one_transaction(manager):
        pass

    assert world.management.webhooks.get(world.may, "source").state == "enabled"


def test_a_permission_from_before_a_role_was_taken_changes_nothing(world: World, admin: MayAdminister):
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
