"""Webhooks as resources of a factory: their fields, names and secrets, and who can access them."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from hookmill.domain.errors import Conflict, Forbidden, Invalid, NotFound
from hookmill.domain.permission import Role
from hookmill.domain.webhook import AuthMode
from tests.spec import shows
from tests.store.managed_store import ManagedStore
from tests.support.sqlite_usually import store_url

__all__ = ["store_url"]

TEAM_SECRET = "value-of-the-team-0123456789"


@shows("WEBHOOK-2")
def test_webhook_has_an_https_url_that_accepts_json(world):
    webhook = world.webhook()

    assert webhook.url.startswith("https://")
    assert world.post(webhook, b'{"a": 1}').status == 202


@shows("WEBHOOK-1")
def test_webhook_is_not_found_in_another_factory(world):
    other_factory = world.operator_of_new_factory()
    webhook = world.webhook()

    assert [each.uid for each in world.management.webhooks.all(world.may)] == [webhook.webhook.uid]
    assert world.management.webhooks.all(other_factory) == []
    for uid_or_name in ("source", webhook.webhook.uid):
        for operation in (
            world.management.webhooks.get,
            world.management.webhooks.rotate,
            world.management.webhooks.delete,
            world.management.webhooks.secret_for_sending,
            lambda factory, uid: world.management.webhooks.set_enabled(factory, uid, False),
        ):
            with pytest.raises(NotFound):
                operation(other_factory, uid_or_name)
    assert world.post(webhook).status == 202


@shows("WEBHOOK-3")
def test_uid_is_a_prefix_and_at_least_128_url_safe_random_bits(world):
    uids = {world.webhook(f"source {i}").webhook.uid for i in range(20)}

    assert len(uids) == 20
    assert all(re.fullmatch(r"wh_[0-9a-z]{27}", uid) for uid in uids)


@shows("WEBHOOK-4")
@pytest.mark.parametrize("mode", [AuthMode.TOKEN, AuthMode.URL_TOKEN])
def test_url_contains_the_uid(sqlite_world, mode):
    webhook = sqlite_world.webhook(auth_mode=mode)

    assert f"/webhooks/w/{webhook.webhook.uid}" in webhook.url
    assert f"/webhooks/w/{webhook.webhook.uid}" in sqlite_world.management.webhooks.url(webhook.webhook)


@shows("WEBHOOK-6")
def test_auth_mode_is_one_of_three_and_token_by_default(world):
    assert [mode.value for mode in AuthMode] == ["token", "url_token", "signature"]
    assert world.webhook().webhook.auth_mode is AuthMode.TOKEN


@shows("SECRET-1", "SECRET-2")
@pytest.mark.parametrize(
    ("choices", "pattern"),
    [
        ({"auth_mode": AuthMode.TOKEN}, r"[A-Za-z0-9_-]{43}"),
        ({"auth_mode": AuthMode.URL_TOKEN}, r"[A-Za-z0-9_-]{43}"),
        (
            {"auth_mode": AuthMode.SIGNATURE, "signature_scheme": "standard_webhooks"},
            r"whsec_[A-Za-z0-9+/]{43}=",
        ),
    ],
    ids=["token", "url_token", "signature"],
)
def test_generated_secret_is_shown_once(world, choices, pattern):
    webhook = world.webhook(**choices)
    secret = webhook.reveal()

    assert re.fullmatch(pattern, secret)
    later_results = [
        webhook.webhook,
        world.management.webhooks.get(world.may, "source"),
        world.management.webhooks.all(world.may),
        world.management.webhooks.url(webhook.webhook),
        world.management.webhooks.set_enabled(world.may, "source", False),
        world.management.webhooks.delete(world.may, "source"),
    ]
    assert [each for each in later_results if secret in repr(each)] == []


def test_printed_webhook_shows_no_secret(world):
    webhook = world.webhook()

    assert webhook.reveal() not in f"{webhook} {webhook!r}"


@shows("WEBHOOK-5")
def test_url_shows_the_token_once_and_a_placeholder_afterwards(world):
    webhook = world.webhook(auth_mode=AuthMode.URL_TOKEN)
    rotated = world.management.webhooks.rotate(world.may, "source")

    assert webhook.url.endswith(f"/{webhook.reveal()}")
    assert rotated.url.endswith(f"/{rotated.reveal()}")
    assert (
        world.management.webhooks.url(rotated.webhook)
        == f"https://hooks.test/webhooks/w/{webhook.webhook.uid}/{{token}}"
    )


@shows("SECRET-6")
def test_webhook_names_the_secret_that_holds_its_credential(world):
    webhook = world.webhook(secret_name="OUR_OWN_NAME")

    assert webhook.webhook.secret_name == "OUR_OWN_NAME"
    assert world.post(webhook).status == 202


@shows("SECRET-7")
def test_secret_name_is_suggested_unless_the_user_chooses_one(world):
    first = world.webhook("Build status")
    second = world.webhook("other", secret_name="WEBHOOK_BUILD_STATUS_SECRET")

    assert first.webhook.secret_name == second.webhook.secret_name == "WEBHOOK_BUILD_STATUS_SECRET"
    assert world.post(second, token=first.reveal()).status == 202


@shows("SECRET-7")
def test_suggested_secret_name_that_is_taken_gets_a_number(world):
    names = []
    for _ in range(3):
        names.append(world.webhook().webhook.secret_name)
        world.management.webhooks.delete(world.may, "source")

    assert names == ["WEBHOOK_SOURCE_SECRET", "WEBHOOK_SOURCE_2_SECRET", "WEBHOOK_SOURCE_3_SECRET"]


def test_rotated_shared_secret_waits_for_the_other_webhooks_sync(world):
    first = world.webhook("first")
    second = world.webhook("second", secret_name=first.webhook.secret_name)

    rotated = world.management.webhooks.rotate(world.may, "first")

    assert (world.post(first).status, world.post(rotated).status) == (401, 202)
    assert world.post(second, token=first.reveal()).status == 202
    current = {each.name: each.secret_is_current for each in world.management.webhooks.all(world.may)}
    assert current == {"first": True, "second": False}


@shows("SECRET-5")
def test_existing_team_secret_is_never_displayed(world):
    world.management.secrets.create(world.may, "SHARED", TEAM_SECRET)

    by_header = world.webhook("by header", secret_name="SHARED")
    by_url = world.webhook("by URL", auth_mode=AuthMode.URL_TOKEN, secret_name="SHARED")

    assert (by_header.secret, by_url.secret) == (None, None)
    assert by_url.url.endswith("/{token}")
    assert world.post(by_header, token=TEAM_SECRET).status == 202
    assert world.post(by_url, token=TEAM_SECRET).status == 202


def test_second_value_for_an_existing_secret_is_refused(world):
    world.webhook(secret_name="SHARED")

    with pytest.raises(Conflict, match="has its own value"):
        world.webhook("second", secret_name="SHARED", secret="another secret")


@pytest.mark.parametrize("name", ["", "1st", "with space", "with-dash", "x" * 65])
def test_invalid_secret_name_is_refused(sqlite_world, name):
    with pytest.raises(Invalid, match="can't name a team secret"):
        sqlite_world.webhook(secret_name=name)


@pytest.mark.parametrize("secret", ["", "  ", "a\x00b"])
def test_blank_or_unusable_supplied_secret_is_refused(sqlite_world, secret):
    with pytest.raises(Invalid):
        sqlite_world.webhook(secret=secret)

    assert sqlite_world.management.webhooks.all(sqlite_world.may) == []


@shows("SECRET-8")
@pytest.mark.parametrize("secret", ["aaaaaaa/b", "aaaaaaa b", "aaaaaaa?b", "üüüüüüüü", "aaaaa%2Fb"])
def test_url_token_secret_that_is_not_url_safe_is_refused(world, secret):
    with pytest.raises(Invalid, match="url_token"):
        world.webhook(auth_mode=AuthMode.URL_TOKEN, secret=secret)
    world.webhook("shared", secret=secret)
    with pytest.raises(Invalid, match="Team secret WEBHOOK_SHARED_SECRET: A url_token secret"):
        world.webhook(auth_mode=AuthMode.URL_TOKEN, secret_name="WEBHOOK_SHARED_SECRET")
    world.webhook(auth_mode=AuthMode.URL_TOKEN)
    with pytest.raises(Invalid, match="url_token"):
        world.management.webhooks.rotate(world.may, "source", secret)


def test_webhook_name_is_unique_within_its_factory(world):
    world.webhook()

    with pytest.raises(Conflict, match="already has a webhook named 'source'"):
        world.webhook()
    world.management.webhooks.create(world.operator_of_new_factory(), {"name": "source"})

    assert len(world.management.webhooks.all(world.may)) == 1


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "a\nb", "a\x1b[31mb"])
def test_unprintable_webhook_name_is_refused(sqlite_world, name):
    with pytest.raises(Invalid, match="name must have 1 to 100 characters"):
        sqlite_world.webhook(name)


@pytest.mark.parametrize("name", ["wh_", "aut_x", "Ünï çødé", "日本", "'; DROP TABLE webhooks; --", "<b>", "%s"])
def test_webhook_is_found_by_any_valid_name(world, name):
    webhook = world.webhook(name)

    assert world.management.webhooks.get(world.may, name).uid == webhook.webhook.uid


def test_first_start_creates_the_default_factory_and_later_ones_reuse_it(world):
    assert world.management.access.operator("default").factory == world.factory
    assert world.management.factories.set_up() == (world.factory, False)


def test_simultaneous_first_starts_create_one_factory(store_url):
    def start(_):
        with ManagedStore(store_url) as store:
            return store.factory.id, store.has_created_factory

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(start, range(4)))

    assert len({factory for factory, _ in results}) == 1
    assert sorted(is_first for _, is_first in results) == [False, False, False, True]


def test_unknown_factory_is_not_found_and_the_error_lists_factories(world):
    with pytest.raises(NotFound, match="The factories are: default"):
        world.management.access.operator("other")


def test_simultaneous_rotations_leave_one_valid_secret(world):
    world.webhook()

    with ThreadPoolExecutor(10) as threads:
        rotations = [threads.submit(world.management.webhooks.rotate, world.may, "source") for _ in range(10)]
        rotated = [rotation.result() for rotation in rotations]

    assert sorted(world.post(each).status for each in rotated) == [202] + [401] * 9


def test_webhooks_created_simultaneously_may_share_one_new_secret(world):
    permissions = [world.may, *(world.operator_of_new_factory(f"factory {i}") for i in range(7))]
    create = world.management.webhooks.create

    with ThreadPoolExecutor(8) as threads:
        webhooks = list(threads.map(lambda may: create(may, {"name": "source", "secret_name": "SHARED"}), permissions))

    [secret] = [each.reveal() for each in webhooks if each.secret is not None]
    assert {world.post(each, token=secret).status for each in webhooks} == {202}


@shows("MANAGE-1")
def test_manager_changes_a_webhook_and_a_viewer_only_reads_it(world):
    webhook = world.webhook("source")
    team = world.management.access.operator_of_team()
    viewer_token = world.management.keys.create(team, "viewer", Role.VIEWER, factory="default").token.reveal()
    manager_token = world.management.keys.create(team, "manager", Role.MANAGER, factory="default").token.reveal()
    viewer = world.management.access.caller_with_token(viewer_token, client=None)
    manager = world.management.access.caller_with_token(manager_token, client=None)

    with pytest.raises(Forbidden):
        world.management.access.permission_to_manage(viewer, "default")
    with pytest.raises(TypeError):
        world.management.webhooks.set_enabled(uid_or_name="source", enabled=False)

    assert (
        world.management.webhooks.get(world.management.access.permission_to_view(viewer, "default"), "source")
        == webhook.webhook
    )
    may = world.management.access.permission_to_manage(manager, "default")
    assert world.management.webhooks.set_enabled(may, "source", False).state == "disabled"
