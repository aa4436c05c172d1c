"""bubblewrap for every account. The cache of programs may be in a home directory, which other accounts can't reach."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.debian import program


@contextmanager
def bubblewrap_in_path() -> Iterator[None]:
    """Put a copy of bubblewrap into PATH."""
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        shutil.copy(program("bwrap", package="bubblewrap"), directory)
        patch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        yield
