"""A store with runs as the admission transaction writes them, and processes that perform them."""

import json
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hookmill.domain.ids import AutomationId, FactoryId, RunKey, time_ordered_key
from hookmill.domain.payload import Parsed, parse
from hookmill.domain.run import Hold, Run
from hookmill.domain.run_options import NO_OPTIONS, RunOptions
from hookmill.domain.run_policy import NO_POLICY, RunPolicy
from hookmill.store.database import open_database
from hookmill.store.notifications import notify_workers
from hookmill.store.runs import cancellation, pages, reading
from tests.runs.worker import microseconds, run_worker
from tests.support.loaded import fork_context
from tests.support.stores import longer_timeouts
from tests.support.waiting import LONG_SECONDS, until


class Backlog:
    """A store with runs, and the rows to which they refer. Other processes open the same store at `url`."""

    def __init__(self, url: str, data: Path):
        self.url = url
        self.data = data
        with longer_timeouts():
            self.database = open_database(url)
        self._webhooks: dict[str, int] = {}
        self._policies: dict[str, RunPolicy] = {}

    def webhook(self, factory: str = "fac_one", *, uid: str = "", name: str = "Deploys") -> str:
        """The uid of a webhook of this factory. If the webhook doesn't exist, it is created."""
        uid = uid or f"wh_of_{factory}"
        if uid in self._webhooks:
            return uid
        with self.database.write() as tx:
            tx.run("INSERT INTO teams (id, name, created_at) VALUES ('team', 'Team', 0) ON CONFLICT DO NOTHING")
            tx.run(
                "INSERT INTO factories (id, team_id, name, created_at, defined_by_files)"
                " VALUES (:id, 'team', :id, 0, FALSE) ON CONFLICT DO NOTHING",
                id=factory,
            )
            tx.run(
                "INSERT INTO secrets (id, team_id, name, created_at, factory_id, for_runs)"
                " VALUES ('sec', 'team', 'S', 0, :factory, FALSE) ON CONFLICT DO NOTHING",
                factory=factory,
            )
            tx.run(
                "INSERT INTO secret_versions (id, secret_id, version, key_id, sealed, created_at)"
                " VALUES ('ver', 'sec', 1, 'k', :sealed, 0) ON CONFLICT DO NOTHING",
                sealed=b"-",
            )
            number = len(self._webhooks) + 1
            tx.run(
                "INSERT INTO webhooks (no, uid, factory_id, name, auth_mode, state, secret_id, secret_version_id,"
                " answers_handshakes, revision, created_at)"
                " VALUES (:no, :uid, :factory, :name, 'token', 'enabled', 'sec', 'ver', FALSE, 1, 0)",
                no=number,
                uid=uid,
                factory=factory,
                name=name,
            )
        self._webhooks[uid] = number
        return uid

    def automation(
        self,
        factory: str = "fac_one",
        *,
        runner: str = "package",
        prompt: str = "Do it.",
        name: str = "Answer",
        policy: RunPolicy = NO_POLICY,
        options: RunOptions = NO_OPTIONS,
    ) -> str:
        """Create an automation, and return its id."""
        automation = f"aut_{secrets.token_hex(6)}"
        self.webhook(factory)
        with self.database.write() as tx:
            tx.run(
                "INSERT INTO automations (id, factory_id, name, enabled, version, created_at, updated_at, max_running,"
                " pause_after_failures) VALUES (:id, :factory, :unique, :yes, 1, 0, 0, :max_running, :failures)",
                id=automation,
                factory=factory,
                unique=automation,
                yes=True,
                max_running=policy.max_running,
                failures=policy.pause_after_failures,
            )
            tx.run(
                "INSERT INTO automation_versions (automation_id, version, name, prompt, runner, triggers, policy,"
                " options, created_at) VALUES (:id, 1, :name, :prompt, :runner, '[]', :policy, :options, 0)",
                id=automation,
                name=name,
                prompt=prompt,
                runner=runner,
                policy=json.dumps(policy.as_json()),
                options=json.dumps(options.as_json()),
            )
        self._policies[automation] = policy
        return automation

    def queue(
        self,
        automation: str,
        *,
        factory: str = "fac_one",
        webhook: str = "",
        payload: bytes = b"{}",
        now: int | None = None,
    ) -> RunKey:
        """Add a run of an accepted delivery: queued and not claimed. Returns its key.

        `now`: when the delivery arrives, in µs since 1970; None for the present time.
        """
        return self.queue_many(automation, 1, factory=factory, webhook=webhook, payload=payload, now=now)[0]

    def queue_many(
        self,
        automation: str,
        count: int,
        *,
        factory: str = "fac_one",
        webhook: str = "",
        payload: bytes = b"{}",
        notifies: bool = True,
        now: int | None = None,
    ) -> list[RunKey]:
        """Add runs like `queue`. With `notifies`, workers are notified of them, as of admitted runs."""
        uid = self.webhook(factory, uid=webhook)
        policy = self._policies.get(automation, NO_POLICY)
        parsed = parse(payload)
        policy_key = policy.policy_key(AutomationId(automation), parsed) if isinstance(parsed, Parsed) else None
        keys = []
        with self.database.write() as tx:
            for _ in range(count):
                created_at = now if now is not None else microseconds()
                delivery, key = (time_ordered_key(created_at, secrets.token_bytes(8)) for _ in range(2))
                tx.run("INSERT INTO payloads (delivery_id, body) VALUES (:id, :body)", id=delivery, body=payload)
                tx.run(
                    "INSERT INTO runs (id, delivery_id, webhook_no, factory_id, automation_id, automation_version,"
                    " state, attempt, created_at, priority, policy_key, hold)"
                    " VALUES (:id, :delivery, :webhook, :factory, :automation, 1, 'queued', 0, :now,"
                    " :priority, :policy_key, :hold)",
                    id=key,
                    delivery=delivery,
                    webhook=self._webhooks[uid],
                    factory=factory,
                    automation=automation,
                    now=created_at,
                    priority=policy.priority.rank,
                    policy_key=policy_key,
                    hold=int(Hold.NEW) if policy_key is not None else None,
                )
                keys.append(RunKey(key))
            if notifies:
                notify_workers(tx)
        return keys

    def run(self, key: RunKey) -> Run:
        with self.database.read() as tx:
            run = reading.run_by_key(tx, key)
        assert run is not None
        return run

    def column(self, key: RunKey, name: str) -> Any:
        with self.database.read() as tx:
            row = tx.one(f"SELECT {name} AS value FROM runs WHERE id = :id", id=key)
        assert row is not None
        return row["value"]

    def request_cancel(self, key: RunKey):
        with self.database.write() as tx:
            cancellation.request_cancel(tx, key, now=microseconds())

    def wait_for_end(self, *keys: RunKey, seconds: float = LONG_SECONDS) -> list[Run]:
        until(
            lambda: all(self.run(key).state.is_final for key in keys),
            lambda: f"every run has ended: {self.states()}",
            seconds=seconds,
        )
        return [self.run(key) for key in keys]

    def states(self) -> Mapping[str, int]:
        with self.database.read() as tx:
            rows = tx.all("SELECT state, count(*) AS count FROM runs GROUP BY state")
        return {row["state"]: row["count"] for row in rows}

    def listeners(self) -> int:
        """How many connections to PostgreSQL listen for notifications."""
        with self.database.read() as tx:
            row = tx.one(
                "SELECT count(*) AS count FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%'"
            )
        return row["count"] if row is not None else 0

    def page(self, factory: str = "fac_one", **conditions: Any) -> list[Run]:
        with self.database.read() as tx:
            return pages.page_of_runs(tx, factory=FactoryId(factory), **conditions)

    def __enter__(self) -> "Backlog":
        return self

    def __exit__(self, *_: object):
        self.database.close()


class Worker:
    """A process that performs the runs of a backlog. At the end of the block, it is killed."""

    def __init__(
        self,
        backlog: Backlog,
        *,
        command: Sequence[str] = (),
        grace: float = 1,
        data: Path | None = None,
        url: str | None = None,
        freeze: Mapping[str, str] | None = None,
        platform_url: str | None = None,
        **settings: Any,
    ):
        """Start the worker. Without `data` and `url`, it uses the backlog's data directory and database.

        `platform_url`: the agent platform of the runner `http`.

        With `freeze`, it freezes in a transaction, after the SQL `statement`, as soon as the `trigger_file` exists.
        """
        self._control, control_of_worker = fork_context().Pipe()
        options = {
            "url": url or backlog.url,
            "data": str(data or backlog.data),
            "command": command,
            "grace": grace,
            "freeze": freeze,
            "platform_url": platform_url,
            "settings": settings,
        }
        self._process = fork_context().Process(target=run_worker, args=(options, control_of_worker))
        self._process.start()
        control_of_worker.close()
        first_message = self._control.recv()
        assert "executor" in first_message, first_message["error"]
        self.executor: str = first_message["executor"]

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill(self):
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.join()

    def pause(self):
        self._signal(signal.SIGSTOP)

    def resume(self):
        self._signal(signal.SIGCONT)

    def stop(self) -> Any:
        """Stop the worker in an orderly way. Returns its report, which `run_worker` describes."""
        self._control.send("stop")
        report = self._control.recv()
        self._process.join()
        return report

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object):
        self.kill()
        self._control.close()

    def _signal(self, number: signal.Signals):
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


def processes_of(run: str) -> list[int]:
    """The ids of all processes on this machine whose environment has the id of this run."""
    variable = f"HOOKMILL_RUN_ID={run}".encode()
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if variable in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in pids if pid != os.getpid()]
