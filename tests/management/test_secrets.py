"""Team secrets: made, replaced, used, synced, deleted, and never read back."""

import pytest

from hookmill.domain.errors import Conflict, Forbidden, Invalid, NotFound
from hookmill.domain.permission import MayManage
from hookmill.domain.webhook import AuthMode
from tests.support.world import World

VALUE = "value-of-the-team-0123456789"


def test_a_new_value_is_used_from_the_next_sync_on(world: World):
    made = world.webhook("source", secret=VALUE)
    other = world.beside()
    world.management.secrets.replace(world.may, made.webhook.secret_name, "another-value-0123456789")
    assert world.management.webhooks.get(world.may, "source").secret_is_current is False
    assert other.post(made, b"1", token=VALUE).status == 202

    synced = world.management.webhooks.sync(world.may, "source")

    assert synced.secret_is_current
    for process in (other, world):
        assert process.post(made, b"2", token=VALUE).status == 401
        assert process.post(made, b"3", token="another-value-0123456789").status == 202
        world.clock.advance(seconds=1)


def test_a_value_that_does_not_fit_is_not_synced(world: World):
    made = world.webhook("source", auth_mode=AuthMode.URL_TOKEN, secret="fits-a-path-0123456789")
    world.management.secrets.replace(world.may, made.webhook.secret_name, "does not/fit?")

    with pytest.raises(Invalid, match="is part of the URL"):
        world.management.webhooks.sync(world.may, "source")

    assert world.post(made, token="fits-a-path-0123456789").status == 202


def test_unusable_signing_secret_is_rejected_by_its_name(world: World):
    world.management.secrets.create(world.may, "SIGNING", "whsec_not-base64!")

    with pytest.raises(Invalid, match="Team secret SIGNING: "):
        world.management.webhooks.create(
            world.may,
            "source",
            auth_mode=AuthMode.SIGNATURE,
            signature_scheme="standard_webhooks",
            secret_name="SIGNING",
        )


def test_a_list_says_who_uses_each_and_shows_no_value(world: World):
    world.management.secrets.create(world.may, "IDLE", VALUE)
    world.management.secrets.create(world.may, "SHARED", VALUE)
    world.webhook("one", secret_name="SHARED")
    world.webhook("two", secret_name="SHARED")

    listed = world.management.secrets.all(world.may)

    assert [(secret.name, secret.used_by) for secret in listed] == [("IDLE", ()), ("SHARED", ("one", "two"))]
    assert VALUE not in repr(listed)


def test_a_secret_in_use_is_not_deleted(world: World):
    made = world.webhook("source")
    name = made.webhook.secret_name

    with pytest.raises(Conflict, match="used by 'source'"):
        world.management.secrets.delete(world.may, name)

    assert world.post(made).status == 202


def test_a_deleted_secret_is_gone_with_its_values_and_its_name_is_free(world: World):
    made = world.webhook("source")
    name = made.webhook.secret_name
    world.management.webhooks.delete(world.may, "source")

    world.management.secrets.delete(world.may, name)

    with world.database.read() as tx:
        assert tx.all("SELECT * FROM secret_versions") == []
    assert world.management.secrets.all(world.may) == []
    with pytest.raises(NotFound):
        world.management.secrets.replace(world.may, name, VALUE)
    world.management.secrets.create(world.may, name, VALUE)
    world.management.secrets.delete(world.may, name)


def test_a_generated_value_is_shown_once(world: World):
    value = world.management.secrets.create(world.may, "GENERATED")

    made = world.webhook("source", secret_name="GENERATED")

    assert len(value.reveal()) >= 43
    assert world.post(made, token=value.reveal()).status == 202


def test_a_manager_reaches_no_other_factory_through_a_shared_secret(world: World, manager: MayManage):
    elsewhere = world.elsewhere()
    world.management.secrets.create(elsewhere, "THEIRS", VALUE)
    theirs = world.management.webhooks.create(elsewhere, "theirs", secret_name="THEIRS")
    shared = world.management.secrets

    for attempt in (
        lambda: shared.replace(manager, "THEIRS", "chosen-by-a-stranger"),
        lambda: shared.delete(manager, "THEIRS"),
    ):
        with pytest.raises(NotFound):
            attempt()
    with pytest.raises(Conflict, match="admin"):
        world.management.webhooks.create(manager, "mine", secret_name="THEIRS")

    assert [secret.name for secret in shared.all(manager)] == []
    assert world.post(theirs, token=VALUE).status == 202


def test_a_secret_of_two_factories_takes_an_admin_to_rotate(world: World, manager: MayManage):
    world.management.secrets.create(world.may, "BOTH", VALUE)
    ours = world.webhook("ours", secret_name="BOTH")
    world.management.webhooks.create(world.elsewhere(), "theirs", secret_name="BOTH")

    with pytest.raises(Forbidden):
        world.management.webhooks.rotate(manager, "ours")

    assert world.post(ours, token=VALUE).status == 202
    assert world.management.webhooks.rotate(world.may, "ours").secret is not None


def test_a_secret_that_waits_to_be_used_is_its_own_factorys(world: World, manager: MayManage):
    elsewhere = world.elsewhere()
    world.management.secrets.create(elsewhere, "THEIRS", VALUE)

    with pytest.raises(NotFound):
        world.management.secrets.replace(manager, "THEIRS", "chosen-by-a-stranger")
    with pytest.raises(NotFound):
        world.management.secrets.delete(manager, "THEIRS")
    with pytest.raises(Conflict):
        world.management.webhooks.create(manager, "mine", secret_name="THEIRS")
    world.management.secrets.create(manager, "OURS", VALUE)

    assert [secret.name for secret in world.management.secrets.all(manager)] == ["OURS"]
    theirs = world.management.webhooks.create(elsewhere, "theirs", secret_name="THEIRS")
    assert world.post(theirs, token=VALUE).status == 202


def test_name_of_another_factorys_secret_is_taken_and_says_no_more(world: World, manager: MayManage):
    elsewhere, third = world.elsewhere(), world.elsewhere("third")
    world.management.secrets.create(elsewhere, "WAITING", VALUE)
    for factory in (elsewhere, third):
        world.management.webhooks.create(factory, "theirs", secret_name="SHARED")
    said = set()

    for name in ("WAITING", "SHARED"):
        for attempt in (
            lambda name=name: world.management.webhooks.create(manager, "mine", secret_name=name),
            lambda name=name: world.management.webhooks.create(manager, "mine", secret_name=name, secret=VALUE),
            lambda name=name: world.management.secrets.create(manager, name),
        ):
            with pytest.raises(Conflict) as refused:
                attempt()
            said.add(str(refused.value).replace(name, "NAME"))

    assert said == {"Another factory has a team secret named NAME. Choose another name, or ask an admin of the team."}
