"""Where everything is wired, and nowhere else: settings → store → what the operator asked for.

`serve` is the service as one command: the supervisor, `ingress_process` (HTTP in, plans out), and a `fork_server`,
which starts the ingress's writing process and `worker_process` (runs and maintenance).
"""

import time
from dataclasses import dataclass

from hookmill.app import keys
from hookmill.app.first_start import refuse_lost_database
from hookmill.domain.errors import Invalid
from hookmill.management import InstallationConfig, Management
from hookmill.settings import Settings
from hookmill.store.database import Database, open_database
from hookmill.store.keys.sealing import KeyRing


def now_us() -> int:
    """µs since 1970: the one clock of the service."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class Store:
    """An open database and the keys to its secrets."""

    database: Database
    key: KeyRing

    def close(self) -> None:
        self.database.close()


def open_store(settings: Settings, *, create: bool = False, syncs: bool = True) -> Store:
    """Open what the settings name. `create` makes what isn't there yet, at this version's schema, as a first start
    does."""
    data_dir = settings.data_dir
    if not create and settings.database_url is None and not (data_dir / "hookmill.db").exists():
        raise Invalid(
            f"There is no Hookmill data in {data_dir.absolute()}. Start `hookmill serve` once, "
            "or set HOOKMILL_DATA_DIR to where its data is."
        )
    database = open_database(settings.store_url(), syncs=syncs)
    try:
        # A start with the wrong key touches nothing, so this comes before anything is made or migrated.
        key = keys.checked_ring(settings, database)
        if create:
            refuse_lost_database(settings, database)
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Only a start needs it, and the command line starts faster without.
            from hookmill.store.migrate import migrate

            migrate(database, performs_runs=settings.performs_runs)
        if key is None:
            key = keys.bound_ring(settings, database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database, key)


def management(settings: Settings, store: Store) -> Management:
    config = InstallationConfig(
        public_url=settings.public_url(),
        webhooks_per_factory=settings.webhooks_per_factory,
        runner_names=settings.runner_names(),
        default_runner=settings.default_runner,
    )
    return Management(store.database, store.key, config, now_us)
