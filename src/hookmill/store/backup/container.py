"""The file of a backup.

    magic    "hookmill backup 1\\n"
    frames   each: the length of the following bytes (4 bytes, big-endian), then a record in MessagePack, compressed
             with zlib
    end      4 zero bytes, then the SHA-256 of everything before (32 bytes), then the HMAC-SHA-256 of this SHA-256
             (32 bytes), whose key is derived from the master key

Anybody can detect a cut or damaged file with the SHA-256. The HMAC also detects a file that somebody altered on
purpose, because only an owner of the master key can compute it.
"""

import hashlib
import hmac
import zlib
from collections.abc import Iterator
from typing import Final, Protocol

import msgspec

from hookmill.domain.errors import Invalid
from hookmill.store.backup.records import Record

MAGIC: Final = b"hookmill backup 1\n"
_MAGIC_OF_EVERY_FORMAT: Final = b"hookmill backup "
DIGEST_BYTES: Final = 32
RECORD_BYTES_MAX: Final = 192 * 1024 * 1024
"""More than the largest row: a Bloom filter has up to 128 MiB."""
FRAME_BYTES_MAX: Final = RECORD_BYTES_MAX + 1024 * 1024
"""The limit of a compressed record. zlib adds less than 0.1 % to what it can't compress."""
COMPRESSION_LEVEL: Final = 1
CHUNK_BYTES: Final = 1024 * 1024
GET_ANOTHER: Final = "Copy the file again from where it was made, or use another backup. Nothing was changed."


class UnusableBackup(Invalid):
    """The file is not a backup, or was cut or altered."""


class BackupOutput(Protocol):
    def write(self, data: bytes, /) -> object: ...


class BackupInput(Protocol):
    def read(self, size: int, /) -> bytes: ...


class BackupWriter:
    """Writes records to a file or pipe."""

    def __init__(self, output: BackupOutput) -> None:
        self._output = output
        self._digest = hashlib.sha256()
        self._encode = msgspec.msgpack.Encoder().encode
        self.bytes_written = 0
        self._write(MAGIC)

    def add(self, record: Record) -> None:
        encoded = self._encode(record)
        assert len(encoded) <= RECORD_BYTES_MAX, "a batch of rows is bounded"
        frame = zlib.compress(encoded, COMPRESSION_LEVEL)
        self._write(len(frame).to_bytes(4, "big") + frame)

    def finish(self, proof_key: bytes) -> bytes:
        """Write the end. Returns the SHA-256. `proof_key` is the key of the HMAC."""
        self._write(bytes(4))
        digest = self._digest.digest()
        self._write(digest + hmac.digest(proof_key, digest, "sha256"))
        return digest

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._output.write(data)
        self.bytes_written += len(data)


class BackupReader:
    """Reads records from a file or pipe. `name` names it in errors.

    The records are not verified before `records` has ended. Call `require_proof` after that.
    """

    def __init__(self, file: BackupInput, name: str) -> None:
        """Raises `UnusableBackup` if the file is not a backup of this format."""
        self._file = file
        self._name = name
        self._digest = hashlib.sha256()
        self._proof: bytes | None = None
        self._position = 0
        magic = self._read(len(MAGIC), is_first=True)
        if magic != MAGIC:
            if magic.startswith(_MAGIC_OF_EVERY_FORMAT) and magic.endswith(b"\n"):
                raise UnusableBackup(
                    f"{name} was made by a newer version of Hookmill. Restore it with that version. Nothing was "
                    "changed."
                )
            raise UnusableBackup(f"{name} is not a backup that `hookmill backup` has made. Nothing was changed.")

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def records(self) -> Iterator[Record]:
        """All records. At the end, raises `UnusableBackup` unless the SHA-256 is right and nothing follows it."""
        decode = msgspec.msgpack.Decoder(Record).decode
        for frame in self._frames():
            try:
                record = decode(_decompressed(frame))
            except (zlib.error, msgspec.MsgspecError) as error:
                raise self._altered_error() from error
            yield record

    def verify(self) -> None:
        """Read the file to its end, and raise `UnusableBackup` unless the SHA-256 is right."""
        for _ in self._frames():
            pass

    def require_proof(self, proof_key: bytes) -> None:
        """Raises `UnusableBackup` unless an owner of the master key has made the file as it is."""
        assert self._proof is not None, "the file was read to its end"
        if not hmac.compare_digest(self._proof, hmac.digest(proof_key, self._digest.digest(), "sha256")):
            raise UnusableBackup(
                f"{self._name} was altered: its proof does not match the master key with the id that it names. Only "
                f"somebody without that key can have done this. {GET_ANOTHER}"
            )

    def _frames(self) -> Iterator[bytes]:
        while True:
            length = int.from_bytes(self._read(4), "big")
            if length == 0:
                break
            if length > FRAME_BYTES_MAX:
                raise self._altered_error()
            yield self._read(length)
        digest = self._digest.digest()
        end = self._read(2 * DIGEST_BYTES, is_hashed=False)
        if not hmac.compare_digest(end[:DIGEST_BYTES], digest) or self._file.read(1):
            raise self._altered_error()
        self._proof = end[DIGEST_BYTES:]

    def _read(self, size: int, *, is_first: bool = False, is_hashed: bool = True) -> bytes:
        parts = []
        missing = size
        while missing and (part := self._file.read(min(missing, CHUNK_BYTES))):
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        self._position += len(data)
        if missing and not is_first:
            raise UnusableBackup(
                f"{self._name} is cut: it ends after {self._position:,} bytes, which is not its end. {GET_ANOTHER}"
            )
        if is_hashed:
            self._digest.update(data)
        return data

    def _altered_error(self) -> UnusableBackup:
        return UnusableBackup(f"{self._name} is damaged: its content does not match its SHA-256. {GET_ANOTHER}")


def _decompressed(frame: bytes) -> bytes:
    """Raises `zlib.error` also for a frame that is larger than a record, or has more than one."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(frame, RECORD_BYTES_MAX)
    if not decompressor.eof or decompressor.unused_data:
        raise zlib.error
    return data
