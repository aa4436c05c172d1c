"""Loads the master keys of an installation, and rotates them while the service runs."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.management import Management
from hookmill.settings import Settings
from hookmill.store import metadata, moved
from hookmill.store.database import Database
from hookmill.store.keys import binding, rotation
from hookmill.store.keys.binding import KeysInUse
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.rotation import RotationPlan, RotationResult
from hookmill.store.keys.sealing import KeyRing, MasterKey, master_key_from_text

NO_OTHER_KEY: Final = (
    "HOOKMILL_MASTER_KEY is the only key, so there is no new key to rotate to. Create one, such as with `openssl "
    "rand -base64 32`. Set HOOKMILL_MASTER_KEY to it, and HOOKMILL_MASTER_KEY_PREVIOUS to the present key. Restart "
    "every process, then run this command again."
)
NO_FILE: Final = (
    "Keys can be added to the file master.key only, and the master key is the setting HOOKMILL_MASTER_KEY. "
    "`hookmill keys rotate` explains how to replace a key that is a setting."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterKeyList:
    """The ids of the master keys, and the number of rows that each key seals."""

    sealing_id: str
    """The key that seals new secrets."""
    available_ids: tuple[str, ...]
    """The keys that this process can load, newest first."""
    rows_by_id: Mapping[str, int]
    is_rotating: bool
    """Whether a rotation has begun and is not finished."""
    file: KeyFile | None
    """The file of the keys; None if they are settings."""


def key_file(settings: Settings) -> KeyFile | None:
    """The file of the master keys; None if they are settings."""
    return KeyFile(settings.data_dir / "master.key") if settings.master_key is None else None


def key_ring(settings: Settings) -> KeyRing:
    """Every available master key. Raises `Invalid` if none can be used."""
    if settings.master_key is None:
        file = KeyFile(settings.data_dir / "master.key")
        return KeyRing(file.read(), file.read)
    key_texts = [settings.master_key.get_secret_value()]
    if settings.master_key_previous is not None:
        key_texts += [text for text in settings.master_key_previous.get_secret_value().split(",") if text.strip()]
    return KeyRing([master_key_from_text(text) for text in key_texts])


def load_checked_ring(settings: Settings, database: Database) -> KeyRing | None:
    """The available keys; None if the database has no key yet. Raises `WrongKey` if the database has other keys."""
    if database.path is not None and not database.has_sqlite_file():
        return None
    with database.read() as tx:
        in_use = binding.keys_in_use(tx) if metadata.table_exists(tx) else None
    if in_use is None:
        return None
    ring = key_ring(settings)
    binding.check_keys_in_use(in_use, ring)
    return ring


def load_and_bind_ring(settings: Settings, database: Database, *, create: bool) -> KeyRing:
    """The available keys. Binds the newest one, unless the database already has a key.

    Raises `WrongKey` if a key in use is missing. `create`: if there is no key file, create it.
    """
    if create and (file := key_file(settings)) is not None and not file.exists():
        file.create()
    ring = key_ring(settings)
    with database.write() as tx:
        binding.bind_master_key(tx, ring)
        # A move may have completed since the start checked for one.
        moved.refuse_marked(tx)
    return ring


def list_keys(settings: Settings, database: Database) -> MasterKeyList:
    with database.read() as tx:
        in_use = _require_keys_in_use(binding.keys_in_use(tx))
        rows_by_key = rotation.row_counts_by_key(tx)
    return MasterKeyList(
        sealing_id=in_use.sealing_id,
        available_ids=key_ring(settings).ids,
        rows_by_id=rows_by_key,
        is_rotating=bool(in_use.retiring_ids),
        file=key_file(settings),
    )


def add(settings: Settings, database: Database) -> tuple[MasterKey, KeyFile, bool]:
    """Add a key for the next rotation. Returns the key, its file, and whether this call created the key.

    If a key already waits for a rotation, it is returned. Raises `Conflict` if the keys are settings.
    """
    if (file := key_file(settings)) is None:
        raise Conflict(NO_FILE)
    with file.locked():
        new, is_new = rotation.add_key(file, _read_in_use(database))
    return new, file, is_new


def rotate(
    settings: Settings,
    database: Database,
    management: Management,
    *,
    confirm_new_key: Callable[[], None],
    report_progress: Callable[[int, int], None],
) -> RotationResult:
    """Seal every secret with the newest key, or finish an interrupted rotation.

    If no new key waits for a rotation, `confirm_new_key` is called and a key is created. If `confirm_new_key` raises,
    nothing is changed. `report_progress` gets the number of rows that were checked since its last call, and the total
    number of rows. Raises `Conflict` if there is no key to rotate to, or if another rotation is in progress.
    """
    may = management.access.operator_of_team()
    file = key_file(settings)
    with file.locked() if file is not None else nullcontext():
        plan = _plan_rotation(settings, database, file, confirm_new_key)
        management.master_key_rotations.begin(may, plan)
        with database.read() as tx:
            total = rotation.count_rows(tx)
        result = rotation.finish(database, plan, lambda rows: report_progress(rows, total))
        if file is not None:
            file.retire(plan.old_keys)
        return result


def _plan_rotation(
    settings: Settings, database: Database, file: KeyFile | None, confirm_new_key: Callable[[], None]
) -> RotationPlan:
    in_use = _read_in_use(database)
    if (plan := rotation.plan(in_use, key_ring(settings).keys)) is None:
        if file is None:
            raise Conflict(NO_OTHER_KEY)
        confirm_new_key()
        rotation.add_key(file, in_use)
        plan = rotation.plan(in_use, file.read())
        assert plan is not None
    return plan


def _read_in_use(database: Database) -> KeysInUse:
    with database.read() as tx:
        return _require_keys_in_use(binding.keys_in_use(tx))


def _require_keys_in_use(in_use: KeysInUse | None) -> KeysInUse:
    assert in_use is not None, "an open store has a key"
    return in_use
