"""The id of this build of Hookmill."""

import functools
import hashlib
from pathlib import Path


@functools.cache
def build_id() -> str:
    """The first twelve hexadecimal digits of a SHA-256 over the names and contents of the package's files.

    Builds with the same version have different ids if any file differs. A checkout, its wheel and its image have the
    same id. The first call in a process reads all files, which takes about 25 ms. Later calls return the same result.

    An upgrade may replace the files while a service runs. So `serve` calls this function before it forks its first
    process, and passes the result to each worker that it starts. `hookmill worker` calls it when it begins.
    """
    package = Path(__file__).parent
    # Python adds compiled files next to the package's own.
    paths = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    names = sorted(path.relative_to(package).as_posix() for path in paths)
    digest = hashlib.sha256()
    for name in names:
        content = (package / name).read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]
