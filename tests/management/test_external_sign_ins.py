"""Members who sign in at a provider: who becomes one, and how groups and links decide."""

import dataclasses
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

from hookmill.domain.errors import Conflict, Forbidden, Invalid, NotFound
from hookmill.domain.external_identity import (
    ExternalIdentity,
    ExternalSignIn,
    GroupRole,
    IdentityKey,
    SignInMethod,
)
from hookmill.domain.member import Member
from hookmill.domain.permission import MayAdminister, Role
from hookmill.management import SignedInMember
from hookmill.management.external_sign_ins import ATTEMPT_SECONDS
from tests.support.world import World

ISSUER: Final = "https://id.example"
PASSWORD: Final = "correct horse battery staple"
HOUR: Final = 3600
RULES: Final = ExternalSignIn(
    issuer=ISSUER,
    provider_name="Example ID",
    session_hours=12,
    admin_groups=frozenset({"admins"}),
    roles_by_group={
        "developers": (GroupRole(Role.VIEWER, "default"), GroupRole(Role.MANAGER, "other")),
        "operators": (GroupRole(Role.MANAGER, "default"),),
        "planners": (GroupRole(Role.VIEWER, "not there"),),
    },
)
BY_HAND: Final = dataclasses.replace(RULES, admin_groups=frozenset(), roles_by_group={})
"""Rules under which roles are assigned by hand."""

CreateWorld = Callable[..., World]


@pytest.fixture
def create_world(store_url):
    """Creates worlds with rules for signing in, on the same store."""
    worlds: list[World] = []

    def create(rules: ExternalSignIn | None = RULES, **options: Any) -> World:
        if worlds:
            options["clock"] = worlds[0].clock
        worlds.append(World(store_url, external_sign_in=rules, **options))
        return worlds[-1]

    yield create
    for world in worlds:
        world.close()


@pytest.fixture
def world(create_world):
    world = create_world()
    world.operator_of_new_factory("other")
    return world


@pytest.fixture
def admin(world):
    return world.management.access.operator_of_team()


def person(*groups: str, subject: str = "ada", email: str | None = "ada@example.com", name: str | None = "Ada L"):
    key = IdentityKey(ISSUER, subject)
    return ExternalIdentity(key=key, email=email, name=name, groups=frozenset(groups))


def sign_in(world: World, identity: ExternalIdentity, **options: Any) -> str:
    """Sign in. Returns the session's token."""
    return world.management.external_sign_ins.sign_in(identity, client="192.0.2.9", **options).token.reveal()


def signed_in(world: World, session: str) -> SignedInMember | None:
    return world.management.sessions.by_session_token(session, client=None)


def link_for(world: World, admin: MayAdminister, email: str) -> str:
    return world.management.sessions.create_link(admin, email).reveal()


def only_member(world: World, admin: MayAdminister) -> Member:
    [member] = world.management.members.all(admin)
    return member


def audit_lines(world: World, admin: MayAdminister) -> list[tuple[str, str]]:
    """The actors and actions of the audit log's lines about members, oldest first."""
    entries = world.management.audit.of_team(admin, limit=100)
    return [(each.actor_name, each.action) for each in reversed(entries) if each.action.startswith("member.")]


# New members and their roles


def test_first_sign_in_adds_a_member_with_the_roles_of_the_groups(world, admin):
    session = sign_in(world, person("developers", "unknown group"))

    member = only_member(world, admin)
    assert (member.email, member.name, member.is_admin) == ("ada@example.com", "Ada L", False)
    assert member.roles == {"default": Role.VIEWER, "other": Role.MANAGER}
    assert member.identity == IdentityKey(ISSUER, "ada")
    assert member.sign_in_method is SignInMethod.OIDC
    caller = signed_in(world, session)
    assert caller is not None
    assert not caller.has_password
    assert caller.caller.permission_to_view(world.factory, "default").factory == world.factory


def test_second_sign_in_is_of_the_same_member(world, admin):
    first = sign_in(world, person("developers"))
    member = only_member(world, admin)

    second = sign_in(world, person("developers"))

    assert first != second
    assert only_member(world, admin) == member
    assert signed_in(world, first) is not None


@pytest.mark.parametrize(
    ("groups", "is_admin", "roles"),
    [
        (["developers", "operators"], False, {"default": Role.MANAGER, "other": Role.MANAGER}),
        (["operators", "developers"], False, {"default": Role.MANAGER, "other": Role.MANAGER}),
        (["admins"], True, {}),
        (["admins", "operators"], True, {"default": Role.MANAGER}),
        (["operators", "planners"], False, {"default": Role.MANAGER}),
    ],
)
def test_highest_role_of_all_groups_counts(world, admin, groups, is_admin, roles):
    sign_in(world, person(*groups))

    member = only_member(world, admin)
    assert (member.is_admin, member.roles) == (is_admin, roles)


def test_each_sign_in_sets_the_roles_again(world, admin):
    sessions = [sign_in(world, person("admins", "developers"))]
    sessions.append(sign_in(world, person("operators")))

    member = only_member(world, admin)
    assert (member.is_admin, member.roles) == (False, {"default": Role.MANAGER})
    # Earlier sessions have the new roles, too.
    callers = [signed_in(world, session) for session in sessions]
    assert [caller.caller.is_admin for caller in callers if caller is not None] == [False, False]


@pytest.mark.parametrize("groups", [[], ["unknown group"], ["planners"]])
def test_person_without_a_role_does_not_become_a_member(world, admin, groups):
    with pytest.raises(Forbidden, match="none of your groups has a role"):
        sign_in(world, person(*groups))

    assert world.management.members.all(admin) == []


def test_member_who_lost_all_groups_is_refused(world, admin):
    sign_in(world, person("operators"))

    with pytest.raises(Forbidden, match="none of your groups has a role"):
        sign_in(world, person())

    assert only_member(world, admin).roles == {"default": Role.MANAGER}


def test_only_allowed_groups_sign_in(create_world):
    world = create_world(dataclasses.replace(RULES, allowed_groups=frozenset({"staff"})))

    with pytest.raises(Forbidden, match="not in a group that may use Hookmill"):
        sign_in(world, person("operators"))

    assert signed_in(world, sign_in(world, person("operators", "staff"))) is not None


def test_factory_that_does_not_exist_is_reported(world):
    session = world.management.external_sign_ins.sign_in(person("operators", "planners"), client=None)

    assert session.unknown_factories == ("not there",)


def test_person_without_an_address_does_not_become_a_member(world):
    for email in (None, "", "ada", "ada@", "a\u202eda@example.com"):
        with pytest.raises(Forbidden, match="sent no e-mail address"):
            sign_in(world, person("operators", email=email))


@pytest.mark.parametrize(
    ("name", "stored"),
    [(None, "ada@example.com"), ("", "ada@example.com"), ("a\x00b", "ada@example.com"), ("x" * 200, "x" * 100)],
)
def test_unusable_name_is_replaced(world, admin, name, stored):
    sign_in(world, person("operators", name=name))

    assert only_member(world, admin).name == stored


def test_new_address_and_name_are_stored(world, admin):
    sign_in(world, person("operators"))

    sign_in(world, person("operators", email="Ada@New.example", name="Ada King"))
    sign_in(world, person("operators", email=None, name=None))

    member = only_member(world, admin)
    assert (member.email, member.name) == ("ada@new.example", "Ada King")


def test_address_of_another_member_is_not_taken_over(world, admin):
    world.management.members.add(admin, "grace@example.com", "Grace", is_admin=True)
    sign_in(world, person("operators"))

    sign_in(world, person("operators", email="grace@example.com"))

    assert {(member.email, member.is_admin) for member in world.management.members.all(admin)} == {
        ("ada@example.com", False),
        ("grace@example.com", True),
    }


def test_simultaneous_first_sign_ins_add_one_member(world, admin):
    barrier = threading.Barrier(4)
    sessions: list[str] = []

    def sign_in_once() -> None:
        barrier.wait()
        sessions.append(sign_in(world, person("operators")))

    threads = [threading.Thread(target=sign_in_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert only_member(world, admin).identity == IdentityKey(ISSUER, "ada")
    assert len(set(sessions)) == 4


def test_sign_in_and_roles_leave_lines_in_the_audit_log(world, admin):
    sign_in(world, person("operators"))
    sign_in(world, person("admins", email="ada@new.example"))

    assert audit_lines(world, admin) == [
        ("groups of Example ID", "member.add"),
        ("groups of Example ID", "member.set_role"),
        ("ada@example.com", "member.sign_in"),
        ("groups of Example ID", "member.change"),
        ("groups of Example ID", "member.set_admin"),
        ("groups of Example ID", "member.set_role"),
        ("ada@new.example", "member.sign_in"),
    ]


# Takeovers


def test_address_of_an_existing_member_gives_no_access(world, admin):
    world.management.members.add(admin, "ada@example.com", "Ada", is_admin=True)

    with pytest.raises(Conflict, match="exists, and is not connected to your account at Example ID"):
        sign_in(world, person("admins", subject="mallory"))

    member = only_member(world, admin)
    assert (member.identity, member.name) == (None, "Ada")


def test_subject_of_another_issuer_is_another_person(create_world):
    sign_in(create_world(), person("operators"))
    moved = create_world(dataclasses.replace(RULES, issuer="https://other.example"))
    key = IdentityKey("https://other.example", "ada")

    with pytest.raises(Conflict, match="is not connected"):
        sign_in(moved, dataclasses.replace(person("operators"), key=key))


def test_subject_is_compared_exactly(world, admin):
    sign_in(world, person("operators", subject="ada"))
    sign_in(world, person("operators", subject="ADA", email="ada2@example.com"))

    assert len(world.management.members.all(admin)) == 2


# Roles by hand


def test_groups_decide_the_roles_of_connected_members_only(world, admin):
    sign_in(world, person("operators"))
    world.management.members.add(admin, "grace@example.com", "Grace")
    members = world.management.members

    for change in (
        lambda email: members.set_role(admin, email, "default", Role.VIEWER),
        lambda email: members.set_admin(admin, email, True),
    ):
        with pytest.raises(Conflict, match="signs in with Example ID, whose groups decide the roles"):
            change("ada@example.com")
        change("grace@example.com")


def test_without_mapped_groups_only_members_sign_in(create_world):
    world = create_world(BY_HAND)

    with pytest.raises(Forbidden, match=r"you are not a member\. Ask an admin for a sign-in link"):
        sign_in(world, person("admins"))


def test_without_mapped_groups_connected_members_keep_their_roles(create_world):
    world = create_world(BY_HAND)
    admin = world.management.access.operator_of_team()
    world.management.members.add(admin, "ada@example.com", "Ada")
    world.management.members.set_role(admin, "ada@example.com", "default", Role.MANAGER)
    sign_in(world, person(), link_token=link_for(world, admin, "ada@example.com"))

    sign_in(world, person("admins"))

    world.management.members.set_admin(admin, "ada@example.com", True)
    member = only_member(world, admin)
    assert (member.is_admin, member.roles) == (True, {"default": Role.MANAGER})


# Links


def test_link_connects_a_member_to_an_identity(world, admin):
    world.management.members.add(admin, "ada@example.com", "Ada")
    sessions = world.management.sessions
    password_session = sessions.accept_link(
        link_for(world, admin, "ada@example.com"), password=PASSWORD, client=None
    ).reveal()
    link = link_for(world, admin, "ada@example.com")

    session = sign_in(world, person("operators"), link_token=link)

    member = only_member(world, admin)
    assert (member.identity, member.has_password) == (IdentityKey(ISSUER, "ada"), False)
    assert member.roles == {"default": Role.MANAGER}
    assert signed_in(world, session) is not None
    # Otherwise, an old session would get the roles of the groups.
    assert signed_in(world, password_session) is None
    assert sessions.sign_in("ada@example.com", PASSWORD, client=None) is None
    with pytest.raises(NotFound):
        sign_in(world, person("operators"), link_token=link)
    assert signed_in(world, sign_in(world, person("operators"))) is not None


def test_link_is_kept_if_the_person_may_not_sign_in(world, admin):
    world.management.members.add(admin, "ada@example.com", "Ada")
    link = link_for(world, admin, "ada@example.com")

    with pytest.raises(Forbidden):
        sign_in(world, person(), link_token=link)

    assert world.management.sessions.link_target(link).email == "ada@example.com"


def test_identity_belongs_to_one_member(world, admin):
    sign_in(world, person("operators"))
    world.management.members.add(admin, "grace@example.com", "Grace")

    with pytest.raises(Conflict, match=r"already connected to the member ada@example\.com"):
        sign_in(world, person("operators"), link_token=link_for(world, admin, "grace@example.com"))


def test_link_connects_a_member_to_another_identity(world, admin):
    sign_in(world, person("operators"))

    sign_in(world, person("operators", subject="new"), link_token=link_for(world, admin, "ada@example.com"))

    assert only_member(world, admin).identity == IdentityKey(ISSUER, "new")
    with pytest.raises(Conflict):
        sign_in(world, person("operators"))


def test_link_of_the_first_admin_connects_nobody(world):
    link = world.management.sessions.create_first_link()
    assert link is not None

    with pytest.raises(Conflict, match="first admin"):
        sign_in(world, person("admins"), link_token=link.reveal())

    assert not world.management.sessions.link_target(link.reveal()).can_connect


def test_link_signs_a_connected_member_in_without_the_provider(world, admin):
    sign_in(world, person("operators"))
    link = link_for(world, admin, "ada@example.com")
    target = world.management.sessions.link_target(link)

    session = world.management.sessions.accept_link(link, client=None).reveal()

    assert not target.chooses_password
    member = only_member(world, admin)
    assert (member.identity, member.has_password) == (IdentityKey(ISSUER, "ada"), False)
    assert signed_in(world, session) is not None
    world.clock.advance(seconds=12 * HOUR)
    assert signed_in(world, session) is None


def test_link_sets_a_password_if_there_is_no_provider_any_more(create_world):
    world = create_world()
    admin = world.management.access.operator_of_team()
    sign_in(world, person("operators"))
    without = create_world(None)
    link = link_for(without, admin, "ada@example.com")

    session = without.management.sessions.accept_link(link, password=PASSWORD, client=None).reveal()

    member = only_member(without, admin)
    assert (member.identity, member.has_password) == (None, True)
    assert signed_in(without, session) is not None


def test_link_is_the_way_in_without_passwords_and_provider(create_world):
    world = create_world(password_sign_in=False)
    first_link = world.management.sessions.create_first_link()
    assert first_link is not None

    session = world.management.sessions.accept_link(
        first_link.reveal(), email="ops@example.com", name="Ops", client=None
    )

    caller = signed_in(world, session.reveal())
    assert caller is not None
    assert caller.caller.is_admin


def test_nobody_gets_the_first_link_once_a_person_has_signed_in(world):
    sign_in(world, person("operators"))

    assert world.management.sessions.create_first_link() is None


# Sessions


def test_session_ends_after_the_hours_of_the_settings(world):
    session = sign_in(world, person("operators"))

    world.clock.advance(seconds=12 * HOUR - 1)
    before = signed_in(world, session)
    world.clock.advance(seconds=1)

    assert before is not None
    assert signed_in(world, session) is None


@pytest.mark.parametrize(
    "rules",
    [
        None,
        dataclasses.replace(RULES, issuer="https://other.example"),
        dataclasses.replace(RULES, roles_by_group={"operators": (GroupRole(Role.VIEWER, "default"),)}),
        dataclasses.replace(RULES, admin_groups=frozenset()),
        dataclasses.replace(RULES, allowed_groups=frozenset({"staff"})),
    ],
    ids=["no provider", "another issuer", "other roles", "other admins", "other allowed groups"],
)
def test_session_ends_when_the_rules_change(create_world, rules):
    session = sign_in(create_world(), person("operators"))

    assert signed_in(create_world(rules), session) is None


def test_session_outlives_a_change_of_words_and_order(create_world):
    session = sign_in(create_world(), person("operators"))
    roles = dict(reversed(list(RULES.roles_by_group.items())))

    changed = create_world(dataclasses.replace(RULES, provider_name="ID", session_hours=13, roles_by_group=roles))

    assert signed_in(changed, session) is not None


def test_session_of_a_password_ends_when_passwords_are_switched_off(create_world):
    world = create_world()
    link = world.management.sessions.create_first_link()
    assert link is not None
    session = world.management.sessions.accept_link(
        link.reveal(), password=PASSWORD, email="ada@example.com", name="Ada", client=None
    ).reveal()

    without = create_world(password_sign_in=False)

    assert signed_in(world, session) is not None
    assert signed_in(without, session) is None
    assert without.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None


def test_removed_member_is_signed_out_and_added_again_by_the_groups(world, admin):
    session = sign_in(world, person("operators"))
    removed = only_member(world, admin)

    world.management.members.remove(admin, removed.id)

    assert signed_in(world, session) is None
    sign_in(world, person("operators"))
    assert only_member(world, admin).id != removed.id


def test_member_without_a_password_can_not_change_it(world):
    caller = signed_in(world, sign_in(world, person("operators")))
    assert caller is not None

    with pytest.raises(Conflict, match="You don't sign in with a password"):
        world.management.sessions.change_password(caller, old="", new=PASSWORD, client=None)


# Attempts


def test_attempt_is_used_once_by_the_browser_that_started_it(world):
    attempts = world.management.external_sign_ins
    attempt, cookie = attempts.start(next_path="/account", link_token="link")

    assert attempts.use_attempt(cookie.reveal(), attempt.state) == attempt
    with pytest.raises(Invalid):
        attempts.use_attempt(cookie.reveal(), attempt.state)


def test_attempt_must_belong_to_the_answer(world):
    attempts = world.management.external_sign_ins
    first, first_cookie = attempts.start()
    second, _ = attempts.start()

    for cookie, state in (
        (first_cookie.reveal(), second.state),
        (first_cookie.reveal(), ""),
        (first_cookie.reveal(), "\udcff"),
        ("", first.state),
        ("forged", first.state),
        ("é", first.state),
        (first_cookie.reveal()[:-4] + "AAAA", first.state),
        (world.management.sessions.browser_token("ada@example.com").reveal(), first.state),
    ):
        with pytest.raises(Invalid, match="not started in this browser"):
            attempts.use_attempt(cookie, state)
    assert attempts.use_attempt(first_cookie.reveal(), first.state) == first


def test_attempt_ends_after_ten_minutes(world):
    attempts = world.management.external_sign_ins
    in_time, in_time_cookie = attempts.start()
    late, late_cookie = attempts.start()

    world.clock.advance(seconds=ATTEMPT_SECONDS - 1)
    attempts.use_attempt(in_time_cookie.reveal(), in_time.state)
    world.clock.advance(seconds=1)

    with pytest.raises(Invalid):
        attempts.use_attempt(late_cookie.reveal(), late.state)


def test_attempt_of_a_host_whose_clock_is_ahead_is_accepted(world):
    attempts = world.management.external_sign_ins
    attempt, cookie = attempts.start()

    world.clock.advance(seconds=-1)

    assert attempts.use_attempt(cookie.reveal(), attempt.state) == attempt


def test_cookie_shows_nothing_of_the_attempt(world):
    attempt, cookie = world.management.external_sign_ins.start(link_token="link-token")

    assert not any(
        secret in cookie.reveal() for secret in (attempt.state, attempt.nonce, attempt.code_verifier, "link-token")
    )
