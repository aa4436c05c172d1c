"""Group commit and its writer: everybody is told what became of theirs, whatever happens to the database or the
writer."""

import asyncio
import contextlib
import os
import random
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


class Line:
    """A group commit whose writer is a thread of this process, and what it complained of."""

    def __init__(self, group: GroupCommit, failures: list[tuple[str, str]]) -> None:
        self.group = group
        self.failures = failures

    async def admit(self, *plans: Plan) -> list[Any]:
        return await asyncio.gather(*(self.group.admit(plan) for plan in plans))


@contextlib.asynccontextmanager
async def line_to(store: ManagedStore) -> AsyncIterator[Line]:
    writers: list[threading.Thread] = []

    def start(theirs: socket.socket) -> None:
        mine = theirs.dup()
        writers.append(threading.Thread(target=lambda: (serve_ingress(mine, store.database), mine.close())))
        writers[-1].start()

    async with opened(start) as line:
        yield line
    for writer in writers:
        writer.join()


@contextlib.asynccontextmanager
async def opened(start: Callable[[socket.socket], None]) -> AsyncIterator[Line]:
    failures: list[tuple[str, str]] = []
    group = GroupCommit(start, report_failure=lambda where, why: failures.append((where, why)))
    await group.open()
    try:
        yield Line(group, failures)
    finally:
        await group.close()
        # The transport is closed by the loop's next turn.
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
        async with line_to(store) as line:
            return await line.admit(*plans)

    assert asyncio.run(scene()) == [
        Accepted(plans[0].delivery_key),
        Duplicate(plans[1].delivery_key, plans[0].delivery_key),
        Stale(),
        Rejected(Label.REJECTED_INVALID_JSON),
        RateLimited(60, store.clock.now + 60_000_000),
    ]


def test_a_thousand_plans_are_answered_each_once_and_kept(store):
    webhook = store.webhook()
    plans = [store.plan(webhook, body=b"x" * (i % 3_000)) for i in range(1_000)]

    async def scene():
        async with line_to(store) as line:
            return await line.admit(*plans)

    assert asyncio.run(scene()) == [Accepted(plan.delivery_key) for plan in plans]
    assert store.count("deliveries") == 1_000


def test_plans_that_wait_together_are_committed_together(store):
    webhook = store.webhook()

    async def scene():
        async with line_to(store) as line:
            return await line.admit(*(store.plan(webhook) for _ in range(200)))

    with commits() as counted:
        asyncio.run(scene())

    assert counted() <= 3


def test_a_fault_fails_its_own_batch_and_not_the_next(store):
    webhook = store.webhook()
    # Two runs of one automation by one delivery can't be.
    faulty = store.plan(webhook, runs=[store.run("aut_a"), store.run("aut_a")])
    beside, later = store.plan(webhook, "beside"), store.plan(webhook, "later")

    async def scene():
        async with line_to(store) as line:
            return await line.admit(faulty, beside), await line.admit(later), line.failures

    together, afterwards, failures = asyncio.run(scene())

    assert together == [Unavailable(), Unavailable()]
    assert afterwards == [Accepted(later.delivery_key)]
    assert failures == [("admission", "a fault of type IntegrityError")]
    assert store.count("deliveries") == 1


def test_a_commit_that_fails_keeps_nothing_and_the_repetition_is_accepted(store):
    webhook = store.webhook()
    failing_commit(store, "poison")

    async def scene():
        async with line_to(store) as line:
            failed = await line.admit(store.plan(webhook, "poison"), store.plan(webhook, "a"))
            return failed, await line.admit(store.plan(webhook, "a"), store.plan(webhook, "b"))

    failed, repeated = asyncio.run(scene())

    assert failed == [Unavailable(), Unavailable()]
    assert [type(outcome) for outcome in repeated] == [Accepted, Accepted]
    assert sorted(row["identity"] for row in store.rows("deliveries")) == ["a", "b"]


def test_a_retry_after_a_lost_commit_answer_is_a_duplicate(store):
    webhook = store.webhook()
    plan, repeated = store.plan(webhook, "a"), store.plan(webhook, "a")

    async def scene():
        ours: list[socket.socket] = []
        async with opened(lambda theirs: ours.append(theirs.dup())) as line:
            answer = line.group.admit(plan)
            await asyncio.sleep(0)
            # A writer that dies between its commit and its report.
            ours[0].setblocking(True)
            [work] = await asyncio.to_thread(works, ours[0])
            store.admit(*(item.plan for item in work.plans))
            ours[0].close()
            outcome = await answer
        async with line_to(store) as line:
            return outcome, await line.admit(repeated)

    assert asyncio.run(scene()) == (Unavailable(), [Duplicate(repeated.delivery_key, plan.delivery_key)])


def test_closing_writes_what_is_waiting(store):
    webhook = store.webhook()
    plans = [store.plan(webhook) for _ in range(300)]

    async def scene():
        async with line_to(store) as line:
            answers = [line.group.admit(plan) for plan in plans]
        return [await answer for answer in answers]

    assert asyncio.run(scene()) == [Accepted(plan.delivery_key) for plan in plans]


def test_closing_writes_down_what_was_counted(store):
    no = store.webhook().no

    async def scene():
        async with line_to(store) as line:
            line.group.send_dropped_counts([(no, 0, "not_found", 2)])

    asyncio.run(scene())

    assert [row["count"] for row in store.rows("dropped_attempts")] == [2]


def test_counts_that_wait_for_a_busy_writer_add_up(store):
    webhook = store.webhook()
    plan = store.plan(webhook)

    async def scene():
        async with line_to(store) as line:
            for _ in range(3):
                line.group.send_dropped_counts([(webhook.no, 0, "not_found", 2)])
            return await line.admit(plan)

    assert asyncio.run(scene()) == [Accepted(plan.delivery_key)]
    assert [row["count"] for row in store.rows("dropped_attempts")] == [6]


def test_after_closing_everything_is_unavailable(store):
    plan = store.plan(store.webhook())

    async def scene():
        async with line_to(store) as line:
            pass
        await asyncio.sleep(0.05)
        return await line.group.admit(plan)

    assert asyncio.run(scene()) == Unavailable()


def test_who_has_waited_too_long_is_answered_although_the_database_hangs(monkeypatch):
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    held: list[socket.socket] = []

    async def scene():
        async with opened(lambda theirs: held.append(theirs.dup())) as line:
            began = time.monotonic()
            outcome = await line.group.admit(a_plan())
            return outcome, time.monotonic() - began

    outcome, waited = asyncio.run(scene())
    held[0].close()

    assert outcome == Unavailable()
    assert waited >= 0.2


def test_five_seconds_are_as_long_as_a_sender_waits():
    assert group_commit.PLAN_TIMEOUT_SECONDS == 5.0


def test_a_plan_whose_sender_was_answered_already_is_not_begun(store):
    webhook = store.webhook()
    late, in_time = store.plan(webhook, "late"), store.plan(webhook, "in time")
    ours, theirs = socket.socketpair()

    with ours, theirs:
        now = time.monotonic()
        ours.sendall(frame(Work([NumberedPlan(1, now - 1, late), NumberedPlan(2, now + 60, in_time)], [])))
        ours.shutdown(socket.SHUT_WR)
        serve_ingress(theirs, store.database)
        _ready, report = reports(ours)

    assert [result.number for result in report.results] == [2]
    assert [row["identity"] for row in store.rows("deliveries")] == ["in time"]


def test_a_queue_that_does_not_drain_is_unavailable_at_once(monkeypatch):
    monkeypatch.setattr(group_commit, "OUTSTANDING_BYTES_MAX", 10_000)
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    held: list[socket.socket] = []

    async def scene():
        async with opened(lambda theirs: held.append(theirs.dup())) as line:
            answers = [line.group.admit(a_plan()) for _ in range(10)]
            at_once = [answer.done() for answer in answers]
            await asyncio.gather(*answers)
            afterwards = line.group.admit(a_plan()).done()
            return at_once, afterwards

    at_once, afterwards = asyncio.run(scene())
    held[0].close()

    # Each takes 2,000 bytes without a body: the seventh finds more than 10,000 outstanding.
    assert at_once == [False] * 6 + [True] * 4
    assert afterwards is False


def test_a_writer_that_reads_no_more_is_unavailable_at_once_until_it_does(store, monkeypatch):
    monkeypatch.setattr(group_commit, "OUTSTANDING_BYTES_MAX", 100_000)
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    held: list[socket.socket] = []

    plan = store.plan(store.webhook(), body=b"x" * 90_000)

    async def scene():
        async with opened(lambda theirs: held.append(theirs.dup())) as line:
            # Their senders were answered, but the plans lie in the line.
            sent = 0
            while await line.group.admit(plan) == Unavailable() and not line.group._is_backpressured:
                sent += 1
            at_once = line.group.admit(a_plan()).done()
            await asyncio.to_thread(drained, held[0], sent)
            while line.group._is_backpressured:
                await asyncio.sleep(0.01)
            return at_once, line.group.admit(a_plan()).done()

    assert asyncio.run(scene()) == (True, False)
    held[0].close()


def test_a_declared_size_takes_no_room():
    assert memory_bytes(a_plan(size=10**9)) == PLAN_OVERHEAD_BYTES


def test_a_locked_database_is_unavailable_until_it_is_released(store, monkeypatch):
    monkeypatch.setattr(timeouts, "BUSY_SECONDS", 1)
    # It is the database that gives up, long before whoever asked.
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 60.0)
    webhook = store.webhook()
    again = store.plan(webhook, "b")

    async def scene():
        with contextlib.closing(open_database(store.url)) as impatient:
            store.database.close()
            store.database = impatient
            async with line_to(store) as line:
                with somebody_holding(store):
                    began = time.monotonic()
                    refused = await line.admit(store.plan(webhook, "a"))
                    waited = time.monotonic() - began
                return refused, waited, await line.admit(again)

    refused, waited, afterwards = asyncio.run(scene())

    assert refused == [Unavailable()]
    assert waited < group_commit.PLAN_TIMEOUT_SECONDS / 2
    assert afterwards == [Accepted(again.delivery_key)]


def test_a_locked_webhook_delays_no_other_and_becomes_unavailable(store_on_postgres, monkeypatch):
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 3.0)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.1)
    held, other = store_on_postgres.webhook("held"), store_on_postgres.webhook("other")

    async def scene():
        async with line_to(store_on_postgres) as line:
            with holding(store_on_postgres, held.no):
                waiting = line.group.admit(store_on_postgres.plan(held, "a"))
                others = [await line.group.admit(store_on_postgres.plan(other)) for _ in range(10)]
                is_waiting = not waiting.done()
                together = await line.admit(*(store_on_postgres.plan(each) for each in (other, held, other)))
                outcome = await waiting
            return others, is_waiting, together, outcome, await line.admit(store_on_postgres.plan(held, "a"))

    others, is_waiting, together, outcome, afterwards = asyncio.run(scene())

    assert {type(each) for each in others} == {Accepted}
    assert is_waiting
    assert [type(each) for each in together] == [Accepted, Unavailable, Accepted]
    assert outcome == Unavailable()
    assert [type(each) for each in afterwards] == [Accepted]


def test_a_webhook_that_is_held_for_a_moment_is_only_waited_for(store_on_postgres):
    webhook = store_on_postgres.webhook()
    plan = store_on_postgres.plan(webhook)

    async def scene():
        async with line_to(store_on_postgres) as line:
            with holding(store_on_postgres, webhook.no):
                waiting = line.group.admit(plan)
                await asyncio.sleep(0.05)
                still_waiting = not waiting.done()
            return still_waiting, await waiting

    assert asyncio.run(scene()) == (True, Accepted(plan.delivery_key))


def test_a_killed_writer_fails_waiting_plans_and_is_replaced(store, monkeypatch):
    # It has to load what it needs, and is waited for.
    monkeypatch.setattr(group_commit, "PLAN_TIMEOUT_SECONDS", 60.0)
    monkeypatch.setattr(group_commit, "RESTART_SECONDS", 0.05)
    webhook = store.webhook()
    first, last = store.plan(webhook, "first"), store.plan(webhook, "last")

    async def scene():
        async with opened(lambda theirs: started.append(writing_process(theirs, store.url))) as line:
            before = await line.admit(first)
            [writer] = started
            os.kill(writer.pid, signal.SIGSTOP)
            waiting = line.group.admit(store.plan(webhook, "lost"))
            await asyncio.sleep(0)
            writer.kill()
            lost = await waiting
            while (afterwards := await line.admit(last)) == [Unavailable()]:
                await asyncio.sleep(0.02)
            return before, lost, afterwards, line.failures

    started: list[subprocess.Popen[bytes]] = []
    before, lost, afterwards, failures = asyncio.run(scene())

    assert before == [Accepted(first.delivery_key)]
    assert lost == Unavailable()
    assert type(afterwards[0]) in {Accepted, Duplicate}
    assert failures == [("writer", "the writing process ended; starting another")]
    # The second one ends with its line.
    assert [writer.wait(10) for writer in started] == [-signal.SIGKILL, 0]


def test_frames_are_whole_again_however_they_were_cut():
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    frames = [chance.randbytes(chance.choice([0, 1, 3, 4, 5, 1_000, 70_000])) for _ in range(50)]
    stream = b"".join(len(each).to_bytes(4, "big") + each for each in frames)

    unframer, whole = Unframer(), []
    while stream:
        cut = chance.choice([1, 2, 3, 4, 5, 100, 65_536])
        whole += unframer.messages(stream[:cut])
        stream = stream[cut:]

    assert whole == frames


def drained(line: socket.socket, plans: int) -> None:
    """So many plans have been read, and dropped."""
    line.setblocking(True)
    unframer = Unframer()
    while plans > 0:
        frames = unframer.messages(line.recv(1 << 20))
        plans -= sum(len(msgspec.msgpack.decode(each, type=Work).plans) for each in frames)


def a_plan(size: int = 0) -> Plan:
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


def works(line: socket.socket) -> list[Work]:
    unframer = Unframer()
    while not (frames := unframer.messages(line.recv(1 << 20))):
        pass
    return [msgspec.msgpack.decode(each, type=Work) for each in frames]


def reports(line: socket.socket) -> list[Report]:
    return [msgspec.msgpack.decode(each, type=Report) for each in Unframer().messages(line.recv(1 << 20))]


def writing_process(line: socket.socket, url: str) -> "subprocess.Popen[bytes]":
    program = (
        "import socket, sys; from hookmill.store.admission.writer import main; "
        "main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])"
    )
    return subprocess.Popen([sys.executable, "-c", program, str(line.fileno()), url], pass_fds=[line.fileno()])


@contextlib.contextmanager
def commits() -> Iterator[Callable[[], int]]:
    """How often something has been committed since the block began."""
    counted = 0

    def count(_connection: object) -> None:
        nonlocal counted
        counted += 1

    event.listen(Engine, "commit", count)
    try:
        yield lambda: counted
    finally:
        event.remove(Engine, "commit", count)


def failing_commit(store: ManagedStore, identity: str) -> None:
    """From here on a transaction that logs this identity fails at COMMIT, and not before."""
    with store.database.write() as tx:
        if tx.on_sqlite:
            tx.run("CREATE TABLE nobody (id INTEGER PRIMARY KEY)")
            tx.run("CREATE TABLE late (id INTEGER REFERENCES nobody (id) DEFERRABLE INITIALLY DEFERRED)")
            tx.run(
                f"""
                CREATE TRIGGER poisoned AFTER INSERT ON deliveries WHEN NEW.identity = '{identity}'
                BEGIN INSERT INTO late VALUES (1); END
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
def somebody_holding(store: ManagedStore) -> Iterator[None]:
    """Another process has the writer's place on SQLite, or the log on PostgreSQL."""
    with contextlib.closing(open_database(store.url)) as somebody, somebody.write() as tx:
        if not tx.on_sqlite:
            tx.run("LOCK TABLE deliveries IN ACCESS EXCLUSIVE MODE")
        yield


@contextlib.contextmanager
def holding(store: ManagedStore, webhook_no: int) -> Iterator[None]:
    with psycopg.connect(store.url) as somebody:
        somebody.execute("SELECT * FROM webhooks WHERE no = %s FOR UPDATE", [webhook_no])
        yield
