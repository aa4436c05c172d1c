"""The file `master.key`: one key a line, newest first. It is only ever replaced whole, so whoever reads it finds the
keys of before or those of after."""

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
from hookmill.store.private_file import OWNER_ONLY, open_lock_file


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The master keys of an installation that has them in its data directory."""

    path: Path

    @property
    def retired_path(self) -> Path:
        """Where keys go that nothing is sealed with any more. The service never reads it."""
        return self.path.with_name(f"{self.path.name}.retired")

    def exists(self) -> bool:
        return self.path.exists()

    def read(self) -> list[MasterKey]:
        """The keys, newest first. Raises `Invalid` when they can't be used, without repeating any."""
        try:
            return _keys_in(self.path)
        except FileNotFoundError:
            raise Invalid(f"The master key {self.path} is missing. Restore it, or set HOOKMILL_MASTER_KEY.") from None

    def make(self) -> None:
        """Write a first key, unless another start was faster."""
        keys = [new_master_key()]
        # Linked, not renamed: a key that is there is never replaced.
        with suppress(FileExistsError), _prepared(self.path, keys) as prepared:
            os.link(prepared, self.path)
        _sync_directory(self.path.parent)

    def write(self, keys: Sequence[MasterKey]) -> None:
        """These keys, newest first, instead of what is there. Durable when this returns. For who holds the file."""
        _replace(self.path.resolve(), keys, like=self.path.stat())

    def retire(self, keys: Sequence[MasterKey]) -> None:
        """Move these keys to the file of retired keys, for older backups. The caller holds the file's lock."""
        if not keys:
            return
        kept = _keys_in(self.retired_path) if self.retired_path.exists() else []
        new = [key for key in keys if key not in kept]
        _replace(self.retired_path, [*new, *kept], like=self.path.stat())
        self.write([key for key in self.read() if key not in keys])

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other commands from changing the file. Raises `Conflict`."""
        with open_lock_file(self.path.with_name(f"{self.path.name}.lock")) as lock:
            with suppress(OSError):
                # Whoever runs the service may be the next to need it.
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
    lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    return [master_key_from_text(line) for line in lines if line.strip()] or [master_key_from_text("")]


def _replace(path: Path, keys: Sequence[MasterKey], *, like: os.stat_result) -> None:
    with _prepared(path, keys, like=like) as prepared:
        prepared.rename(path)
    _sync_directory(path.parent)


@contextmanager
def _prepared(path: Path, keys: Sequence[MasterKey], *, like: os.stat_result | None = None) -> Iterator[Path]:
    """A file beside `path` with these keys in it, whole and on the disk; gone afterwards unless it was moved.

    It belongs to whom `like` belongs to: root may be the one who rotates, and the service must go on reading it.
    """
    prepared = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    descriptor = os.open(prepared, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            made = os.fstat(descriptor)
            if like is not None and (like.st_uid, like.st_gid) != (made.st_uid, made.st_gid):
                os.fchown(descriptor, like.st_uid, like.st_gid)
            if like is not None:
                os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
            file.write("".join(f"{as_text(key)}\n" for key in keys).encode())
            file.flush()
            os.fsync(descriptor)
        yield prepared
    finally:
        prepared.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
