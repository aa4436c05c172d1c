"""Masks secrets in the files of a run whose command has ended.

Until this is done, only the output is shown, which is masked as it is written. Files that can't be masked are moved to
a subdirectory of their directory. Nothing in it is shown or stored.
"""

import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from hookmill.domain.run_files import OUTPUT_FILE
from hookmill.runs.package import MASKED_MARKER, open_directory, open_file_in, raise_host_fault

if TYPE_CHECKING:
    from hookmill.domain.masking import Masker

NOT_MASKED_DIRECTORY: Final = "not-masked"
MASKED_FILE_BYTES_MAX: Final = 16_777_216
MASKED_RUN_BYTES_MAX: Final = 67_108_864


def mask_files(package: int, masker: "Masker") -> None:
    """Mask the regular files of a package, and mark it as masked. Raises `OSError`; the files are then not shown.

    `package`: the descriptor of the directory. If a later attempt has replaced the package, the new one is not changed.
    """
    mask_directory(package, masker)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    os.close(os.open(MASKED_MARKER, flags, 0o600, dir_fd=package))


def mask_directory(directory: int, masker: "Masker") -> None:
    """Mask the regular files in an open directory, or move those that can't be masked. Raises `OSError`."""
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    bytes_left = MASKED_RUN_BYTES_MAX
    # The output comes first, because it is what people look for.
    for name in sorted(names, key=lambda name: (name != OUTPUT_FILE, name)):
        size = _mask_file(directory, name, masker, min(bytes_left, MASKED_FILE_BYTES_MAX))
        if size is not None:
            bytes_left -= size
        elif name != OUTPUT_FILE:
            _set_aside(directory, name)


def _mask_file(package: int, name: str, masker: "Masker", bytes_max: int) -> int | None:
    """Mask a file, and return its size. None if it is larger than `bytes_max`, or can't be masked.

    Raises `OSError` for a fault of the host.
    """
    file_name = os.fsencode(name)
    if masker.mask(file_name) != file_name:
        return None
    try:
        with open_file_in(package, name) as file:
            status = os.fstat(file.fileno())
            if status.st_size > bytes_max:
                return None
            content = file.read(bytes_max)
        masked = masker.mask(content)
        if masked != content:
            _replace(package, name, masked, status)
    except OSError as error:
        raise_host_fault(error)
        return None
    return status.st_size


def _replace(package: int, name: str, content: bytes, status: os.stat_result) -> None:
    # A new file: the old one may have another link outside the package.
    draft = f".masking-{secrets.token_hex(8)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=package)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            with suppress(OSError):
                os.fchown(descriptor, status.st_uid, status.st_gid)
        os.rename(draft, name, src_dir_fd=package, dst_dir_fd=package)
    except OSError:
        with suppress(OSError):
            os.unlink(draft, dir_fd=package)
        raise


def _set_aside(package: int, name: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(NOT_MASKED_DIRECTORY, 0o700, dir_fd=package)
    # The command may have created a link with this name, so the directory is opened without following links.
    with open_directory(NOT_MASKED_DIRECTORY, package) as directory:
        os.rename(name, name, src_dir_fd=package, dst_dir_fd=directory)
