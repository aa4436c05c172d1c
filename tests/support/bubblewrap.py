"""bubblewrap for tests of sandboxes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.debian import program


@contextmanager
def bubblewrap_in_path() -> Iterator[None]:
    """Put the directory of bubblewrap into PATH."""
    with pytest.MonkeyPatch.context() as patch:
        directory = Path(program("bwrap", package="bubblewrap")).parent
        patch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
        yield
