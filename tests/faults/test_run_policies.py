"""Run policies hold with several ingress processes and workers, one of which is killed. The commands of the runs detect
runs of the same key that overlap."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from hookmill.domain.ids import RunKey
from hookmill.domain.run import Run, RunState
from hookmill.management import Management, WebhookWithSecret
from tests.support.automations import automation_created
from tests.support.counts import count, only_in_proof
from tests.support.loaded import Command
from tests.support.service import Service, operator, serving
from tests.support.triggers import received
from tests.support.waiting import until

DELIVERIES: Final = count(200, usually=20)
KEYS: Final = 20
SENDERS: Final = 16
QUIET_SECONDS: Final = 3
FINAL_STATES: Final = {state for state in RunState if state.is_final}


class ServiceWithWorkers:
    """A service on PostgreSQL that performs no runs, and three workers that perform them."""

    def __init__(self, service: Service, management: Management, stack: ExitStack, directory: Path):
        self.service = service
        self.management = management
        self.may = operator(management)
        self._stack = stack
        self._directory = directory
        self.workers = [self._start_worker(number) for number in range(3)]

    def _start_worker(self, number: int) -> Command:
        data = self._directory / f"worker-{number}"
        data.mkdir(exist_ok=True)
        environment = self.service.environment() | {
            "HOOKMILL_DATA_DIR": str(data),
            "HOOKMILL_MASTER_KEY": (self.service.data_dir / "master.key").read_text().strip(),
        }
        worker = Command(["worker"], environment, data, data / "log")
        self._stack.callback(worker.kill)
        return worker

    def webhook(self, policy: dict[str, Any]) -> WebhookWithSecret:
        """A new webhook whose deliveries start runs with this policy."""
        webhook = self.management.webhooks.create(self.may, {"name": "pull requests"})
        trigger = received(webhook.webhook.uid)
        automation_created(
            self.management, self.may, "review", prompt="Review it.", runner="agent", triggers=[trigger], policy=policy
        )
        return webhook

    def deliver_with_a_kill(self, webhook: WebhookWithSecret) -> list[list[Run]]:
        """Deliver from many threads, and replace a killed worker halfway. Returns each key's runs, oldest first."""

        def deliver(number: int) -> int:
            if number == DELIVERIES // 2:
                self.workers.pop(0).kill()
                self.workers.append(self._start_worker(3))
            return self.service.post(webhook, json.dumps({"pr": number % KEYS, "n": number}).encode()).status

        with ThreadPoolExecutor(SENDERS) as senders:
            assert Counter(senders.map(deliver, range(DELIVERIES))) == {202: DELIVERIES}
        until(
            lambda: {run.state for run in self.runs()} <= FINAL_STATES,
            lambda: f"all runs end: {Counter(run.state for run in self.runs())}",
        )
        runs = sorted(self.runs(), key=lambda run: (run.policy_key or b"", run.id))
        return [list(group) for _, group in groupby(runs, key=lambda run: run.policy_key)]

    def runs(self) -> list[Run]:
        return list(self.management.runs.newest(self.may, limit=1_000))


@contextmanager
def service_with_workers(database_url: str, directory: Path) -> Iterator[ServiceWithWorkers]:
    script = f"""
        key=$(sed 's/.*"pr": \\([0-9]*\\).*/\\1/' event-payload.json)
        exec 9> {directory}/lock-$key
        flock -n 9 || echo $key >> {directory}/overlaps
        sleep 0.05
    """
    runners = json.dumps({"agent": {"argv": ["sh", "-c", script]}})
    with (
        serving(
            directory / "data",
            database_url=database_url,
            processes=4,
            performs_runs=False,
            deliveries_per_minute=100_000,
            run_attempts_max=10,
            runners=runners,
        ) as service,
        service.management() as management,
        ExitStack() as stack,
    ):
        yield ServiceWithWorkers(service, management, stack, directory)


def last_replacement(run: Run, by_id: dict[RunKey, Run]) -> Run:
    """The run at the end of the replacements that begin with this run."""
    for _ in by_id:
        if run.state is not RunState.REPLACED:
            return run
        assert run.replaced_by is not None
        other = by_id[run.replaced_by]
        assert other.policy_key == run.policy_key
        run = other
    raise AssertionError(f"The replacements are a circle, also of {run.id.hex()}.")


@pytest.mark.parametrize("when_busy", [only_in_proof("queue"), only_in_proof("skip"), "replace"])
def test_no_key_has_more_active_runs_than_its_limit(postgres_store, tmp_path, when_busy):
    with service_with_workers(postgres_store, tmp_path) as service:
        webhook = service.webhook({"concurrency": {"key": "/pr", "when_busy": when_busy}})
        groups = service.deliver_with_a_kill(webhook)

    assert not (tmp_path / "overlaps").exists()
    assert (len(groups), sum(map(len, groups))) == (KEYS, DELIVERIES)
    by_id = {run.id: run for group in groups for run in group}
    states = Counter(run.state for run in by_id.values())
    match when_busy:
        case "queue":
            assert states == {RunState.SUCCEEDED: DELIVERIES}
        case "skip":
            assert states.keys() <= {RunState.SUCCEEDED, RunState.SKIPPED}
        case "replace":
            assert states.keys() <= {RunState.SUCCEEDED, RunState.REPLACED}
            assert all(last_replacement(run, by_id).state is RunState.SUCCEEDED for run in by_id.values())
            assert {group[-1].state for group in groups} == {RunState.SUCCEEDED}
    for run in by_id.values():
        if run.state is RunState.SKIPPED:
            assert run.replaced_by is not None
            active = by_id[run.replaced_by]
            assert active.policy_key == run.policy_key
            assert active.finished_at is not None
            assert run.finished_at is not None
            assert run.finished_at <= active.finished_at


@pytest.mark.proof
def test_debounced_deliveries_start_one_run_per_key(postgres_store, tmp_path):
    with service_with_workers(postgres_store, tmp_path) as service:
        policy = {"concurrency": {"key": "/pr"}, "debounce": {"seconds": QUIET_SECONDS, "max_seconds": 60}}
        groups = service.deliver_with_a_kill(service.webhook(policy))

    assert not (tmp_path / "overlaps").exists()
    assert (len(groups), sum(map(len, groups))) == (KEYS, DELIVERIES)
    for group in groups:
        assert group[-1].state is RunState.SUCCEEDED
        for run, next_run in pairwise(group):
            assert run.state in (RunState.SUCCEEDED, RunState.SUPERSEDED)
            # On a slow machine, two deliveries of a key may be further apart than the quiet period.
            is_quiet = next_run.created_at - run.created_at > QUIET_SECONDS * 1_000_000 - 100_000
            assert is_quiet or run.state is RunState.SUPERSEDED
