"""The file `master.key`, with one key on each line, newest first.

The file is replaced atomically, so a reader gets either the old keys or the new ones.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hookmill.domain.errors import Conflict, Invalid
from hookmill.store.keys.sealing import MasterKey, as_text, master_key_from_text, new_master_key
from hookmill.store.private_file import OWNER_ONLY, open_lock_file, sync_directory


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The key file of an installation whose master keys are in its data directory."""

    path: Path

    @property
    def retired_path(self) -> Path:
        """The file of retired keys, with which no row is sealed. Only `retire` reads it; the service never does."""
        return self.path.with_name(f"{self.path.name}.retired")

    def exists(self) -> bool:
        return self.path.exists()

    def read(self) -> list[MasterKey]:
        """The keys, newest first. Raises `Invalid` if the file is missing or a line is not a key."""
        try:
            return _keys_in(self.path)
        except FileNotFoundError:
            raise Invalid(
                f"The master key {self.path} is missing. Restore it, copy it from another host of this installation, "
                "or set HOOKMILL_MASTER_KEY."
            ) from None

    def create(self, keys: Sequence[MasterKey] = ()) -> None:
        """Create the file with these keys, or with a new one, unless another process has created it."""
        keys = keys or [new_master_key()]
        # Linking, unlike renaming, never replaces an existing file.
        with suppress(FileExistsError), _prepared_key_file(self.path, keys) as prepared:
            os.link(prepared, self.path)
        sync_directory(self.path.parent)

    def write(self, keys: Sequence[MasterKey]) -> None:
        """Replace the keys, durably. `keys` is newest first. Call it inside `locked`."""
        _replace_file(self.path.resolve(), keys, status_to_copy=self.path.stat())

    def retire(self, keys: Sequence[MasterKey]) -> None:
        """Move these keys to the file of retired keys, for older backups. Call it inside `locked`."""
        if not keys:
            return
        retired = _keys_in(self.retired_path) if self.retired_path.exists() else []
        newly_retired = [key for key in keys if key not in retired]
        _replace_file(self.retired_path, [*newly_retired, *retired], status_to_copy=self.path.stat())
        self.write([key for key in self.read() if key not in keys])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Prevent other commands from changing the file. Raises `Conflict` if another command has locked it."""
        with open_lock_file(self.path.with_name(f"{self.path.name}.lock")) as lock:
            with suppress(OSError):
                # If root created the lock file, the service's user must still be able to open it.
                owner = self.path.stat()
                os.fchown(lock.fileno(), owner.st_uid, owner.st_gid)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(f"Another command is changing the keys in {self.path}. Wait until it ends.") from None
            for path in (self.path.resolve(), self.retired_path):
                for leftover in path.parent.glob(f"{path.name}.*.new"):
                    leftover.unlink(missing_ok=True)
            yield


def _keys_in(path: Path) -> list[MasterKey]:
    """The keys in the file. Raises `Invalid` if there are none, or if a line is not a key."""
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    # For a file without keys, `master_key_from_text("")` raises the error.
    return [master_key_from_text(line) for line in lines if line.strip()] or [master_key_from_text("")]


def _replace_file(path: Path, keys: Sequence[MasterKey], *, status_to_copy: os.stat_result) -> None:
    with _prepared_key_file(path, keys, status_to_copy=status_to_copy) as prepared:
        prepared.rename(path)
    sync_directory(path.parent)


@contextmanager
def _prepared_key_file(
    path: Path, keys: Sequence[MasterKey], *, status_to_copy: os.stat_result | None = None
) -> Iterator[Path]:
    """A synced temporary file with these keys, beside `path`. It is removed afterwards unless it was moved.

    Its owner and mode are those of `status_to_copy`: root may rotate the keys, but the service must still be able to
    read them.
    """
    prepared = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            status = os.fstat(descriptor)
            if status_to_copy is not None and (status_to_copy.st_uid, status_to_copy.st_gid) != (
                status.st_uid,
                status.st_gid,
            ):
                os.fchown(descriptor, status_to_copy.st_uid, status_to_copy.st_gid)
            if status_to_copy is not None:
                os.fchmod(descriptor, stat.S_IMODE(status_to_copy.st_mode))
            file.write("".join(f"{as_text(key)}\n" for key in keys).encode())
            file.flush()
            os.fsync(descriptor)
        yield prepared
    finally:
        prepared.unlink(missing_ok=True)
