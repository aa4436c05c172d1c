"""The master keys of an installation: where they come from, and how they are replaced under a running service."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from hookmill.domain.errors import Conflict
from hookmill.management import Management
from hookmill.settings import Settings
from hookmill.store import metadata
from hookmill.store.database import Database, is_sqlite_file
from hookmill.store.keys import binding, rotation
from hookmill.store.keys.binding import KeysInUse
from hookmill.store.keys.key_file import KeyFile
from hookmill.store.keys.rotation import RotationPlan, RotationResult
from hookmill.store.keys.sealing import KeyRing, MasterKey, master_key_from_text

NO_OTHER_KEY: Final = (
    "HOOKMILL_MASTER_KEY is the only key there is, so there is none to rotate to. Make another, such as with `openssl "
    "rand -base64 32`. Put it into HOOKMILL_MASTER_KEY, and the present one into HOOKMILL_MASTER_KEY_PREVIOUS; restart "
    "every process; then run this command again."
)
NO_FILE: Final = (
    "The master key is the setting HOOKMILL_MASTER_KEY, and keys are added to the file master.key only. "
    "`hookmill keys rotate` says how to replace a key that is a setting."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysShown:
    """The keys by their ids, newest first, and how many rows each has sealed."""

    sealing: str
    at_hand: tuple[str, ...]
    rows: Mapping[str, int]
    is_rotating: bool
    """A rotation was begun and is not finished."""
    file: KeyFile | None


def key_file(settings: Settings) -> KeyFile | None:
    """Where the master keys are, unless they are settings."""
    return KeyFile(settings.data_dir / "master.key") if settings.master_key is None else None


def key_ring(settings: Settings) -> KeyRing:
    """Every master key at hand. Raises `Invalid` when there is none that can be used."""
    if settings.master_key is None:
        file = KeyFile(settings.data_dir / "master.key")
        return KeyRing(file.read(), file.read)
    written = [settings.master_key.get_secret_value()]
    if settings.master_key_previous is not None:
        written += [text for text in settings.master_key_previous.get_secret_value().split(",") if text.strip()]
    return KeyRing([master_key_from_text(text) for text in written])


def checked_ring(settings: Settings, database: Database) -> KeyRing | None:
    """The keys at hand; None for a database that has no key yet. Raises `WrongKey` for one that has others."""
    if database.path is not None and not is_sqlite_file(database.path):
        return None
    with database.read() as tx:
        in_use = binding.keys_in_use(tx) if metadata.is_set_up(tx) else None
    if in_use is None:
        return None
    ring = key_ring(settings)
    binding.check_master_key(in_use, ring)
    return ring


def bound_ring(settings: Settings, database: Database, *, create: bool) -> KeyRing:
    """The keys at hand, of which the newest is the database's from now on. `create` makes one where there is none."""
    if create and (file := key_file(settings)) is not None and not file.exists():
        file.make()
    ring = key_ring(settings)
    with database.write() as tx:
        binding.bind_master_key(tx, ring)
    return ring


def shown(settings: Settings, database: Database) -> KeysShown:
    with database.read() as tx:
        in_use = _bound(binding.keys_in_use(tx))
        counted = rotation.rows_by_key(tx)
    return KeysShown(
        sealing=in_use.sealing,
        at_hand=key_ring(settings).ids,
        rows=counted,
        is_rotating=bool(in_use.retiring),
        file=key_file(settings),
    )


def add(settings: Settings, database: Database) -> tuple[MasterKey, KeyFile, bool]:
    """The key that the next rotation will use, the file that it is in, and whether this call made it."""
    if (file := key_file(settings)) is None:
        raise Conflict(NO_FILE)
    with file.held():
        new, is_new = rotation.add_key(file, _read_in_use(database))
    return new, file, is_new


def rotate(
    settings: Settings,
    database: Database,
    management: Management,
    *,
    before_a_new_key: Callable[[], None],
    seen: Callable[[int, int], None],
) -> RotationResult:
    """Seal everything with the newest key, which is made here unless one waits; or finish what was cut off.

    `before_a_new_key` may raise, and then nothing was changed. `seen` hears how many rows were looked at, and of how
    many. Raises `Conflict` when there is no key to rotate to, or somebody else rotates.
    """
    may = management.access.operator_of_team()
    file = key_file(settings)
    with file.held() if file is not None else nullcontext():
        planned = _plan(settings, database, file, before_a_new_key)
        management.master_keys.begin(may, planned)
        with database.read() as tx:
            total = rotation.rows(tx)
        rotated = rotation.finish(database, planned, lambda rows: seen(rows, total))
        if file is not None:
            file.retire(planned.old)
        return rotated


def _plan(
    settings: Settings, database: Database, file: KeyFile | None, before_a_new_key: Callable[[], None]
) -> RotationPlan:
    in_use = _read_in_use(database)
    at_hand = key_ring(settings).keys
    if (planned := rotation.plan(in_use, at_hand)) is None:
        if file is None:
            raise Conflict(NO_OTHER_KEY)
        before_a_new_key()
        rotation.add_key(file, in_use)
        planned = rotation.plan(in_use, file.read())
        assert planned is not None
    return planned


def _read_in_use(database: Database) -> KeysInUse:
    with database.read() as tx:
        return _bound(binding.keys_in_use(tx))


def _bound(in_use: KeysInUse | None) -> KeysInUse:
    assert in_use is not None, "a store that is open has a key"
    return in_use
