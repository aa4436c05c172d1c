"""Signing in, and how a session ends."""

from pathlib import Path

import pytest

from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.limits import SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.permission import MayAdminister, Role
from hookmill.maintenance import run_retention
from hookmill.management import passwords
from hookmill.management.sessions import LINK_HOURS
from tests.support.world import World

PASSWORD = "correct horse battery staple"


@pytest.fixture
def ada(world: World) -> str:
    """The first admin's session."""
    link = world.management.sessions.create_first_link()
    assert link is not None
    return world.management.sessions.accept_link(
        link.reveal(), password=PASSWORD, email="Ada@example.com", name="Ada", client="192.0.2.1"
    ).reveal()


def test_nobody_is_there_before_the_first_link_is_used(world: World):
    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None
    assert world.management.members.all(world.management.access.operator_of_team()) == []


def test_the_first_link_makes_an_admin_who_is_signed_in(world: World, ada: str):
    signed_in = world.management.sessions.by_session_token(ada, client="192.0.2.1")

    assert signed_in is not None
    assert (signed_in.email, signed_in.name, signed_in.caller.is_admin) == ("ada@example.com", "Ada", True)
    assert world.management.access.permission_to_administer(signed_in.caller).team_id == world.factory.team_id
    assert signed_in.caller.actor.channel == "dashboard"


def test_a_link_is_good_once_and_for_a_day(world: World):
    first = world.management.sessions.create_first_link()
    second = world.management.sessions.create_first_link()
    assert first is not None
    assert second is not None
    accept = world.management.sessions.accept_link

    with pytest.raises(NotFound):
        accept(first.reveal(), password=PASSWORD, email="a@example.com", name="A", client=None)
    world.clock.advance(seconds=LINK_HOURS * 3600)
    with pytest.raises(NotFound):
        accept(second.reveal(), password=PASSWORD, email="a@example.com", name="A", client=None)
    third = world.management.sessions.create_first_link()
    assert third is not None
    accept(third.reveal(), password=PASSWORD, email="a@example.com", name="A", client=None)
    with pytest.raises(NotFound):
        accept(third.reveal(), password=PASSWORD, email="b@example.com", name="B", client=None)
    assert world.management.sessions.create_first_link() is None


def test_the_right_password_signs_in_and_no_other(world: World, ada: str):
    sign_in = world.management.sessions.sign_in

    assert sign_in(" ADA@example.com", PASSWORD, client=None) is not None
    for email, password in (
        ("ada@example.com", PASSWORD + " "),
        ("ada@example.com", ""),
        ("ada@example.com", PASSWORD.upper()),
        ("grace@example.com", PASSWORD),
        ("", PASSWORD),
    ):
        assert sign_in(email, password, client=None) is None


@pytest.mark.parametrize("password", ["", "short", "aaaaaaaaaaaaaaaaaaaa", "x" * 300])
def test_a_poor_password_is_refused(world: World, password: str):
    link = world.management.sessions.create_first_link()
    assert link is not None

    with pytest.raises(Invalid, match="password"):
        world.management.sessions.accept_link(
            link.reveal(), password=password, email="a@example.com", name="A", client=None
        )


def test_a_member_chooses_a_password_by_a_link_of_their_own(world: World, ada: str, admin: MayAdminister):
    grace = world.management.members.add(admin, "grace@example.com", "Grace")
    world.management.members.set_role(admin, grace.id, "default", Role.VIEWER)
    link = world.management.sessions.create_link(admin, "grace@example.com").reveal()

    assert world.management.sessions.link_target(link).email == "grace@example.com"
    session = world.management.sessions.accept_link(link, password=PASSWORD, client=None)

    signed_in = world.management.sessions.by_session_token(session.reveal(), client=None)
    assert signed_in is not None
    assert not signed_in.caller.is_admin
    assert world.management.access.permission_to_view(signed_in.caller, "default").factory == world.factory


def test_a_session_ends_at_sign_out_in_every_process(world: World, ada: str):
    other = world.beside()
    assert other.management.sessions.by_session_token(ada, client=None) is not None

    world.management.sessions.sign_out(ada)

    assert other.management.sessions.by_session_token(ada, client=None) is None


def test_a_session_ends_when_nothing_comes_from_it(world: World, ada: str):
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 - 1)
    kept = world.management.sessions.by_session_token(ada, client=None)
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600)
    ended = world.management.sessions.by_session_token(ada, client=None)

    assert kept is not None
    assert ended is None


def test_what_an_open_page_asks_for_by_itself_keeps_no_session_alive(world: World, ada: str):
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 - 1)
    kept = world.management.sessions.by_session_token(ada, client=None, is_visit=False)
    world.clock.advance(seconds=1)
    ended = world.management.sessions.by_session_token(ada, client=None)

    assert kept is not None
    assert ended is None


def test_a_session_ends_in_the_end_whatever_comes_from_it(world: World, ada: str):
    for _ in range(SESSION_HOURS // (SESSION_IDLE_HOURS // 2)):
        assert world.management.sessions.by_session_token(ada, client=None) is not None
        world.clock.advance(seconds=SESSION_IDLE_HOURS // 2 * 3600)

    assert world.management.sessions.by_session_token(ada, client=None) is None


def test_a_new_password_ends_every_other_session(world: World, ada: str):
    elsewhere = world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None)
    assert elsewhere is not None
    signed_in = world.management.sessions.by_session_token(ada, client=None)
    assert signed_in is not None
    change = world.management.sessions.change_password

    with pytest.raises(Conflict):
        change(signed_in, old="wrong", new="another long password", client=None)
    session = change(signed_in, old=PASSWORD, new="another long password", client=None)

    assert world.management.sessions.by_session_token(ada, client=None) is None
    assert world.management.sessions.by_session_token(elsewhere.reveal(), client=None) is None
    assert world.management.sessions.by_session_token(session.reveal(), client=None) is not None
    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None


def test_who_was_removed_is_signed_out(world: World, ada: str, admin: MayAdminister):
    grace = world.management.members.add(admin, "grace@example.com", "Grace", is_admin=True)
    link = world.management.sessions.create_link(admin, grace.id).reveal()
    session = world.management.sessions.accept_link(link, password=PASSWORD, client=None).reveal()

    world.management.members.remove(admin, grace.id)

    assert world.management.sessions.by_session_token(session, client=None) is None
    assert world.management.sessions.sign_in("grace@example.com", PASSWORD, client=None) is None


def test_a_copy_of_the_database_opens_no_session(world: World, ada: str):
    with world.database.read() as tx:
        kept = [*tx.all("SELECT * FROM sessions"), *tx.all("SELECT * FROM members")]

    held = " ".join(str(value) for row in kept for value in row.values())
    assert ada not in held
    assert PASSWORD not in held
    assert "$argon2id$" in held


def test_a_sign_in_verified_by_an_old_password_opens_no_session(world: World, ada: str, monkeypatch):
    signed_in = world.management.sessions.by_session_token(ada, client=None)
    assert signed_in is not None
    judged = passwords.is_correct_password

    def slowly(password: str, kept: str | None) -> bool:
        verdict = judged(password, kept)
        monkeypatch.setattr(passwords, "is_correct_password", judged)
        world.management.sessions.change_password(signed_in, old=PASSWORD, new="another long password", client=None)
        return verdict

    monkeypatch.setattr(passwords, "is_correct_password", slowly)

    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None


def test_what_opens_nothing_any_more_is_forgotten(world: World, ada: str, admin: MayAdminister):
    world.management.members.add(admin, "grace@example.com", "Grace")
    world.management.sessions.create_link(admin, "grace@example.com")
    with world.management.one_transaction(world.may):
        world.management.idempotency.store(world.may, "key", b"d" * 32, b"{}")
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 + 1)

    run_retention(world.database, Path("nowhere"), world.clock())

    with world.database.read() as tx:
        left = [tx.all(f"SELECT * FROM {table}") for table in ("sessions", "sign_in_links", "idempotency_keys")]
    assert left == [[], [], []]


def test_whoever_comes_in_leaves_a_line(world: World, ada: str, admin: MayAdminister):
    world.management.sessions.sign_in("ada@example.com", PASSWORD, client="192.0.2.9")
    world.management.sessions.sign_in("ada@example.com", "not the password", client="192.0.2.9")

    lines = world.management.audit.of_team(admin)

    assert [(line.action, line.actor_name, line.client) for line in lines] == [
        ("member.sign_in", "ada@example.com", "192.0.2.9"),
        ("member.choose_password", "ada@example.com", "192.0.2.1"),
    ]
