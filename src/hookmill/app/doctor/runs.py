"""Checks of what performs runs: runners, workers, the object store, and retention."""

import secrets
from collections.abc import Iterator
from typing import Final

from hookmill.app import now_us, object_store
from hookmill.app.doctor.database import inspected_tables
from hookmill.app.runner_problems import automations_without_runner, examined_runners
from hookmill.domain.errors import ObjectStoreUnavailable
from hookmill.domain.finding import Finding, listed, ok, problem, warning
from hookmill.domain.moment import utc
from hookmill.domain.queue import is_recent_heartbeat
from hookmill.settings import Settings
from hookmill.store import factories, metadata
from hookmill.store.dialect import server_time
from hookmill.store.runs import executors, queue

PROBE_BYTES: Final = 1_024
READY_SECONDS_MAX: Final = 600
"""A run that is ready for longer than this waits for a slot unusually long."""
RETENTION_SECONDS_MAX: Final = 3_600
"""Passes of retention are ten minutes apart."""


def check_runners(settings: Settings) -> Iterator[Finding]:
    for runner_name, text, is_usable in examined_runners(settings):
        if is_usable:
            yield ok(f"the runner {runner_name} {text}")
        else:
            # These texts say what to do.
            yield problem(f"the runner {runner_name}: {text}", "")


def check_automations(settings: Settings) -> Iterator[Finding]:
    """Automations whose runner is not in the settings. Their runs fail."""
    with inspected_tables(settings) as tx:
        if tx is None:
            return
        unknown = automations_without_runner(tx, settings)
    if unknown:
        yield problem(
            f"these automations name a runner that the settings don't define: {listed(unknown)}",
            "Define the runner in the settings of every worker, or change the automations.",
        )
    else:
        yield ok("every enabled automation has a runner that the settings define")


def check_object_store(settings: Settings) -> Iterator[Finding]:
    objects = object_store(settings)
    if objects is None:
        return
    key = "/".join([*([objects.prefix] if objects.prefix else []), f"doctor-{secrets.token_hex(8)}"])
    content = secrets.token_bytes(PROBE_BYTES)
    try:
        objects.put(key, content)
        try:
            chunks = objects.read(key)
            is_same = chunks is not None and b"".join(chunks) == content
        finally:
            objects.remove([key])
    except ObjectStoreUnavailable as error:
        yield problem(str(error), "")
        return
    if is_same:
        yield ok(f"an object was stored, read and removed in the bucket {settings.s3_bucket}")
    else:
        yield problem(
            f"an object in the bucket {settings.s3_bucket} was not read as it was stored",
            "Check that nothing between this host and the object store changes contents.",
        )


def check_workers(settings: Settings) -> Iterator[Finding]:
    with inspected_tables(settings) as tx:
        if tx is None:
            return
        now = server_time(tx) or now_us()
        heartbeats = executors.last_heartbeats(tx)
        oldest = min(
            (
                ready_at
                for factory in factories.all_factories(tx)
                if (ready_at := queue.oldest_ready_at(tx, factory.id)) is not None
            ),
            default=None,
        )
    alive = [executor for executor, seen_at in heartbeats.items() if is_recent_heartbeat(seen_at, now)]
    waiting_seconds = (now - oldest) / 1e6 if oldest is not None else 0.0
    if not alive:
        start = "Start `hookmill serve`" + (" or `hookmill worker`." if settings.on_postgres else ".")
        if oldest is not None:
            yield problem(f"no worker is alive, and runs wait since {utc(oldest)} UTC", start)
        else:
            yield warning("no worker is alive, so no run would be performed", start)
    elif waiting_seconds > READY_SECONDS_MAX:
        yield warning(
            f"{len(alive)} of {len(heartbeats)} workers are alive, and the oldest ready run waits since "
            f"{utc(oldest or now)} UTC",
            "`hookmill run queue` shows why. Raise runs_at_once or max_running, or add workers.",
        )
    else:
        yield ok(f"{len(alive)} of {len(heartbeats)} workers are alive, and no run waits unusually long")


def check_retention(settings: Settings) -> Iterator[Finding]:
    with inspected_tables(settings) as tx:
        if tx is None:
            return
        last_pass = metadata.retention_clock(tx)
    if last_pass is None:
        yield ok("there was no pass yet; the first one follows a start")
        return
    age_seconds = (now_us() - last_pass) / 1e6
    text = f"the last pass removed old rows as of {utc(last_pass)} UTC"
    if age_seconds > RETENTION_SECONDS_MAX:
        yield warning(
            text,
            "A pass follows every ten minutes while a service or worker runs. If one runs, look into its log. After a "
            "long stop, retention advances by 30 hours in each hour.",
        )
    else:
        yield ok(text)
