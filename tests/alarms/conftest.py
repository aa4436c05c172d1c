"""A world whose alarms a test evaluates, with a clock that the test moves."""

import pytest

from hookmill.alarm_watch import AlarmConfig, AlarmEvaluator
from hookmill.domain.alarm import Alarm, AlarmEvent, AlarmKind, AlarmNotice, AlarmThresholds
from hookmill.domain.ids import FactoryId, RunKey
from hookmill.domain.run import Ended, RunState
from hookmill.store import alarms
from hookmill.store.database import Database, Transaction
from hookmill.store.pauses import pause_failing
from hookmill.store.runs import attempts, claims, executors, held
from hookmill.store.runs.executors import ExecutorId
from tests.support.world import PUBLIC_URL, World

WORKER = ExecutorId("host-1-aa")


class Watch:
    """A process that evaluates the alarms of a world."""

    def __init__(self, world: World, notices: list[AlarmNotice], database: Database | None = None):
        self.world = world
        self.notices = notices
        """Those since the last call of `events`."""
        self.config = AlarmConfig(public_url=PUBLIC_URL, thresholds=AlarmThresholds())
        self.database = database or world.database
        self.evaluator = AlarmEvaluator(self.database, self.config, world.clock)

    def evaluate(self, *, minutes: float = 1) -> bool:
        """Advance the clock in steps of a minute or less, and evaluate after each. Returns whether the last one did."""
        has_evaluated = False
        while minutes > 0:
            self.world.clock.advance(seconds=60 * min(minutes, 1))
            has_evaluated = self.evaluator.evaluate()
            minutes -= 1
        return has_evaluated

    def open(self) -> dict[tuple[AlarmKind, str], Alarm]:
        """The open alarms by kind and name of the subject."""
        with self.database.read() as tx:
            return {(alarm.kind, alarm.subject.name): alarm for alarm in alarms.open_alarms(tx, list(AlarmKind))}

    def events(self) -> list[tuple[AlarmEvent, AlarmKind | None]]:
        """The events and kinds of the notices since the last call."""
        events = [(notice.event, notice.kind) for notice in self.notices]
        self.notices.clear()
        return events

    def snooze(self, alarm: Alarm, *, hours: float):
        with self.database.write() as tx:
            alarms.snooze(tx, alarm.key, self.world.clock.now + round(hours * 3_600_000_000))


def claim(world: World, at_most: int = 100) -> list[RunKey]:
    """Claim ready runs, as a worker does."""
    with world.database.write() as tx:
        held.decide(tx, world.clock.now)
        executors.heartbeat(tx, WORKER, world.clock.now)
        claimed = claims.claim(tx, executor=WORKER, at_most=at_most, after=FactoryId(""), now=world.clock.now)
    return [claimed_run.run for claimed_run in claimed]


def finish(world: World, run: RunKey, state: RunState):
    with world.database.write() as tx:
        row = tx.one("SELECT policy_key FROM runs WHERE id = :id", id=run)
        assert row is not None
        assert attempts.finish(
            tx, run, Ended(state=state), executor=WORKER, attempt=1, now=world.clock.now, policy_key=row["policy_key"]
        )
    pause_failing(world.database, world.clock.now)


@pytest.fixture
def notices(monkeypatch):
    """The notices that destinations get."""
    notices: list[AlarmNotice] = []

    def announce(_tx: Transaction, notice: AlarmNotice):
        notices.append(notice)

    monkeypatch.setattr("hookmill.store.notices.enqueue", announce)
    return notices


@pytest.fixture
def watch(world, notices):
    """The alarms of a world that has been evaluated for longer than a start takes."""
    watch = Watch(world, notices)
    watch.evaluator.evaluate()
    return watch
