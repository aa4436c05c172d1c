"""Group commit and its writer: every plan gets an outcome, whatever happens to the database or the writer."""

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec
import psycopg
from sqlalchemy import event
from sqlalchemy.engine import Engine

from hookmill.domain.delivery import Accepted, Duplicate, Label, RateLimited, Rejected, Unavailable
from hookmill.domain.ids import DeliveryKey
from hookmill.store import timeouts
from hookmill.store.admission import group_commit
from hookmill.store.admission.group_commit import GroupCommit
from hookmill.store.admission.plan import PLAN_OVERHEAD_BYTES, Plan, Rejection, memory_bytes
from hookmill.store.admission.protocol import NumberedPlan, Report, Unframer, Work, frame
from hookmill.store.admission.transaction import Stale
from hookmill.store.admission.writer import serve_ingress
from hookmill.store.database import open_database
from tests.store.managed_store import ManagedStore


class RunningGroupCommit:
    """An open group commit, and the failures that it has reported: the component and the reason of each one."""

    def __init__(self, group_commit: GroupCommit, failures: list[tuple[str, str]]):
        self.group_commit = group_commit
        self.failures = failures

    async def admit(self, *plans: Plan) -> list[Any]:
        return await asyncio.gather(*(self.group_commit.admit(plan) for plan in plans))


@contextlib.asynccontextmanager
async def group_commit_to(store: ManagedStore) -> AsyncIterator[RunningGroupCommit]:
    """A group commit whose writer is a thread of this process."""
    writers: list[threading.Thread] = []

    def start_writer(writer_end: socket.socket):
        channel = writer_end.dup()
        writers.append(threading.Thread(target=lambda: (serve_ingress(channel, store.database), channel.close())))
        writers[-1].start()

    async with open_group_commit(start_writer) as running:
        yield running
    for writer in writers:
        writer.join()


@contextlib.asynccontextmanager
async def open_group_commit(start_writer: Callable[[socket.socket], None]) -> AsyncIterator[RunningGroupCommit]:
    failures: list[tuple[str, str]] = []
    group_commit = GroupCommit(
        start_writer, report_failure=lambda component, error: failures.append((component, str(error)))
    )
    await group_commit.open()
    try:
        yield RunningGroupCommit(group_commit, failures)
    finally:
        await group_commit.close()
        # The transport is closed in the next turn of the event loop.
        await asyncio.sleep(0)


def test_each_caller_gets_the_outcome_of_its_own_plan(store):
    webhook = store.webhook()
    plans = [
        store.plan(webhook, "a"),
        store.plan(webhook, "a"),
        store.plan(webhook, "b", revision=7),
        store.rejection(webhook, Label.REJECTED_INVALID_JSON, reason="because"),
        store.plan(webhook, per_minute=3),
    ]

    async def scene():
        async with group_commit_to(store) as running:
            return await running.admit(*plans)

    assert asyncio.run(scene()) == [
        Accepted(plans[0].delivery_key),
        Duplicate(plans[1].delivery_key, plans[0].delivery_key),
        Stale(),
        Rejected(Label.REJECTED_INVALID_JSON),
        RateLimited(60, store.clock.now + 60_000_000),
    ]


def test_plans_that_wait_at_the_same_time_share_a_commit(store):
    webhook = store.webhook()

    async def scene():
        async with group_commit_to(store) as running:
            return await running.admit(*(store.plan(webhook) for _ in range(200)))

    with counting_commits() as commit_count:
        asyncio.run(scene())

    assert commit_count() <= 3


def test_faulty_plan_fails_no_other_plan_of_its_batch(store):
    webhook = store.webhook()
    # A delivery can't have two runs of one automation.
    faulty = store.plan(webhook, runs=[store.run("aut_a"), store.run("aut_a")])
    in_same_batch, later = store.plan(webhook, "same batch"), store.plan(webhook, "later")

    async def scene():
        async with group_commit_to(store) as running:
            return await running.admit(faulty, in_same_batch), await running.admit(later), running.failures

    faulty_batch, next_batch, failures = asyncio.run(scene())

    assert faulty_batch == [Unavailable(), Accepted(in_same_batch.delivery_key)]
    assert next_batch == [Accepted(later.delivery_key)]
    [(component, reason)] = failures
    assert component == "admission"
    assert re.fullmatch(r"a fault of type IntegrityError in hookmill\.store\.[a-z.]+, line [0-9]+", reason)
    assert store.count("deliveries") == 2


def test_plan_that_fails_at_commit_stores_nothing_and_fails_no_other(store):
    webhook = store.webhook()
    fail_commits_with(store, "poison")

    async def scene():
        async with group_commit_to(store) as running:
            batch = await running.admit(store.plan(webhook, "poison"), store.plan(webhook, "a"))
            return batch, await running.admit(store.plan(webhook, "a"), store.plan(webhook, "b"))

    batch, later = asyncio.run(scene())

    assert [type(outcome) for outcome in batch] == [Unavailable, Accepted]
    assert [type(outcome) for outcome in later] == [Duplicate, Accepted]
    assert sorted(row["identity"] for row in store.rows("deliveries")) == ["a", "a", "b"]


def test_retry_after_a_lost_report_of_the_commit_is_a_duplicate(store):
    webhook = store.webhook()
    plan, retry = store.plan(webhook, "a"), store.plan(webhook, "a")

    async def scene():
        channels: list[socket.socket] = []
        async with open_group_commit(lambda writer_end: channels.append(writer_end.dup())) as running:
            outcome = running.group_commit.admit(plan)
            await asyncio.sleep(0)
            # The writer dies between its commit and its report.
            [channel] = channels
            channel.setblocking(True)
            [work] = await asyncio.to_thread(receive_work, channel)
            store.admit(*(numbered.plan for numbered in work.plans))
            channel.close()
            lost_outcome = await outcome
        async with group_commit_to(store) as running:
            return lost_outcome, await running.admit(retry)

    assert asyncio.run(scene()) == (Unavailable(), [Duplicate(retry.delivery_key, plan.delivery_key)])


def test_closing_waits_for_plans_in_flight(store, monkeypatch):
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 60.0)
    webhook = store.webhook()
    plans = [store.plan(webhook) for _ in range(300)]

    async def scene():
        async with group_commit_to(store) as running:
            outcomes = [running.group_commit.admit(plan) for plan in plans]
        return [await outcome for outcome in outcomes]

    assert asyncio.run(scene()) == [Accepted(plan.delivery_key) for plan in plans]


def test_waiting_counts_of_dropped_attempts_are_added_up(store):
    webhook = store.webhook()
    plan = store.plan(webhook)

    async def scene():
        async with group_commit_to(store) as running:
            for _ in range(3):
                running.group_commit.send_dropped_counts([(webhook.no, 0, "not_found", 2)])
            return await running.admit(plan)

    assert asyncio.run(scene()) == [Accepted(plan.delivery_key)]
    assert [row["count"] for row in store.rows("dropped_attempts")] == [6]


def test_plans_after_closing_are_unavailable(store):
    plan = store.plan(store.webhook())

    async def scene():
        async with group_commit_to(store) as running:
            pass
        await asyncio.sleep(0.05)
        return await running.group_commit.admit(plan)

    assert asyncio.run(scene()) == Unavailable()


def test_plan_times_out_while_the_writer_does_not_answer(monkeypatch):
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    channels: list[socket.socket] = []

    async def scene():
        async with open_group_commit(lambda writer_end: channels.append(writer_end.dup())) as running:
            began = time.monotonic()
            outcome = await running.group_commit.admit(small_plan())
            return outcome, time.monotonic() - began

    outcome, waited = asyncio.run(scene())
    channels[0].close()

    assert outcome == Unavailable()
    assert waited >= 0.2


def test_sender_waits_five_seconds_at_most():
    assert group_commit.PLAN_TIMEOUT_SECONDS == 5.0


def test_writer_skips_plans_whose_sender_was_already_answered(store):
    webhook = store.webhook()
    late, in_time = store.plan(webhook, "late"), store.plan(webhook, "in time")
    ingress_end, writer_end = socket.socketpair()

    with ingress_end, writer_end:
        now = time.monotonic()
        ingress_end.sendall(frame(Work([NumberedPlan(1, now - 1, late), NumberedPlan(2, now + 60, in_time)], [])))
        ingress_end.shutdown(socket.SHUT_WR)
        serve_ingress(writer_end, store.database)
        _ready, report = receive_reports(ingress_end)

    assert [result.number for result in report.results] == [2]
    assert [row["identity"] for row in store.rows("deliveries")] == ["in time"]


def test_plan_is_unavailable_immediately_while_too_many_wait(monkeypatch):
    monkeypatch.setattr(group_commit, "OUTSTANDING_BYTES_MAX", 10_000)
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    channels: list[socket.socket] = []

    async def scene():
        async with open_group_commit(lambda writer_end: channels.append(writer_end.dup())) as running:
            outcomes = [running.group_commit.admit(small_plan()) for _ in range(10)]
            done_immediately = [outcome.done() for outcome in outcomes]
            await asyncio.gather(*outcomes)
            done_afterwards = running.group_commit.admit(small_plan()).done()
            return done_immediately, done_afterwards

    done_immediately, done_afterwards = asyncio.run(scene())
    channels[0].close()

    # A plan without a body counts 2,000 bytes. So before the seventh, more than 10,000 bytes wait.
    assert done_immediately == [False] * 6 + [True] * 4
    assert done_afterwards is False


def test_plan_is_unavailable_immediately_while_the_writer_does_not_read(store, monkeypatch):
    monkeypatch.setattr(group_commit, "OUTSTANDING_BYTES_MAX", 100_000)
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.01)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    channels: list[socket.socket] = []
    plan = store.plan(store.webhook(), body=b"x" * 90_000)

    async def scene():
        async with open_group_commit(lambda writer_end: channels.append(writer_end.dup())) as running:
            # The plans have timed out, but they are still in the channel.
            sent = 0
            while (
                await running.group_commit.admit(plan) == Unavailable() and not running.group_commit._is_backpressured
            ):
                sent += 1
            done_immediately = running.group_commit.admit(small_plan()).done()
            await asyncio.to_thread(drain, channels[0], sent)
            while running.group_commit._is_backpressured:
                await asyncio.sleep(0.01)
            return done_immediately, running.group_commit.admit(small_plan()).done()

    assert asyncio.run(scene()) == (True, False)
    channels[0].close()


def test_declared_size_of_a_rejected_body_counts_no_memory():
    assert memory_bytes(small_plan(size=10**9)) == PLAN_OVERHEAD_BYTES


def test_plans_are_unavailable_while_the_database_is_locked(store, monkeypatch):
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 1)
    # The database times out long before the plan does.
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 60.0)
    webhook = store.webhook()
    retry = store.plan(webhook, "b")

    async def scene():
        with contextlib.closing(open_database(store.url)) as database_with_short_timeout:
            store.database.close()
            store.database = database_with_short_timeout
            async with group_commit_to(store) as running:
                with locked_log(store):
                    began = time.monotonic()
                    while_locked = await running.admit(store.plan(webhook, "a"))
                    waited = time.monotonic() - began
                return while_locked, waited, await running.admit(retry)

    while_locked, waited, afterwards = asyncio.run(scene())

    assert while_locked == [Unavailable()]
    assert waited < group_commit.PLAN_TIMEOUT_SECONDS / 2
    assert afterwards == [Accepted(retry.delivery_key)]


def test_locked_webhook_is_unavailable_and_delays_no_other(store_on_postgres, monkeypatch):
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 6.0)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.1)
    store = store_on_postgres
    locked, other = store.webhook("locked"), store.webhook("other")

    async def scene():
        async with group_commit_to(store) as running:
            with locked_webhook(store, locked.no):
                waiting = running.group_commit.admit(store.plan(locked, "a"))
                of_other = [await running.group_commit.admit(store.plan(other)) for _ in range(10)]
                is_waiting = not waiting.done()
                of_both = await running.admit(*(store.plan(webhook) for webhook in (other, locked, other)))
                timed_out = await waiting
            return of_other, is_waiting, of_both, timed_out, await running.admit(store.plan(locked, "a"))

    of_other, is_waiting, of_both, timed_out, afterwards = asyncio.run(scene())

    assert {type(outcome) for outcome in of_other} == {Accepted}
    assert is_waiting
    assert [type(outcome) for outcome in of_both] == [Accepted, Unavailable, Accepted]
    assert timed_out == Unavailable()
    assert [type(outcome) for outcome in afterwards] == [Accepted]


def test_plan_waits_for_a_webhook_that_is_locked_briefly(store_on_postgres):
    webhook = store_on_postgres.webhook()
    plan = store_on_postgres.plan(webhook)

    async def scene():
        async with group_commit_to(store_on_postgres) as running:
            with locked_webhook(store_on_postgres, webhook.no):
                outcome = running.group_commit.admit(plan)
                await asyncio.sleep(0.05)
                is_waiting = not outcome.done()
            return is_waiting, await outcome

    assert asyncio.run(scene()) == (True, Accepted(plan.delivery_key))


def test_killed_writer_fails_waiting_plans_and_is_replaced(store, monkeypatch):
    # The new process loads its modules first.
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    webhook = store.webhook()
    first, last = store.plan(webhook, "first"), store.plan(webhook, "last")

    async def scene():
        async with open_group_commit(
            lambda writer_end: writers.append(start_writing_process(writer_end, store.url))
        ) as running:
            before = await running.admit(first)
            [writer] = writers
            os.kill(writer.pid, signal.SIGSTOP)
            waiting = running.group_commit.admit(store.plan(webhook, "lost"))
            await asyncio.sleep(0)
            writer.kill()
            lost = await waiting
            while (afterwards := await running.admit(last)) == [Unavailable()]:
                await asyncio.sleep(0.02)
            return before, lost, afterwards, running.failures

    writers: list[subprocess.Popen[bytes]] = []
    before, lost, afterwards, failures = asyncio.run(scene())

    assert before == [Accepted(first.delivery_key)]
    assert lost == Unavailable()
    assert type(afterwards[0]) in {Accepted, Duplicate}
    assert failures == [("writer", "the writer process ended; starting another")]
    # The second one ends when its channel is closed.
    assert [writer.wait(10) for writer in writers] == [-signal.SIGKILL, 0]


def test_frames_are_reassembled_from_parts_of_any_size():
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    contents = [chance.randbytes(chance.choice([0, 1, 3, 4, 5, 1_000, 70_000])) for _ in range(50)]
    stream = b"".join(len(content).to_bytes(4, "big") + content for content in contents)

    unframer, messages = Unframer(), []
    while stream:
        size = chance.choice([1, 2, 3, 4, 5, 100, 65_536])
        messages += unframer.messages(stream[:size])
        stream = stream[size:]

    assert messages == contents


def drain(channel: socket.socket, plan_count: int):
    """Read and drop this number of plans."""
    channel.setblocking(True)
    unframer = Unframer()
    while plan_count > 0:
        messages = unframer.messages(channel.recv(1 << 20))
        plan_count -= sum(len(msgspec.msgpack.decode(message, type=Work).plans) for message in messages)


def small_plan(size: int = 0) -> Plan:
    return Rejection(
        delivery_key=DeliveryKey(bytes(16)),
        webhook_no=1,
        revision=1,
        received_at=0,
        label=Label.REJECTED_AUTH,
        rate_limit=2,
        per_minute=60,
        size=size,
    )


def receive_work(channel: socket.socket) -> list[Work]:
    unframer = Unframer()
    while not (messages := unframer.messages(channel.recv(1 << 20))):
        pass
    return [msgspec.msgpack.decode(message, type=Work) for message in messages]


def receive_reports(channel: socket.socket) -> list[Report]:
    messages = Unframer().messages(channel.recv(1 << 20))
    return [msgspec.msgpack.decode(message, type=Report) for message in messages]


def start_writing_process(channel: socket.socket, url: str) -> "subprocess.Popen[bytes]":
    program = (
        "import socket, sys; from hookmill.store.admission.writer import main; "
        "main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])"
    )
    return subprocess.Popen([sys.executable, "-c", program, str(channel.fileno()), url], pass_fds=[channel.fileno()])


@contextlib.contextmanager
def counting_commits() -> Iterator[Callable[[], int]]:
    """Count the commits since the block began. The yielded function returns their number."""
    commit_count = 0

    def count_commit(_connection: object):
        nonlocal commit_count
        commit_count += 1

    event.listen(Engine, "commit", count_commit)
    try:
        yield lambda: commit_count
    finally:
        event.remove(Engine, "commit", count_commit)


def fail_commits_with(store: ManagedStore, identity: str):
    """Let each transaction that logs this identity fail at COMMIT, and not before."""
    with store.database.write() as tx:
        if tx.on_sqlite:
            tx.run("CREATE TABLE empty (id INTEGER PRIMARY KEY)")
            tx.run("CREATE TABLE violating (id INTEGER REFERENCES empty (id) DEFERRABLE INITIALLY DEFERRED)")
            tx.run(
                f"""
                CREATE TRIGGER poisoned AFTER INSERT ON deliveries WHEN NEW.identity = '{identity}'
                BEGIN INSERT INTO violating VALUES (1); END
                """
            )
        else:
            tx.run(
                """
                CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE EXCEPTION 'refused at commit'; END $$
                """
            )
            tx.run(
                f"""
                CREATE CONSTRAINT TRIGGER poisoned AFTER INSERT ON deliveries DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW WHEN (NEW.identity = '{identity}') EXECUTE FUNCTION refuse()
                """
            )


@contextlib.contextmanager
def locked_log(store: ManagedStore) -> Iterator[None]:
    """Until the block ends, another connection has the write lock on SQLite, or has locked the log on PostgreSQL."""
    with contextlib.closing(open_database(store.url)) as other, other.write() as tx:
        if not tx.on_sqlite:
            tx.run("LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")
        yield


@contextlib.contextmanager
def locked_webhook(store: ManagedStore, webhook_no: int) -> Iterator[None]:
    """Until the block ends, another connection has locked the webhook's row."""
    with psycopg.connect(store.url) as other:
        other.execute("SELECT * FROM webhooks WHERE no = %s FOR UPDATE", [webhook_no])
        yield
