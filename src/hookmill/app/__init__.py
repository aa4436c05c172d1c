"""Wires the service together: settings → store → management, ingress and workers.

`serve` is the supervisor. It starts `ingress_process` (HTTP; evaluates deliveries) and a `fork_server`. The fork server
starts the writer process of each ingress process, and `worker_process` (runs and maintenance).
"""

import time
from dataclasses import dataclass

from hookmill.app import keys
from hookmill.app.alarm_destinations import AlarmPost
from hookmill.app.first_start import refuse_lost_database
from hookmill.app.identity_provider import external_sign_in
from hookmill.domain.errors import Invalid
from hookmill.maintenance import DiskGuard
from hookmill.management import InstallationConfig, Management
from hookmill.runs.package import PackagesOnHost
from hookmill.settings import Settings
from hookmill.store import timeouts
from hookmill.store.database import POSTGRES_CONNECTIONS, Database, open_database
from hookmill.store.keys.sealing import KeyRing
from hookmill.store.moved import refuse_unusable
from hookmill.store.objects import ObjectStore, ObjectStoreConfig
from hookmill.store.runs.files import RunFileStorage


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
    database = open_database(settings.store_url(), syncs=syncs, connections=connections, idle_seconds=idle_seconds)
    try:
        if not create and database.path is not None and not database.path.exists():
            raise Invalid(
                f"There is no Hookmill data in {database.path.absolute().parent}. Start `hookmill serve` once, "
                "or set HOOKMILL_DATA_DIR to where its data is."
            )
        refuse_unusable(database)
        # A start with the wrong key must change nothing, so this check precedes creation and migration.
        master_keys = keys.load_checked_ring(settings, database)
        if create:
            refuse_lost_database(settings, database)
            data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Imported here, so that commands without migrations start faster.
            from hookmill.store.migrate import migrate

            migrate(database)
        if master_keys is None:
            master_keys = keys.load_and_bind_ring(settings, database, create=create)
    except BaseException:
        database.close()
        raise
    return Store(database, master_keys)


def build_management(settings: Settings, store: Store, *, guards_disk: bool = True) -> Management:
    """The operations on the store. On SQLite, with `guards_disk`, none creates a row while the disk is almost full."""
    config = InstallationConfig(
        public_url=settings.public_url(),
        webhooks_per_factory=settings.webhooks_per_factory,
        runner_names=settings.runner_names(),
        default_runner=settings.default_runner,
        secret_rules=settings.secret_rules(),
        repositories={name: repository.factories for name, repository in settings.repositories.items()},
        destinations=settings.destination_rules(),
        lacks_trusted_proxies=settings.lacks_trusted_proxies(),
        password_sign_in=settings.password_sign_in,
        external_sign_in=external_sign_in(settings),
        sends_email=settings.smtp_host is not None,
        allows_private_addresses=settings.alarm_private_addresses,
    )
    disk_guard = None
    if store.database.path is not None and guards_disk:
        disk_guard = DiskGuard(store.database.path.parent, settings.free_space_min_bytes)
    return Management(
        store.database,
        store.master_keys,
        config,
        now_us,
        has_room=disk_guard or (lambda: True),
        packages=PackagesOnHost((settings.data_dir / "runs").absolute()),
        run_file_storage=run_file_storage(settings),
        send_alarm=AlarmPost(settings, now_us),
    )


def run_file_storage(settings: Settings) -> RunFileStorage | None:
    """The storage that the setting `run_files` names. None: only the worker's host has the files of a run."""
    objects = object_store(settings)
    if not settings.stores_run_files and objects is None:
        return None
    # With another choice than `s3`, objects of earlier runs can still be read.
    return RunFileStorage(objects=objects, is_uploading=settings.run_files == "s3")


def object_store(settings: Settings) -> ObjectStore | None:
    """The object store that the settings name. Sends no request. Raises `Invalid` if a file can't be read."""
    if settings.s3_bucket is None:
        return None
    assert settings.s3_access_key_id is not None
    assert settings.s3_secret_access_key is not None
    certificate_authority = None
    if settings.s3_ca_file is not None:
        try:
            certificate_authority = settings.s3_ca_file.read_bytes()
        except OSError as error:
            raise Invalid(f"The file of s3_ca_file, {settings.s3_ca_file}, can't be read: {error.strerror}.") from None
    return ObjectStore(
        ObjectStoreConfig(
            bucket=settings.s3_bucket,
            region=settings.s3_region,
            access_key_id=settings.s3_access_key_id.get_secret_value(),
            secret_access_key=settings.s3_secret_access_key.get_secret_value(),
            endpoint_url=settings.s3_endpoint_url,
            prefix=settings.s3_prefix,
            has_path_style=settings.s3_path_style,
            certificate_authority=certificate_authority,
        )
    )
