"""Team secrets: their values, their webhooks, and their factories."""

import pytest

from hookmill.domain.errors import Conflict, Forbidden, Invalid, NotFound
from hookmill.domain.webhook import AuthMode

VALUE = "value-of-the-team-0123456789"


def test_value_that_is_invalid_for_the_webhook_is_not_synced(world):
    source = world.webhook("source", auth_mode=AuthMode.URL_TOKEN, secret="valid-in-a-path-0123456789")
    world.management.secrets.replace(world.may, source.webhook.secret_name, "invalid in/a path?")

    with pytest.raises(Invalid, match="is part of the URL"):
        world.management.webhooks.sync(world.may, "source")

    assert world.post(source, token="valid-in-a-path-0123456789").status == 202


def test_error_names_the_unusable_signing_secret(world):
    world.management.secrets.create(world.may, "SIGNING", "whsec_not-base64!")

    with pytest.raises(Invalid, match="Team secret SIGNING: "):
        world.management.webhooks.create(
            world.may,
            {
                "name": "source",
                "auth_mode": AuthMode.SIGNATURE,
                "signature_scheme": "standard_webhooks",
                "secret_name": "SIGNING",
            },
        )


def test_list_shows_the_webhooks_of_each_secret_but_no_value(world):
    world.management.secrets.create(world.may, "UNUSED", VALUE)
    world.management.secrets.create(world.may, "SHARED", VALUE)
    world.webhook("one", secret_name="SHARED")
    world.webhook("two", secret_name="SHARED")

    secrets = world.management.secrets.all(world.may)

    assert [(secret.name, secret.used_by) for secret in secrets] == [("SHARED", ("one", "two")), ("UNUSED", ())]
    assert VALUE not in repr(secrets)


def test_secret_in_use_cannot_be_deleted(world):
    source = world.webhook("source")

    with pytest.raises(Conflict, match="used by 'source'"):
        world.management.secrets.delete(world.may, source.webhook.secret_name)

    assert world.post(source).status == 202


def test_deleted_secret_is_removed_with_its_values_and_frees_its_name(world):
    name = world.webhook("source").webhook.secret_name
    world.management.webhooks.delete(world.may, "source")

    world.management.secrets.delete(world.may, name)

    with world.database.read() as tx:
        assert tx.all("SELECT * FROM secret_versions") == []
    assert world.management.secrets.all(world.may) == []
    with pytest.raises(NotFound):
        world.management.secrets.replace(world.may, name, VALUE)
    world.management.secrets.create(world.may, name, VALUE)
    world.management.secrets.delete(world.may, name)


def test_manager_cannot_change_or_use_a_secret_of_another_factory(world, manager):
    other_factory = world.operator_of_new_factory()
    secrets = world.management.secrets
    secrets.create(other_factory, "THEIRS", VALUE)
    theirs = world.management.webhooks.create(other_factory, {"name": "theirs", "secret_name": "THEIRS"})

    with pytest.raises(NotFound):
        secrets.replace(manager, "THEIRS", "chosen-by-the-manager")
    with pytest.raises(NotFound):
        secrets.delete(manager, "THEIRS")
    with pytest.raises(Conflict, match="admin"):
        world.management.webhooks.create(manager, {"name": "ours", "secret_name": "THEIRS"})

    assert not secrets.all(manager)
    assert world.post(theirs, token=VALUE).status == 202


def test_only_an_admin_can_rotate_a_secret_of_two_factories(world, manager):
    world.management.secrets.create(world.may, "BOTH", VALUE)
    ours = world.webhook("ours", secret_name="BOTH")
    world.management.webhooks.create(world.operator_of_new_factory(), {"name": "theirs", "secret_name": "BOTH"})

    with pytest.raises(Forbidden):
        world.management.webhooks.rotate(manager, "ours")

    assert world.post(ours, token=VALUE).status == 202
    assert world.management.webhooks.rotate(world.may, "ours").secret is not None


def test_unused_secret_belongs_to_the_factory_that_created_it(world, manager):
    other_factory = world.operator_of_new_factory()
    secrets = world.management.secrets
    secrets.create(other_factory, "THEIRS", VALUE)

    with pytest.raises(NotFound):
        secrets.replace(manager, "THEIRS", "chosen-by-the-manager")
    with pytest.raises(NotFound):
        secrets.delete(manager, "THEIRS")
    with pytest.raises(Conflict):
        world.management.webhooks.create(manager, {"name": "ours", "secret_name": "THEIRS"})
    secrets.create(manager, "OURS", VALUE)

    assert [secret.name for secret in secrets.all(manager)] == ["OURS"]
    theirs = world.management.webhooks.create(other_factory, {"name": "theirs", "secret_name": "THEIRS"})
    assert world.post(theirs, token=VALUE).status == 202


def test_error_about_a_name_of_another_factory_is_always_the_same(world, manager):
    other_factory, third_factory = world.operator_of_new_factory(), world.operator_of_new_factory("third")
    world.management.secrets.create(other_factory, "UNUSED", VALUE)
    for factory in (other_factory, third_factory):
        world.management.webhooks.create(factory, {"name": "theirs", "secret_name": "SHARED"})
    messages = set()

    for name in ("UNUSED", "SHARED"):
        for create in (
            lambda name=name: world.management.webhooks.create(manager, {"name": "ours", "secret_name": name}),
            lambda name=name: world.management.webhooks.create(
                manager, {"name": "ours", "secret_name": name}, secret=VALUE
            ),
            lambda name=name: world.management.secrets.create(manager, name),
        ):
            with pytest.raises(Conflict) as error:
                create()
            messages.add(str(error.value).replace(name, "NAME"))

    assert messages == {
        "Another factory has a team secret named NAME. Choose another name, or ask an admin of the team."
    }
