"""Sign-in links, passwords, and the end of sessions."""

from pathlib import Path

import pytest

from hookmill.domain.errors import Conflict, Invalid, NotFound
from hookmill.domain.limits import SESSION_HOURS, SESSION_IDLE_HOURS
from hookmill.domain.permission import Role
from hookmill.maintenance import run_retention
from hookmill.management import passwords
from hookmill.management.sessions import LINK_HOURS

PASSWORD = "correct horse battery staple"


@pytest.fixture
def ada_session(world):
    """The session token of the first admin."""
    link = world.management.sessions.create_first_link()
    assert link is not None
    return world.management.sessions.accept_link(
        link.reveal(), password=PASSWORD, email="Ada@example.com", name="Ada", client="192.0.2.1"
    ).reveal()


def test_no_member_exists_before_the_first_link_is_accepted(world):
    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None
    assert world.management.members.all(world.management.access.operator_of_team()) == []


def test_first_link_creates_an_admin_who_is_signed_in(world, ada_session):
    signed_in = world.management.sessions.by_session_token(ada_session, client="192.0.2.1")

    assert signed_in is not None
    assert (signed_in.email, signed_in.name, signed_in.caller.is_admin) == ("ada@example.com", "Ada", True)
    assert world.management.access.permission_to_administer(signed_in.caller).team_id == world.factory.team_id
    assert signed_in.caller.actor.channel == "dashboard"


def test_link_can_be_used_once_within_a_day(world):
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


def test_only_the_right_password_signs_in(world, ada_session):
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
def test_weak_password_is_refused(world, password):
    link = world.management.sessions.create_first_link()
    assert link is not None

    with pytest.raises(Invalid, match="password"):
        world.management.sessions.accept_link(
            link.reveal(), password=password, email="a@example.com", name="A", client=None
        )


def test_member_sets_a_password_with_their_link(world, ada_session, admin):
    grace = world.management.members.add(admin, "grace@example.com", "Grace")
    world.management.members.set_role(admin, grace.id, "default", Role.VIEWER)
    link = world.management.sessions.create_link(admin, "grace@example.com").reveal()

    assert world.management.sessions.link_target(link).email == "grace@example.com"
    session = world.management.sessions.accept_link(link, password=PASSWORD, client=None)

    signed_in = world.management.sessions.by_session_token(session.reveal(), client=None)
    assert signed_in is not None
    assert not signed_in.caller.is_admin
    assert world.management.access.permission_to_view(signed_in.caller, "default").factory == world.factory


def test_sign_out_ends_the_session_in_every_process(world, ada_session):
    other_process = world.another_process()
    assert other_process.management.sessions.by_session_token(ada_session, client=None) is not None

    world.management.sessions.sign_out(ada_session)

    assert other_process.management.sessions.by_session_token(ada_session, client=None) is None


def test_idle_session_expires(world, ada_session):
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 - 1)
    before = world.management.sessions.by_session_token(ada_session, client=None)
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600)
    after = world.management.sessions.by_session_token(ada_session, client=None)

    assert before is not None
    assert after is None


def test_automatic_requests_of_a_page_do_not_extend_a_session(world, ada_session):
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 - 1)
    before = world.management.sessions.by_session_token(ada_session, client=None, is_visit=False)
    world.clock.advance(seconds=1)
    after = world.management.sessions.by_session_token(ada_session, client=None)

    assert before is not None
    assert after is None


def test_session_in_use_expires_after_its_maximum_time(world, ada_session):
    for _ in range(SESSION_HOURS // (SESSION_IDLE_HOURS // 2)):
        assert world.management.sessions.by_session_token(ada_session, client=None) is not None
        world.clock.advance(seconds=SESSION_IDLE_HOURS // 2 * 3600)

    assert world.management.sessions.by_session_token(ada_session, client=None) is None


def test_new_password_ends_all_earlier_sessions(world, ada_session):
    other_session = world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None)
    assert other_session is not None
    signed_in = world.management.sessions.by_session_token(ada_session, client=None)
    assert signed_in is not None
    change = world.management.sessions.change_password

    with pytest.raises(Conflict):
        change(signed_in, old="wrong", new="another long password", client=None)
    new_session = change(signed_in, old=PASSWORD, new="another long password", client=None)

    assert world.management.sessions.by_session_token(ada_session, client=None) is None
    assert world.management.sessions.by_session_token(other_session.reveal(), client=None) is None
    assert world.management.sessions.by_session_token(new_session.reveal(), client=None) is not None
    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None


def test_removed_member_is_signed_out(world, ada_session, admin):
    grace = world.management.members.add(admin, "grace@example.com", "Grace", is_admin=True)
    link = world.management.sessions.create_link(admin, grace.id).reveal()
    session = world.management.sessions.accept_link(link, password=PASSWORD, client=None).reveal()

    world.management.members.remove(admin, grace.id)

    assert world.management.sessions.by_session_token(session, client=None) is None
    assert world.management.sessions.sign_in("grace@example.com", PASSWORD, client=None) is None


def test_sign_in_fails_if_the_password_changes_meanwhile(world, ada_session, monkeypatch):
    signed_in = world.management.sessions.by_session_token(ada_session, client=None)
    assert signed_in is not None
    is_correct_password = passwords.is_correct_password

    def verify_then_change(password: str, password_hash: str | None) -> bool:
        is_correct = is_correct_password(password, password_hash)
        monkeypatch.setattr(passwords, "is_correct_password", is_correct_password)
        world.management.sessions.change_password(signed_in, old=PASSWORD, new="another long password", client=None)
        return is_correct

    monkeypatch.setattr(passwords, "is_correct_password", verify_then_change)

    assert world.management.sessions.sign_in("ada@example.com", PASSWORD, client=None) is None


def test_retention_removes_expired_sessions_links_and_responses(world, ada_session, admin):
    world.management.members.add(admin, "grace@example.com", "Grace")
    world.management.sessions.create_link(admin, "grace@example.com")
    with world.management.one_transaction(world.may):
        world.management.idempotency.store(world.may, "key", b"d" * 32, b"{}")
    world.clock.advance(seconds=SESSION_IDLE_HOURS * 3600 + 1)

    run_retention(world.database, Path("missing"), world.clock())

    with world.database.read() as tx:
        rows = [tx.all(f"SELECT * FROM {table}") for table in ("sessions", "sign_in_links", "idempotency_keys")]
    assert rows == [[], [], []]


def test_audit_log_has_a_line_for_each_successful_sign_in(world, ada_session, admin):
    world.management.sessions.sign_in("ada@example.com", PASSWORD, client="192.0.2.9")
    world.management.sessions.sign_in("ada@example.com", "not the password", client="192.0.2.9")

    lines = world.management.audit.of_team(admin)

    assert [(line.action, line.actor_name, line.client) for line in lines] == [
        ("member.sign_in", "ada@example.com", "192.0.2.9"),
        ("member.choose_password", "ada@example.com", "192.0.2.1"),
    ]
