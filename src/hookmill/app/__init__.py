"""Wires the service together: settings → store → management, ingress and workers.

`serve` is the supervisor. It starts `ingress_process` (HTTP; evaluates deliveries) and a `fork_server`. The fork server
starts the writing process of each ingress process, and `worker_process` (runs and maintenance).
"""

import time
from dataclasses import dataclass

from hookmill.app import keys
from hookmill.app.first_start import refuse_lost_database
from hookmill.domain.errors import Invalid
from hookmill.maintenance import DiskGuard
from hookmill.management import InstallationConfig, Management
from hookmill.runs.package import PackagesOnHost
from hookmill.settings import Settings
from hookmill.store import timeouts
from hookmill.store.database import POSTGRES_CONNECTIONS, Database, open_database
from hookmill.store.keys.sealing import KeyRing
from hookmill.store.moved import refuse_moved
from hookmill.store.runs.files import FilesInDatabase, RunFileStorage


def now_us() -> int:
    """The service's clock, in microseconds since 1970."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Store:
    """An open database and the master keys that seal its secrets."""

    database: Database
    master_keys: KeyRing

    def close(self) -> None:
        self.database.close()


def open_store(
    settings: Settings,
    *,
    create: bool = False,
    syncs: bool = True,
    connections: int = POSTGRES_CONNECTIONS,
    idle_seconds: int = timeouts.IDLE_SECONDS,
) -> Store:
    """Open the database and the master keys that the settings name.

    Raises `Invalid`, `Conflict`, `WrongKey` or `StoreUnavailable`. `create`: create what is missing and migrate the
    schema, as `serve` does. `syncs`: on SQLite, each commit waits for the disk.
    `connections`: the size of PostgreSQL's pool. `idle_seconds` is like `timeouts.IDLE_SECONDS`.
    """
    data_dir = settings.data_dir
    if not create and settings.database_url is None and not (data_dir / "hookmill.db").exists():
        raise Invalid(
            f"There is no Hookmill data in {data_dir.absolute()}. Start `hookmill serve` once, "
            "or set HOOKMILL_DATA_DIR to where its data is."
        )
    database = open_database(settings.store_url(), syncs=syncs, connections=connections, idle_seconds=idle_seconds)
    try:
        refuse_moved(database)
        # A start with the wrong key must change nothing, so this check precedes creation and migration.
        master_keys = keys.load_checked_ring(settings, database)
        if create:
            refuse_lost_database(settings, database)
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Imported here, so that commands without migrations start faster.
            from hookmill.store.migrate import migrate

            migrate(database, performs_runs=settings.performs_runs)
        if master_keys is None:
            master_keys = keys.load_and_bind_ring(settings, database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database, master_keys)


def build_management(settings: Settings, store: Store, *, guards_disk: bool = True) -> Management:
    """The operations on the store. On SQLite, with `guards_disk`, they add nothing while the disk is almost full."""
    config = InstallationConfig(
        public_url=settings.public_url(),
        webhooks_per_factory=settings.webhooks_per_factory,
        runner_names=settings.runner_names(),
        default_runner=settings.default_runner,
    )
    disk_guard = None
    if store.database.path is not None and guards_disk:
        disk_guard = DiskGuard(store.database.path.parent, settings.free_space_min_mb * 1024 * 1024)
    return Management(
        store.database,
        store.master_keys,
        config,
        now_us,
        has_room=disk_guard or (lambda: True),
        packages=PackagesOnHost((settings.data_dir / "runs").absolute()),
        run_file_storage=run_file_storage(settings),
    )


def run_file_storage(settings: Settings) -> RunFileStorage | None:
    """The storage that the setting `run_files` names. None: only the worker's host has the files of a run."""
    return FilesInDatabase() if settings.stores_run_files else None
