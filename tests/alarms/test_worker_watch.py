"""The alarm that no worker is left, which an ingress process raises and sends."""

import json
import time

import pytest

from hookmill.alarm_watch import AlarmConfig, AlarmEvaluator
from hookmill.app import Store
from hookmill.app.worker_watch import WorkerWatch
from hookmill.domain.alarm import WORKER_SILENT_SECONDS
from hookmill.domain.alarm_destination import DestinationKind
from hookmill.settings import Settings
from hookmill.store.keys.sealing import KeyRing, MasterKey
from tests.notices.receivers import http_receiver
from tests.support.world import PUBLIC_URL, world_for_test


class Seconds:
    """A monotonic clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def world(store_url):
    yield from world_for_test(store_url, allows_private_addresses=True)


def test_alarm_about_the_last_worker_is_sent_and_resolved_by_the_next_one(world, tmp_path):
    world.clock.now = time.time_ns() // 1000
    seconds = Seconds()
    settings = Settings(data_dir=tmp_path, base_url=PUBLIC_URL, alarm_private_addresses=True)
    store = Store(world.database, KeyRing([MasterKey(b"k" * 32)]))
    failures: list[BaseException] = []
    watch = WorkerWatch(
        settings, store, report_failure=lambda _component, error: failures.append(error), monotonic=seconds
    )
    worker = AlarmEvaluator(world.database, AlarmConfig(public_url=PUBLIC_URL), world.clock)
    team = world.management.access.operator_of_team()
    with http_receiver() as receiver:
        world.management.alarm_destinations.create(team, DestinationKind.WEBHOOK, url=receiver.url())
        assert worker.evaluate()
        found = [watch.check()]
        seconds.now += WORKER_SILENT_SECONDS
        world.clock.advance(seconds=60)
        assert worker.evaluate()
        found.append(watch.check())
        for _ in range(3):
            seconds.now += WORKER_SILENT_SECONDS
            found.append(watch.check())
        world.clock.now = time.time_ns() // 1000
        assert worker.evaluate()
        found.append(watch.check())

    assert failures == []
    assert found == [False, False, False, True, True, False]
    (message,) = [json.loads(request.body) for request in receiver.requests]
    assert (message["type"], message["data"]["kind"]) == ("alarm.raised", "worker_stopped")
    assert message["data"]["summary"].startswith("No worker has evaluated alarms for more than 5 min")
    (alarm,) = world.management.alarms.newest(team)
    assert alarm.resolved_at is not None
