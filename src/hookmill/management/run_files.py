"""Reads files of runs: from the package if it is on this host, else from the store."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from hookmill.domain.errors import NotFound
from hookmill.domain.ids import run_id
from hookmill.domain.permission import MayView
from hookmill.domain.run import PAYLOAD_FILE, ByDelivery, Run
from hookmill.domain.run_files import (
    OUTPUT_END_BYTES,
    OUTPUT_FILE,
    RunFile,
    RunFiles,
    RunOutput,
    fields_of,
    from_first_character,
    listing_order,
    prepared_texts,
)
from hookmill.domain.run_options import FieldValue
from hookmill.management.installation import Installation
from hookmill.store.database import Transaction
from hookmill.store.runs import reading
from hookmill.store.runs.files import RunFileStorage, StoredFile, StoredPackage

_ANY_SIZE: Final = 2**31 - 1
_NOT_ON_THIS_HOST: Final = "The run's package has no such file on this machine."


class LocalPackages(Protocol):
    """The packages on this host. `hookmill.runs.package` implements it."""

    def has_package(self, run: Run) -> bool: ...

    def list_files(self, run: Run) -> tuple[list[tuple[str, int]], bool]: ...

    def read_chunks(self, run: Run, name: str) -> Iterator[bytes]:
        """The content of a file, which is open when this returns. Raises `OSError` if there is no such file."""
        ...

    def read_tail(self, run: Run, name: str, bytes_max: int) -> tuple[bytes, int]: ...


class RunFileReader:
    """Reads the files of a run's latest attempt. The permission must be for the run's factory.

    Without `packages`, this host has no packages. Without `storage`, only the worker's host has the files of a run.
    """

    def __init__(
        self, installation: Installation, packages: LocalPackages | None, storage: RunFileStorage | None
    ) -> None:
        self._installation = installation
        self._packages = packages
        self._storage = storage

    @property
    def has_storage(self) -> bool:
        """Whether files of runs are stored for all hosts."""
        return self._storage is not None

    def files_of(self, may: MayView, run: Run) -> RunFiles:
        """The files, in the order of `listing_order`."""
        _require_same_factory(may, run)
        if self._packages is not None and self._packages.has_package(run):
            names_and_sizes, has_more = self._packages.list_files(run)
            files = [RunFile(name=name, size=size) for name, size in names_and_sizes]
            return RunFiles(files=files, has_more=has_more, is_on_this_host=True)
        if self._storage is None or run.attempt == 0:
            return RunFiles()
        with self._installation.reading() as tx:
            package = self._storage.package_of(tx, run)
            payload_size = reading.payload_size(tx, run)
            texts = self._prepared_texts(tx, run, package)
        sizes = {name: len(content) for name, content in texts.items()}
        if payload_size is not None:
            sizes[PAYLOAD_FILE] = payload_size
        # A stored row replaces the file that the service wrote into the package before the command, or says that the
        # command removed it.
        changed_names = {file.name for file in package.files}
        files = [RunFile(name=name, size=size) for name, size in sizes.items() if name not in changed_names]
        files += [
            RunFile(name=file.name, size=file.size, only_on_host=None if self._has_content(file) else file.host)
            for file in package.files
            # Without a size: the command has removed the file.
            if file.size is not None
        ]
        return RunFiles(files=sorted(files, key=lambda file: listing_order(file.name)), has_more=package.has_more)

    def read(self, may: MayView, run: Run, name: str) -> Iterator[bytes]:
        """The content of a file, in chunks. Raises `NotFound`, also if only another host has the file.

        Raises `ObjectStoreUnavailable`, now or between two chunks.
        """
        _require_same_factory(may, run)
        if self._storage is None or (self._packages is not None and self._packages.has_package(run)):
            return self._read_local(run, name)
        content: bytes | StoredFile | None = None
        if run.attempt > 0:
            with self._installation.reading() as tx:
                content = self._stored_content(tx, self._storage, run, name)
        if content is None:
            raise NotFound("The run has no such file.")
        return self._read_object(content) if isinstance(content, StoredFile) else iter((content,))

    def _read_local(self, run: Run, name: str) -> Iterator[bytes]:
        if self._packages is not None:
            with suppress(OSError):
                return self._packages.read_chunks(run, name)
        raise NotFound(_NOT_ON_THIS_HOST)

    def output_of(self, may: MayView, run: Run, bytes_max: int = OUTPUT_END_BYTES) -> RunOutput | None:
        """The output of the run's command, or its last `bytes_max` bytes. None if no output is known."""
        _require_same_factory(may, run)
        if self._packages is not None and self._packages.has_package(run):
            with suppress(OSError):
                end, size = self._packages.read_tail(run, OUTPUT_FILE, bytes_max)
                return RunOutput(content=end, size=max(size, len(end)), is_on_this_host=True)
        elif self._storage is not None:
            with self._installation.reading() as tx:
                stored = self._storage.end_of(tx, run, OUTPUT_FILE, bytes_max)
            if stored is not None:
                file, end = stored
                if len(end) < min(file.size or 0, bytes_max) and self._has_content(file):
                    end = self._end_of_object(file, bytes_max)
                is_end_only = len(end) < max(file.stored_bytes, file.size or 0)
                return RunOutput(
                    content=from_first_character(end) if is_end_only else end,
                    size=file.size,
                    complete_on_host=None if self._has_content(file) else file.host,
                )
        if run.output_tail is None:
            return None
        return RunOutput(content=run.output_tail.encode("utf-8", "backslashreplace"), size=None)

    def _has_content(self, file: StoredFile) -> bool:
        """Whether this host can read the whole content of a file that is not on its disk."""
        has_object = file.object_key is not None and self._storage is not None and self._storage.objects is not None
        return file.is_whole_in_row or has_object

    def _stored_content(
        self, tx: Transaction, storage: RunFileStorage, run: Run, name: str
    ) -> bytes | StoredFile | None:
        """The content of a file or, if an object has the content, the file's row. None if there is no such file.

        The run must have begun. Raises `NotFound` if only the worker's host has the file.
        """
        package = storage.package_of(tx, run)
        file = next((file for file in package.files if file.name == name), None)
        if file is None:
            if name == PAYLOAD_FILE:
                return reading.payload_of(tx, run)
            return self._prepared_texts(tx, run, package).get(name)
        if file.size is None:
            # The command has removed it.
            return None
        stored = storage.end_of(tx, run, name, _ANY_SIZE) if file.is_whole_in_row else None
        if stored is not None:
            return stored[1]
        if self._has_content(file):
            return file
        if file.object_key is not None:
            raise NotFound(
                "The file is in an object store, and this host's settings name none. Set s3_bucket and its credentials."
            )
        raise NotFound(f"This file of {file.size:,} bytes is not stored. It is only on the host {file.host}.")

    def fields_of(self, may: MayView, run: Run) -> Mapping[str, FieldValue]:
        """The values of the run's fields in its payload, by name. Empty if retention has pruned the payload."""
        _require_same_factory(may, run)
        if not run.options.fields:
            return {}
        with self._installation.reading() as tx:
            payload = reading.payload_of(tx, run)
        return fields_of(run, payload) if payload is not None or not run.has_payload else {}

    def _prepared_texts(self, tx: Transaction, run: Run, package: StoredPackage) -> dict[str, bytes]:
        payload = reading.payload_of(tx, run) if run.options.fields or run.options.workspace is not None else None
        return dict(prepared_texts(_run_in_package(run, package), payload))

    def _read_object(self, file: StoredFile) -> Iterator[bytes]:
        assert self._storage is not None
        assert self._storage.objects is not None
        assert file.object_key is not None
        chunks = self._storage.objects.read(file.object_key)
        if chunks is None:
            raise NotFound(f"The object store no longer has this file. The run's host {file.host} may have it.")
        return chunks

    def _end_of_object(self, file: StoredFile, bytes_max: int) -> bytes:
        # Some object stores answer requests for a range incorrectly, so everything is read.
        end = b""
        for chunk in self._read_object(file):
            end = (end + chunk)[-bytes_max:]
        return end


def _run_in_package(run: Run, package: StoredPackage) -> Run:
    """The run with the name that its webhook had when the package was written."""
    if package.webhook_name is None or not isinstance(run.started_by, ByDelivery):
        return run
    return replace(run, started_by=replace(run.started_by, webhook_name=package.webhook_name))


def _require_same_factory(may: MayView, run: Run) -> None:
    if run.factory_id != may.factory.id:
        raise NotFound(f"Factory {may.factory.name!r} has no run {run_id(run.id)}.")
