"""The thread that sends: from the outbox to a real receiver, also after a kill between sending and recording it."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from hookmill.domain.alarm_destination import DestinationKind
from hookmill.domain.alarm_message import AlarmMessage
from hookmill.notices.sender import NoticeSender
from hookmill.store import notices
from tests.domain.test_alarm_message import NOTICE
from tests.notices.test_outgoing import outgoing
from tests.support.waiting import until
from tests.support.world import World, world_for_test

SEND_AND_DIE = """
import os, signal, sys, time
from hookmill.notices.outgoing import Outgoing
from hookmill.notices.sender import NoticeSender
from hookmill.store.database import open_database
from hookmill.store.keys.sealing import KeyRing, MasterKey

outgoing = Outgoing(mail_server=None, tls=None, allows_private=True, now_us=lambda: 0)

def send_and_die(target, message):
    outgoing.send(target, message)
    os.kill(os.getpid(), signal.SIGKILL)

with open_database(sys.argv[1]) as database:
    NoticeSender(
        database, KeyRing([MasterKey(b"k" * 32)]), send_and_die, lambda: int(sys.argv[2]), report_failure=print
    ).send_next()
"""


@pytest.fixture
def world_on_sqlite(sqlite_store):
    yield from world_for_test(sqlite_store, allows_private_addresses=True)


def add_destination(world: World, url: str, kind: DestinationKind = DestinationKind.WEBHOOK) -> str:
    created = world.management.alarm_destinations.create(world.may, kind, url=url)
    return created.destination.id


def enqueue(world: World):
    with world.database.write() as tx:
        assert notices.enqueue(tx, replace(NOTICE, factory="default", at=world.clock.now)) == 1


def sender_of(world: World) -> NoticeSender:
    return NoticeSender(
        world.database,
        world.key,
        outgoing(seconds=60).send,
        world.clock,
        report_failure=lambda component, error: world.failures.append((component, str(error))),
    )


def test_message_that_was_sent_but_not_recorded_is_sent_again_with_the_same_id(world_on_sqlite, receiver):
    world = world_on_sqlite
    add_destination(world, receiver.url())
    enqueue(world)
    arguments = [sys.executable, "-c", SEND_AND_DIE, world.url, str(world.clock.now)]

    killed = subprocess.run(arguments, timeout=60, check=False, capture_output=True)

    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not sender_of(world).send_next()
    world.clock.advance(seconds=notices.CLAIM_US / 1_000_000)
    assert sender_of(world).send_next()
    assert not sender_of(world).send_next()
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def test_receiver_that_fails_gets_the_message_when_it_works_again(world_on_sqlite, receiver):
    world = world_on_sqlite
    add_destination(world, receiver.url("/status/503"), DestinationKind.SLACK)
    enqueue(world)

    assert sender_of(world).send_next()

    [destination] = world.management.alarm_destinations.all(world.may)
    assert (destination.waiting, destination.last_sent_at) == (1, None)
    assert destination.last_problem == f"http://127.0.0.1:{receiver.port} answered with the status 503."


def test_message_that_is_given_up_is_reported_once(world_on_sqlite, receiver):
    world = world_on_sqlite
    add_destination(world, receiver.url("/status/410"))
    enqueue(world)
    for _ in range(notices.ATTEMPTS_MAX):
        assert sender_of(world).send_next()
        world.clock.advance(seconds=notices.RETRY_US_MAX / 1_000_000)

    [(component, text)] = world.failures
    world.failures.clear()
    assert component == "alarm destinations"
    assert text.startswith(f"A message to http://127.0.0.1:{receiver.port}/… was given up after 10 attempts")
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_thread_sends_and_survives_a_fault(world_on_sqlite, receiver, monkeypatch):
    world = world_on_sqlite
    monkeypatch.setattr("hookmill.outbox.IDLE_SECONDS", 0.01)
    monkeypatch.setattr("hookmill.outbox.FAULT_SECONDS", 0.01)
    add_destination(world, receiver.url())
    enqueue(world)
    real_send = outgoing(seconds=60).send
    attempts: list[AlarmMessage] = []

    def fail_first(target, message):
        attempts.append(message)
        if len(attempts) == 1:
            world.clock.advance(seconds=notices.CLAIM_US / 1_000_000)
            raise ZeroDivisionError
        real_send(target, message)

    sender = NoticeSender(
        world.database,
        world.key,
        fail_first,
        world.clock,
        report_failure=lambda component, error: world.failures.append((component, repr(error))),
    )
    sender.start()
    try:
        until(lambda: bool(receiver.requests))
    finally:
        sender.close(5)

    assert world.failures == [("alarm destinations", "ZeroDivisionError()")]
    world.failures.clear()


def test_slow_destination_delays_only_its_own_messages(world_on_sqlite, receiver, monkeypatch):
    world = world_on_sqlite
    monkeypatch.setattr("hookmill.outbox.IDLE_SECONDS", 0.01)
    receiver.release.clear()
    for path in ("/held", "/ok"):
        add_destination(world, receiver.url(path))
    with world.database.write() as tx:
        for _ in range(2):
            assert notices.enqueue(tx, replace(NOTICE, factory="default", at=world.clock.now)) == 2
    sender = NoticeSender(
        world.database,
        world.key,
        outgoing(seconds=60).send,
        world.clock,
        report_failure=lambda component, error: world.failures.append((component, repr(error))),
    )

    def waiting():
        return sorted(each.waiting for each in world.management.alarm_destinations.all(world.may))

    sender.start()
    try:
        until(lambda: waiting() == [0, 2] and len(receiver.requests) == 3)
        assert sorted(request.path for request in receiver.requests) == ["/held", "/ok", "/ok"]
        receiver.release.set()
        until(lambda: waiting() == [0, 0])
    finally:
        receiver.release.set()
        sender.close(5)


def test_sealed_target_that_no_key_opens_is_reported_as_a_problem(world_on_sqlite, receiver):
    world = world_on_sqlite
    add_destination(world, receiver.url())
    enqueue(world)
    with world.database.write() as tx:
        tx.run("UPDATE alarm_destinations SET sealed = :sealed", sealed=b"x" * 64)

    assert sender_of(world).send_next()

    [destination] = world.management.alarm_destinations.all(world.may)
    assert destination.last_problem is not None
    assert "can't decrypt row" in destination.last_problem
    assert receiver.requests == []
